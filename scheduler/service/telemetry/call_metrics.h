// Counts the calls of a gRPC server by method and status, and how long they took.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "base/daemon/metrics.h"

namespace heddle::scheduler {

// For a server builder. Counts calls of our own methods that were let in; those that the listener
// refuses are counted by RefusedCalls. The metrics must outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallMetrics(
    Metrics* metrics);

}  // namespace heddle::scheduler
