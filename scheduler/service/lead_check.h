// Refuses calls while this process does not lead for certain: another may lead, and what this one would say may be over.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace heddle::scheduler {

// Calls that end while `check` is not OK, which is an Unavailable that says why, end with that instead of their own status. Clients
// then ask the next scheduler. `check` is called from gRPC's threads.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeLeadCheck(
    std::function<absl::Status()> check);

}  // namespace heddle::scheduler
