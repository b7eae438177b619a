// Small things that every process of the service needs of gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
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

// A channel that notices a dead peer, and reconnects within two seconds of its return.
inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                                  const Pings& pings = {}) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(pings.every)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(pings.patience)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // What a service refuses for want of a place may be called again after a while, as the service says.
  arguments.SetServiceConfigJSON(
      R"({"methodConfig":[{"name":[{"service":"heddle.v1.JobService"},{"service":"heddle.v1.RecordService"}],)"
      R"("retryPolicy":{"maxAttempts":4,"initialBackoff":"0.2s","maxBackoff":"2s","backoffMultiplier":2,)"
      R"("retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]})");
  // Every channel its own connection: a broken one must not be shared with its successor.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// For every server: takes the pings of MakeChannel, over streams that are silent for long, too.
inline void AllowPings(grpc::ServerBuilder* builder, const Pings& pings = {}) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(pings.least_apart)));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

}  // namespace heddle
