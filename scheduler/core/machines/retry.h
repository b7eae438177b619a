// How often, and after how long, work that was struck by infrastructure faults is tried again.
#pragma once

#include "absl/time/time.h"
#include "scheduler/core/events.h"

namespace heddle::scheduler {

// Numbers that hold for every job.
struct DispatcherOptions {
  // Infrastructure faults before a candidate is LOST, a fetch fails, or an update is left out.
  // Import, propose and compile are tried for ever.
  int max_attempts = 3;
  int hopeless_after = 16;  // a task whose first so many trials all fail is given up
  absl::Duration retry_backoff = absl::Milliseconds(500);  // doubles with every fault in a row
  absl::Duration slot_backoff = absl::Milliseconds(250);   // doubles with every refusal in a row
  absl::Duration max_backoff =
      absl::Seconds(10);  // as long as a tracker takes to notice a dead worker
};

// How long to wait after so many faults in a row; the first wait is `first`.
absl::Duration Backoff(const DispatcherOptions& options, absl::Duration first, int failures);

// Whether the slot, not the work, is why a stage ended.
inline bool Blameless(const StageFinished& event) { return !event.started || event.interrupted; }

// Counts an infrastructure fault of a stage that is not about candidates, and sets when to try
// again. False: max_attempts are used up.
bool Retry(const DispatcherOptions& options, const StageFinished& event, absl::Time now,
           int* failures, absl::Time* not_before);

}  // namespace heddle::scheduler
