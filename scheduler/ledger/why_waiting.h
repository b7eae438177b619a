// "Why is it not running?" always has an answer: one line, for people.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {

// What the task is doing or waiting for: "profile 12/16", "waiting for a cpu slot", "done".
std::string DescribeTask(const Dispatcher& dispatcher, const Job& job, TaskIndex task,
                         absl::Time now);
// What the job is doing, which constraint keeps it from running and what is nearest to meeting it,
// or why it ended.
std::string DescribeJob(const Dispatcher& dispatcher, const Job& job, absl::Time now);
// "the deadline .. cannot be met: .."; empty: it can. `now` is the dispatcher's clock, `wall` the
// same moment as people call it.
inline constexpr char kDeadlineWarning[] = "the deadline ";  // how it begins
std::string DescribeEstimate(const Job& job, const DeadlineEstimate& estimate, absl::Time now,
                             absl::Time wall);

}  // namespace heddle::scheduler
