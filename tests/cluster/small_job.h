// The job that tests of whole clusters tune, again and again, and how they read what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/service_client.h"
#include "proto/jobs.pb.h"

namespace heddle {

// The ONNX file of a small network, which is tuned in a second or so.
std::string SmallModel();
// Tunes it for this machine: random candidates, measured a few times for `min_repeat_us` microseconds, whatever the store knows
// already.
v1::JobSpec SmallJob(int trials_per_task, uint32_t seed, int64_t min_repeat_us);
// All records of the job; of all jobs if it is empty.
absl::StatusOr<std::vector<v1::Record>> RecordsOf(const client::ServiceClient& client,
                                                  const std::string& job);
// A number from the environment.
int FromEnvironment(const char* name, int otherwise);

}  // namespace heddle
