// Answers "Why is it not running?" in one line for people.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {

// What the task is doing or waiting for: "profile 12/16", "waiting for a cpu slot", "done".
std::string DescribeTask(const Dispatcher& dispatcher, const Job& job, TaskIndex task,
                         absl::Time now);
// What the job is doing, or why it ended. If it waits: for which constraint, and which slot comes
// nearest to meeting that.
std::string DescribeJob(const Dispatcher& dispatcher, const Job& job, absl::Time now);
// How the warning about a deadline begins.
inline constexpr char kDeadlineWarning[] = "the deadline ";
// "the deadline .. cannot be met: .."; empty: it can. `now` is the dispatcher's clock, `wall` the
// same moment as a date.
std::string DescribeEstimate(const Job& job, const DeadlineEstimate& estimate, absl::Time now,
                             absl::Time wall);

}  // namespace heddle::scheduler
