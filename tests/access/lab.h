// Certificates as deploy/heddle-ca makes them, and calls of any method by name: for tests of who may
// do what.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "proto/access/credentials.h"
#include "proto/access/identity.h"

namespace heddle {

// The lab of this test process, in a folder that is removed at its end. It has tracker, scheduler,
// operator; a scheduler `second`, and one `scheduler.b` of the same service as `scheduler`; the workers w1 and w2; the users ann and carl of tenant vision, bob of tenant sound; and
// eve, who may only read. `stranger` is a scheduler of another lab.
class Lab {
 public:
  static const Lab& Get();
  ~Lab();
  // With the token instead of the certificate if one is given.
  Credentials Of(const std::string& name, const std::string& token = "") const;
  std::string Directory(const std::string& name) const;
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  // Runs deploy/heddle-ca; its standard output without the newline at the end.
  static std::string Run(const std::vector<std::string>& words);

 private:
  Lab();
  std::string folder_;
};

// All methods of the services in proto/.
std::vector<const google::protobuf::MethodDescriptor*> AllMethods();
// "heddle.v1.JobService/GetJob".
std::string NameOf(const google::protobuf::MethodDescriptor& method);

struct Answer {
  grpc::Status status;
  std::vector<std::string> messages;  // serialized, at most as many as Call was given
};
// Calls "/" + `method` with one message, and reads what comes until the end or `max_messages`.
Answer Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
            const std::string& request, int max_messages = 100);

}  // namespace heddle
