#include "scheduler/core/machines/deadlines.h"

#include <algorithm>

namespace heddle::scheduler {

absl::Time Deadlines::EstimatedEnd(JobId job) const {
  const auto said = estimates_.find(job);
  return said == estimates_.end() ? absl::InfiniteFuture() : said->second.latest;
}

void Deadlines::Check(const Job& job, const std::function<absl::Time()>& expected_end,
                      Effects* effects) {
  if (job.params.deadline == absl::InfiniteFuture()) return;
  if (job.final()) {
    estimates_.erase(job.id);
    return;
  }
  constexpr absl::Duration kLeastLook = absl::Seconds(10);
  const absl::Time now = effects->now(), deadline = job.params.deadline;
  const bool over = now >= deadline;
  Estimate& said = estimates_[job.id];
  if (!over && said.look <= now) {
    said.look = std::min(deadline, now + std::max(kLeastLook, (deadline - now) / 8));
    effects->WakeAt(job.id, said.look);
  }
  if (!over && (job.paused || Is<Importing>(job.phase))) return;
  if (!over && now < said.next) return effects->WakeAt(job.id, said.next);
  const absl::Time finish = said.latest = expected_end();
  const bool never = finish == absl::InfiniteFuture();
  // A change is material if it is at least 10 % of the time to the estimated end.
  const absl::Duration margin = never ? absl::ZeroDuration() : (finish - now) / 10;
  said.next = now + std::min(kLeastLook, margin / 10);
  const bool late = over || finish > deadline + (said.late ? -margin : margin);
  // After the deadline, a later end is reported only when the lateness has about doubled.
  const absl::Time said_before = over ? said.finish + (said.finish - deadline) : said.finish;
  const bool farther = late && said.late && finish > said_before + 2 * margin;
  // The first estimate is always reported: the one from before a restart may no longer hold.
  const bool other = (said.finish == absl::InfiniteFuture()) != never;
  if (said.told && late == said.late && !farther && !other) return;
  said.told = true, said.late = late, said.finish = finish;
  effects->Emit(DeadlineEstimate{job.id, late, finish});
}

}  // namespace heddle::scheduler
