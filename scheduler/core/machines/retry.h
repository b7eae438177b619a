// How often, and after what pause, work is tried again after infrastructure faults.
#pragma once

#include "absl/time/time.h"
#include "scheduler/core/events.h"

namespace heddle::scheduler {

// Limits that are the same for all jobs.
struct DispatcherOptions {
  // Infrastructure faults after which a candidate is LOST, a fetch fails, or an update, a plan stage or
  // a comparison is skipped. Import, propose and compile are retried without limit.
  int max_attempts = 3;
  // A candidate is LOST, too, when so many stages were interrupted while they worked on it: a trial that keeps its worker
  // from renewing a lease is not tried for ever. Far above what stops of busy machines do to one trial (nemesis_test).
  int max_interruptions = 100;
  int max_surveys = 2;        // of a job; then its plan is settled
  double survey_share = 0.1;  // of a job's time limit: after it, surveys measure no further task
  // Plans are tuned side by side until the best times of all but one sum to more than contest_clear times those of
  // that one, or until this share of the job's trials or time is used (contest.h). contest_clear is over 1. The floor of trials leaves
  // about a tenth open: 16 trials a task gain 4 % in the mean (docs/benchmarks.md), and up to 30 %.
  double contest_clear = 1.1;
  double contest_share = 0.5;
  // The plan that a contest chose pays at most this share of its pool for trials of tasks that it does not have
  // (trial_budget.h).
  double losers_share = 0.5;
  // Of code that is built and not measured yet (artifact_room.h).
  int64_t max_artifact_bytes = int64_t{1} << 30;
  // So long the code of a job that is paused or has no usable device is kept in any case (artifact_room.h). A worker that
  // starts anew, or whose host does, is mostly back by then.
  absl::Duration idle_code_grace = absl::Seconds(30);
  int hopeless_after = 16;  // a task ends after this many trials if nothing valid is known
  absl::Duration compare_wait = absl::Minutes(10);  // for a device; then the job ends without
  absl::Duration retry_backoff = absl::Milliseconds(500);  // doubles with each fault in a row
  absl::Duration slot_backoff = absl::Milliseconds(250);   // doubles with each refusal in a row
  absl::Duration max_backoff =
      absl::Seconds(10);  // as long as a tracker takes to notice a dead worker
};

// The pause after `failures` earlier faults in a row: `first`, doubled for each of them, at most
// max_backoff.
absl::Duration Backoff(const DispatcherOptions& options, absl::Duration first, int failures);

// Whether the slot, and not the work, is the reason why a stage ended.
inline bool Blameless(const StageFinished& event) { return !event.started || event.interrupted; }

// Counts an infrastructure fault and sets the time of the next attempt. A fault of the slot costs
// the work nothing; a silence counts, since a stage may be what ends its worker, but the next attempt
// need not wait. Returns false if max_attempts are used up. For what candidates pay, see suspicions.h.
bool Retry(const DispatcherOptions& options, const StageFinished& event, absl::Time now,
           int* failures, absl::Time* not_before);

}  // namespace heddle::scheduler
