// Decides which jobs need a new snapshot, and when. Not thread-safe: it belongs to the core thread.
#pragma once

#include <cstddef>
#include <set>

#include "absl/time/time.h"
#include "scheduler/core/ids.h"

namespace heddle::scheduler {

class PublishQueue {
 public:
  // Call when something happened to the job. Unfinished jobs are remembered, because an event of
  // one job may change what another shows.
  void Mark(JobId job, bool finished);
  // All unfinished jobs need new snapshots as well. They get them in turn, a few at a time.
  void MarkOthers() { others_due_ = unfinished_.size(); }

  bool empty() const { return marked_.empty() && others_due_ == 0; }
  // The time of the next snapshots, unless users wait for them.
  absl::Time next() const { return next_; }
  // Returns the jobs that need a snapshot. None before next(), unless `at_once`.
  std::set<JobId> Take(absl::Time now, bool at_once);

 private:
  std::set<JobId> marked_;
  std::set<JobId> unfinished_;
  JobId latest_;  // the last unfinished job that was taken in turn
  size_t others_due_ = 0;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace heddle::scheduler
