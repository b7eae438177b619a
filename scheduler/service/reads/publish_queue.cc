#include "scheduler/service/reads/publish_queue.h"

#include <algorithm>
#include <utility>

namespace heddle::scheduler {
namespace {

// WatchJob promises at most ten updates a second.
constexpr absl::Duration kPublishEvery = absl::Milliseconds(50);
// Unfinished jobs per turn that are published although nothing happened to them. The limit keeps an
// event of one job from costing a look at thousands.
constexpr size_t kOthersAtATime = 32;

}  // namespace

void PublishQueue::Mark(JobId job, bool finished) {
  marked_.insert(job);
  if (finished) {
    unfinished_.erase(job);
  } else {
    unfinished_.insert(job);
  }
}

std::set<JobId> PublishQueue::Take(absl::Time now, bool at_once) {
  if (empty() || (!at_once && now < next_)) return {};
  next_ = now + kPublishEvery;
  others_due_ = std::min(others_due_, unfinished_.size());
  for (size_t i = 0; i < kOthersAtATime && others_due_ > 0; ++i, --others_due_) {
    auto next = unfinished_.upper_bound(latest_);
    if (next == unfinished_.end()) next = unfinished_.begin();
    latest_ = *next;
    marked_.insert(latest_);
  }
  return std::exchange(marked_, {});
}

}  // namespace heddle::scheduler
