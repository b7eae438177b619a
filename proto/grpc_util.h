// Small things that every process of the service needs of gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstddef>
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
  // Of a server. They add up to 40 seconds, after which the calls of a dead client have ended. A living client
  // whose threads are busy looks at its connections every five seconds only, so the patience is longer.
  absl::Duration server_every = absl::Seconds(20);
  absl::Duration server_patience = absl::Seconds(20);
};

// For every server: takes the pings of MakeChannel (proto/access/channel.h), and pings each client. Both over
// connections that are silent for long, too.
inline void UsePings(grpc::ServerBuilder* builder, const Pings& pings = {}) {
  const auto set_ms = [builder](const char* argument, absl::Duration time) {
    builder->AddChannelArgument(argument, static_cast<int>(absl::ToInt64Milliseconds(time)));
  };
  set_ms(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, pings.least_apart);
  set_ms(GRPC_ARG_KEEPALIVE_TIME_MS, pings.server_every);
  set_ms(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, pings.server_patience);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // as many as it takes
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

// What callers can take of a server at a time. gRPC has no limit of connections: the open files of the
// process are that (base/files/open_files.h).
struct ServerLimits {
  int threads =
      256;  // of the calls of synchronous services; more calls end with RESOURCE_EXHAUSTED
  size_t call_bytes = size_t{512} << 20;         // buffers of all calls together
  int streams = 256;                             // calls at a time on one connection
  absl::Duration idle = absl::Minutes(10);       // a connection without calls ends
  absl::Duration handshake = absl::Seconds(20);  // from the connection to the end of its handshake
};

// For every server. `name` is for messages of gRPC.
inline void LimitServer(grpc::ServerBuilder* builder, const std::string& name,
                        const ServerLimits& limits = {}) {
  grpc::ResourceQuota quota(name);
  quota.SetMaxThreads(limits.threads).Resize(limits.call_bytes);
  builder->SetResourceQuota(quota);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.streams);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(limits.idle)));
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(limits.handshake)));
}

}  // namespace heddle
