// Options of a job besides its model: urgency, when tuning ends, and the division of trials and
// devices.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/jobs.pb.h"

namespace heddle::client {

struct JobOptions {
  std::string deadline;  // "2h", "18:30" (the next one), "2030-01-31 18:30" or RFC 3339; local time
  std::string time_limit;      // "30m"
  std::string target_latency;  // "5ms"
  std::string allocation = "gradient";
  int priority = 0;
  int plateau = 0;
  int max_devices = 0;
};

// InvalidArgument: one line with the flag, the given value, and a valid example.
absl::Status FillJobOptions(const JobOptions& options, absl::Time now, v1::JobSpec* spec);

// How long `wait` waits: "30m", or a number of seconds; 0 is without end. InvalidArgument otherwise.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text);

// "2030-01-31 18:30 (in 1h02m): will be met by 12m00s, as things stand"; empty without a deadline.
std::string DeadlineText(const v1::Job& job, absl::Time now);

}  // namespace heddle::client
