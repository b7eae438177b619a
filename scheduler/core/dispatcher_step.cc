// One Step: the event is taken in, the jobs it touched go on, slots are given out.
#include <algorithm>
#include <utility>

#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {
namespace {

// A profile stage with so many candidates ahead does not run dry before the next answer.
constexpr size_t kReadyQueue = 2;

}  // namespace

Decisions Dispatcher::Step(const Event& event, absl::Time now) {
  now_ = now;
  decisions_ = {};
  slot_index_.Advance(now);
  TouchSubject(event);
  std::optional<LiveStage> ended;
  const auto* end = std::get_if<StageFinished>(&event);
  if (end != nullptr) {
    auto stage = live_.find(end->attempt);
    if (stage != live_.end()) ended = stage->second;
  }
  std::visit([this](const auto& e) { On(e); }, event);
  if (ended) AfterStage(*ended, *end);
  for (; !wakes_.empty() && wakes_.begin()->first <= now; wakes_.erase(wakes_.begin()))
    Touch(wakes_.begin()->second);
  for (JobId job : ready_.TakeExpired(now)) Touch(job);
  for (const auto& [job, task] : feeding_) FeedProfiles(jobs_.at(job), task, kReadyQueue);
  Proceed();
  // What is fed to a running stage waits for a slot no more, and keeps no cores from others.
  for (bool fed = true; fed;) {
    Schedule();
    const std::vector<Order>& orders = decisions_.orders;
    const auto given = static_cast<std::ptrdiff_t>(orders.size());
    CloseProfiles();
    fed = std::any_of(orders.begin() + given, orders.end(), [](const Order& order) {
      return std::holds_alternative<FeedProfile>(order);
    });
  }
  return std::move(decisions_);
}

void Dispatcher::TouchSubject(const Event& event) {
  streamed_.reset();
  subject_.reset();
  of_task_.reset();
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { e.attempt; }) {
          auto stage = live_.find(e.attempt);
          if (stage == live_.end()) return;
          subject_ = stage->second.job;
          of_task_ = stage->second.task;
          if constexpr (!std::is_same_v<std::decay_t<decltype(e)>, StageFinished>) {
            streamed_ = subject_;
          }
        } else if constexpr (requires { e.job; }) {
          subject_ = e.job;
        } else if constexpr (requires { e.fetch; }) {
          if (auto fetch = fetches_.find(e.fetch); fetch != fetches_.end())
            subject_ = fetch->second.job;
        }
      },
      event);
  if (subject_ && !streamed_) Touch(*subject_);
}

// The end of a stage, after what it meant for its job: the slot is free, something was learned.
void Dispatcher::AfterStage(const LiveStage& stage, const StageFinished& event) {
  slot_index_.Release(stage.slot, stage.host, stage.cores);
  const SlotTrouble& trouble = trouble_[stage.slot];
  slot_index_.BackOff(stage.slot,
                      trouble.not_before > now_ ? trouble.not_before : absl::InfinitePast());
  const Job& job = jobs_.at(stage.job);
  const bool streams = stage.kind == v1::STAGE_BUILD || stage.kind == v1::STAGE_PROFILE;
  if (event.fault.kind == v1::FAULT_NONE && !Blameless(event) && (!streams || stage.units > 0)) {
    forecast_.Observe(stage, job, streams ? stage.busy / stage.units : now_ - stage.started);
  }
  policy_->Ended(stage, job, now_);
}

