// Collects what a step has decided so far, and which jobs it must still look at. The machines of
// the dispatcher share one of these; none of them knows another's state.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/events.h"
#include "scheduler/core/ids.h"

namespace heddle::scheduler {

class Effects {
 public:
  void BeginStep(absl::Time now) {
    now_ = now;
    decisions_ = {};
  }
  Decisions EndStep() { return std::move(decisions_); }
  // The time of the running step.
  absl::Time now() const { return now_; }
  const std::vector<Order>& orders() const { return decisions_.orders; }

  // TaskChanged and JobChanged also touch the job.
  template <typename T>
  void Emit(T decision) {
    if constexpr (std::is_same_v<T, TaskChanged> || std::is_same_v<T, JobChanged>)
      Touch(decision.job);
    if constexpr (kIsOneOf<T, Change>) {
      decisions_.changes.emplace_back(std::in_place_type<T>, std::move(decision));
    } else {
      decisions_.orders.emplace_back(std::in_place_type<T>, std::move(decision));
    }
  }

  // Marks the job to be advanced at the end of this step: its tuning may end, rounds may begin, and
  // its ready stages are determined again. Every change to a job must touch it.
  void Touch(JobId job) { touched_.insert(job); }
  bool IsTouched(JobId job) const { return touched_.count(job) > 0; }
  // Takes the first touched job out of the set.
  std::optional<JobId> TakeTouched() {
    if (touched_.empty()) return std::nullopt;
    return touched_.extract(touched_.begin()).value();
  }

  // Records that a trial of another job has become a known record of a task of this one. This may
  // end the job's tuning. Nothing else of the job is looked at, so a trial shared by a thousand
  // jobs stays cheap.
  void EmitShared(TaskChanged change) {
    told_.insert(change.job);
    decisions_.changes.emplace_back(change);
  }
  std::set<JobId> TakeTold() { return std::exchange(told_, {}); }

  // Touches the job at `time`; NextWake is no later than that.
  void WakeAt(JobId job, absl::Time time) { wakes_.emplace(time, job); }
  void TouchWoken() {
    for (; !wakes_.empty() && wakes_.begin()->first <= now_; wakes_.erase(wakes_.begin()))
      Touch(wakes_.begin()->second);
  }
  absl::Time NextWake() const {
    return wakes_.empty() ? absl::InfiniteFuture() : wakes_.begin()->first;
  }

 private:
  absl::Time now_;
  Decisions decisions_;
  std::set<JobId> touched_, told_;
  std::set<std::pair<absl::Time, JobId>> wakes_;
};

}  // namespace heddle::scheduler
