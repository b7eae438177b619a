// Mutated requests to a server that must answer each of them well.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/one_line.h"
#include "tests/adversary/mutate.h"

namespace heddle {

// The codes that the protos promise. Not among them: UNKNOWN, INTERNAL, UNAVAILABLE, which would mean that something broke.
inline bool IsTyped(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

// Calls with mutations of `good`: `times` of them, or as many as HEDDLE_MUTATIONS says. Expects that each status code is one that callers can act on (IsTyped),
// and that the message of a refusal is one line of limited length. Returns the number of refusals. `what` names the call in messages.
template <typename Request>
int AttackWith(const std::string& what, const Request& good, int times,
               const std::function<grpc::Status(const Request&)>& call) {
  constexpr size_t kLongestRefusal = 8192;
  int refused = 0;
  for (int i = 0; i < Mutations(times); ++i) {
    Mutator mutator(static_cast<uint64_t>(i));
    Request bad = good;
    mutator.Mutate(&bad);
    const grpc::Status status = call(bad);
    const std::string& why = status.error_message();
    EXPECT_TRUE(IsTyped(status)) << what << ", seed " << i << ": " << status.error_code() << " "
                                 << why << "\n"
                                 << bad.ShortDebugString().substr(0, 1000);
    EXPECT_TRUE(OneLine(why) == why && why.size() < kLongestRefusal) << what << ", seed " << i;
    EXPECT_TRUE(status.ok() || !why.empty()) << what << ", seed " << i;
    refused += !status.ok();
  }
  return refused;
}

}  // namespace heddle
