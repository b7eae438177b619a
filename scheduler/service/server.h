// Runs the scheduler: wires stores, scheduler loop and gRPC server together.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {

struct ServerOptions {
  std::string listen = "127.0.0.1:9190";
  std::string data_directory;
  std::string tracker_address = "127.0.0.1:9191";
  std::string port_file;         // empty: none
  std::string binary_directory;  // for embedded
  bool embedded = false;
  bool unguarded = false;            // the embedded worker trusts every measurement
  bool require_confinement = false;  // embedded: refuse a host that cannot confine stages
  bool verbose = false;
  std::string policy = kDefaultPolicy;  // a name for MakePolicy
  long long max_model_mib = 16384;
};

// Runs until SIGINT or SIGTERM. Prints "listening on HOST:PORT" to stdout when it takes calls.
// InvalidArgument for what the user can change (address, directory in use), another code for all
// else.
absl::Status RunServer(const ServerOptions& options);

}  // namespace heddle::scheduler
