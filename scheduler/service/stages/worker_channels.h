// Connections to workers. To make one costs a handshake, so one that a stage has left in order serves
// the next stage. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/access/credentials.h"

namespace heddle::scheduler {

class WorkerChannels {
 public:
  explicit WorkerChannels(const Credentials* credentials) : credentials_(credentials) {}

  // A connection for one stage on the worker of this name, which must prove to be that: a kept one that
  // still stands, or a new one. Nobody else uses it until it is kept again.
  std::shared_ptr<grpc::Channel> Take(const std::string& address, const std::string& worker);
  // For the next stage. Only for a connection whose call has ended well: a broken one must not be
  // passed on.
  void Keep(const std::string& address, const std::string& worker,
            std::shared_ptr<grpc::Channel> channel);

 private:
  struct Kept {
    std::shared_ptr<grpc::Channel> channel;
    absl::Time until;
  };
  void DropOld(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Credentials* const credentials_;
  absl::Mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::vector<Kept>> kept_ ABSL_GUARDED_BY(mutex_);
  // None is too old before this time, so that no stage has to look at those of all workers.
  absl::Time next_drop_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace heddle::scheduler
