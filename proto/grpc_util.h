// Small things that every process of the service needs of gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace heddle {

inline void SetDeadline(grpc::ClientContext* context, absl::Duration limit) {
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limit));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

// How often the two ends ask each other whether they are still there.
struct Pings {
  // Of a client, without any answer in between; a dead peer is noticed within half a minute.
  absl::Duration every = absl::Seconds(20);
  absl::Duration patience = absl::Seconds(10);
  // What a server takes. Under `every`, however late pings bunch up: gRPC's own limit of five
  // minutes would cut a client of ours off after the third.
  absl::Duration least_apart = absl::Seconds(10);
};

// For every server: takes the pings of MakeChannel (proto/access/channel.h), over streams that are silent for long, too.
inline void AllowPings(grpc::ServerBuilder* builder, const Pings& pings = {}) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(pings.least_apart)));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace heddle
