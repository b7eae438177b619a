// What a job may ask for (JobSpec of proto/jobs.proto): for clients, pages, the simulator, and the service that takes jobs in. Where a proto
// has a rule for a field, a test holds it to these numbers (tests/proto/rules_test.cc).
#pragma once

#include <cstdint>

namespace heddle {

inline constexpr int kMaxTrialsPerTask = 100'000;  // also the longest plateau
inline constexpr int kDefaultBatch = 16;           // if a job asks for none
inline constexpr int kMaxBatch = 1024;             // so many candidates fit into one gRPC message
inline constexpr int kMaxPipelineDepth = 64;
inline constexpr int kMinPriority = -10;
inline constexpr int kMaxPriority = 10;
inline constexpr int kMaxJobDevices = 1 << 20;
inline constexpr int kMaxRepeats = 1000;
inline constexpr int64_t kMaxMinRepeatUs = 10'000'000;

}  // namespace heddle
