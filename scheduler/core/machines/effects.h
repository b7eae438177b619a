// What a step has decided so far, and which jobs it has to look at again. The machines of the
// dispatcher share one of these; none of them knows another's state.
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
  // Of the running step.
  absl::Time now() const { return now_; }
  const std::vector<Order>& orders() const { return decisions_.orders; }

  // A change of a task or of a job touches that job.
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

  // The job goes on at the end of this step: its tuning may end, rounds may begin, and its ready
  // stages are found anew. Whatever changes a job touches it.
  void Touch(JobId job) { touched_.insert(job); }
  bool IsTouched(JobId job) const { return touched_.count(job) > 0; }
  // The first touched job, which is touched no longer.
  std::optional<JobId> TakeTouched() {
    if (touched_.empty()) return std::nullopt;
    return touched_.extract(touched_.begin()).value();
  }

  // A trial of another job became a known record of a task of this one. That may end its tuning;
  // nothing else of it is looked at, so that a trial shared by a thousand jobs stays cheap.
  void EmitShared(TaskChanged change) {
    told_.insert(change.job);
    decisions_.changes.emplace_back(change);
  }
  std::set<JobId> TakeTold() { return std::exchange(told_, {}); }

  // Touches the job at `time`; NextWake comes no later than that.
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
