// Which jobs need a new snapshot, and when. Not thread-safe: it belongs to the core thread.
#pragma once

#include <cstddef>
#include <set>

#include "absl/time/time.h"
#include "scheduler/core/ids.h"

namespace heddle::scheduler {

class PublishQueue {
 public:
  // Something happened to the job. Unfinished jobs are remembered: what one job does may be what
  // another waits for.
  void Mark(JobId job, bool finished);
  // The unfinished jobs need new snapshots as well, a few at a time, in turn.
  void MarkOthers() { others_due_ = unfinished_.size(); }

  bool empty() const { return marked_.empty() && others_due_ == 0; }
  // When the next snapshots may be made, unless users wait for them.
  absl::Time next() const { return next_; }
  // The jobs to show anew. None before next(), unless `at_once`.
  std::set<JobId> Take(absl::Time now, bool at_once);

 private:
  std::set<JobId> marked_;
  std::set<JobId> unfinished_;
  JobId latest_;  // the latest of the unfinished jobs that was taken in turn
  size_t others_due_ = 0;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace heddle::scheduler