// Lets every touched job go on; what that touches goes on as well.
void Dispatcher::Proceed() {
  if (streamed_ && !touched_.count(*streamed_)) {
    Job& job = jobs_.at(*streamed_);
    if (Is<Tuning>(job.phase)) {
      FinishTuningIfDone(job);
      Activate(job);
    }
    if (!touched_.count(job.id)) UpdateReady(job, false);
  }
  for (JobId id : std::exchange(told_, {})) {
    Job& job = jobs_.at(id);
    if (touched_.count(id) || !Is<Tuning>(job.phase)) continue;
    FinishTuningIfDone(job);
    if (Is<Tuning>(job.phase) && !job.paused) FinishIdle(job);
  }
  while (!touched_.empty()) {
    const JobId id = *touched_.begin();
    touched_.erase(touched_.begin());
    auto found = jobs_.find(id);
    if (found == jobs_.end()) continue;
    Job& job = found->second;
    job.lane = slot_index_.DeviceLane(job.params);
    if (Is<Tuning>(job.phase)) {
      FinishTuningIfDone(job);
      Activate(job);
    }
    forecast_.SetSlots(job.lane, slot_index_.Count(job.lane), slot_index_.Displaced(job.lane));
    int left = TrialBudget(job);
    for (const Task& task : job.tasks) left -= task.trials;
    forecast_.Refresh(job, job.lane, left, id == subject_ ? of_task_ : std::nullopt);
    policy_->Changed(job);
    CheckDeadline(job);
    UpdateReady(job, true);
  }
  for (JobId stale : policy_->TakeStale(now_)) {
    if (auto other = jobs_.find(stale); other != jobs_.end()) UpdateReady(other->second, true);
  }
}

absl::Time Dispatcher::ExpectedEnd(const Job& job, absl::Time now) const {
  if (job.paused) return absl::InfiniteFuture();
  // A tracker that does not answer says nothing about devices.
  const bool no_device =
      Is<Tuning>(job.phase) && tracker_problem_.empty() && slot_index_.Count(job.lane) == 0;
  if (no_device) return absl::InfiniteFuture();
  const absl::Time measured = forecast_.Finish(job, policy_->HonoursDeadlines(), now);
  const absl::Duration left = job.params.time_limit - Tuned(job, now);
  if (left == absl::InfiniteDuration()) return measured;
  // What is in flight when the time is up is still built and measured: about what is now.
  return std::min(measured, now + std::max(absl::ZeroDuration(), left) +
                                forecast_.InFlight(job, job.lane) +
                                forecast_.Stage(job, v1::STAGE_COMPILE, std::nullopt, 1));
}

absl::Time Dispatcher::EstimatedEnd(JobId job) const {
  const auto said = estimates_.find(job);
  return said == estimates_.end() ? absl::InfiniteFuture() : said->second.latest;
}

// Says when the deadline seems out of reach, or in reach again, or much farther than was said.
void Dispatcher::CheckDeadline(const Job& job) {
  if (job.params.deadline == absl::InfiniteFuture()) return;
  if (job.final()) {
    estimates_.erase(job.id);
    return;
  }
  constexpr absl::Duration kLeastLook = absl::Seconds(10);
  const absl::Time deadline = job.params.deadline;
  const bool over = now_ >= deadline;
  Estimate& said = estimates_[job.id];
  if (!over && said.look <= now_) {
    said.look = std::min(deadline, now_ + std::max(kLeastLook, (deadline - now_) / 8));
    WakeAt(job.id, said.look);
  }
  if (!over && (job.paused || Is<Importing>(job.phase))) return;
  if (!over && now_ < said.next) return WakeAt(job.id, said.next);
  const absl::Time finish = said.latest = ExpectedEnd(job, now_);
  const bool never = finish == absl::InfiniteFuture();
  // 10 % of what is left, so that an estimate that trembles about the deadline is told once.
  const absl::Duration margin = never ? absl::ZeroDuration() : (finish - now_) / 10;
  said.next = now_ + std::min(kLeastLook, margin / 10);
  const bool late = over || finish > deadline + (said.late ? -margin : margin);
  // Once it is over, only twice as late is news.
  const absl::Time said_before = over ? said.finish + (said.finish - deadline) : said.finish;
  const bool farther = late && said.late && finish > said_before + 2 * margin;
  // The first is always told: what was said before a restart may not hold any more.
  const bool other = (said.finish == absl::InfiniteFuture()) != never;
  if (said.told && late == said.late && !farther && !other) return;
  said.told = true, said.late = late, said.finish = finish;
  Emit(DeadlineEstimate{job.id, late, finish});
}

}  // namespace heddle::scheduler
