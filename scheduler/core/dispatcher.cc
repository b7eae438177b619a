#include "scheduler/core/dispatcher.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {
namespace {

// Whether something is being built that could be fed to the profile stage.
bool AnyBuilding(const Task& task, const LiveStage& profile) {
  return std::any_of(task.open.begin(), task.open.lower_bound(profile.before),
                     [](const auto& entry) { return Is<Building>(entry.second.where); });
}

void CountUnit(LiveStage* stage, absl::Time now) {
  ++stage->units;
  stage->busy += now - stage->unit_since;
  stage->unit_since = now;
}

}  // namespace

Dispatcher::Dispatcher(std::unique_ptr<Policy> policy, Options options)
    : options_(options), policy_(std::move(policy)) {
  policy_->Attach({&forecast_, &ready_, &slot_index_, &live_});
}

const Job* Dispatcher::FindJob(JobId id) const {
  auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

std::string Dispatcher::Refusal(const SlotId& slot) const {
  auto it = trouble_.find(slot);
  return it == trouble_.end() ? "" : it->second.refusal;
}

absl::Time Dispatcher::NextWake(absl::Time now) const {
  const absl::Time job = wakes_.empty() ? absl::InfiniteFuture() : wakes_.begin()->first;
  return std::max(now, std::min({job, slot_index_.NextWake(), ready_.NextStart()}));
}

// ---- requests ----

void Dispatcher::On(const JobSubmitted& event) {
  Job job;
  job.id = event.job;
  job.params = event.params;
  jobs_.emplace(event.job, std::move(job));
  Emit(JobChanged{event.job});
}

void Dispatcher::On(const SlotsChanged& event) { TakeSlots(event); }

void Dispatcher::On(const StoreBlocked& event) { store_problem_ = event.reason; }

void Dispatcher::On(const PauseRequested& event) {
  auto it = jobs_.find(event.job);
  if (it == jobs_.end() || it->second.final()) return;
  it->second.paused = true;
  it->second.pause_reason = event.reason;
  it->second.tuned = Tuned(it->second, now_);
  it->second.tuning_since.reset();
  TouchGroups(it->second);
  Emit(JobChanged{event.job});
}

void Dispatcher::On(const ResumeRequested& event) {
  auto it = jobs_.find(event.job);
  if (it == jobs_.end() || it->second.final()) return;
  it->second.paused = false;
  it->second.pause_reason.clear();
  Emit(JobChanged{event.job});
}

void Dispatcher::On(const CancelRequested& event) {
  auto it = jobs_.find(event.job);
  if (it == jobs_.end() || it->second.final()) return;
  EndJob(it->second, Cancelled{event.reason});
}

void Dispatcher::On(const FetchRequested& event) {
  const Job* job = FindJob(event.job);
  if (job == nullptr || Is<Importing>(job->phase) || Is<Failed>(job->phase)) {
    Emit(EndFetch{event.fetch, {v1::FAULT_USER, "the job has failed, or is not imported yet"}});
    return;
  }
  fetches_[event.fetch] = Fetch{event.fetch, event.job, std::nullopt, 0, absl::InfinitePast()};
}

void Dispatcher::On(const FetchAbandoned& event) {
  auto it = fetches_.find(event.fetch);
  if (it == fetches_.end()) return;
  if (it->second.live) {
    live_.at(*it->second.live).cancelled = true;
    Emit(CancelStage{*it->second.live});
  }
  fetches_.erase(it);
}

// ---- streams ----

void Dispatcher::On(const CandidateStarted& event) {
  auto stage = live_.find(event.attempt);
  if (stage == live_.end() || !stage->second.candidates.count(event.candidate)) return;
  stage->second.in_progress.insert(event.candidate);
  stage->second.unit_since = now_;
}

void Dispatcher::On(const CandidateBuilt& event) {
  auto found = live_.find(event.attempt);
  if (found == live_.end() || found->second.cancelled) return;
  LiveStage& stage = found->second;
  if (stage.kind != v1::STAGE_BUILD || !stage.candidates.erase(event.candidate)) return;
  stage.in_progress.erase(event.candidate);
  CountUnit(&stage, now_);
  Job& job = jobs_.at(stage.job);
  Task& task = job.tasks[stage.task->value];
  task.stage_failures = 0;
  feeding_.insert({job.id, *stage.task});
  if (event.outcome != v1::OUTCOME_OK) {
    FinishTrial(job, *stage.task, event.candidate, event.attempt, event.outcome, event.message, 0);
  } else {
    task.open.at(event.candidate).where = Built{};
  }
}

void Dispatcher::On(const CandidateProfiled& event) {
  auto found = live_.find(event.attempt);
  if (found == live_.end() || found->second.cancelled) return;
  LiveStage& stage = found->second;
  if (stage.kind != v1::STAGE_PROFILE || !stage.candidates.erase(event.candidate)) return;
  stage.in_progress.erase(event.candidate);
  CountUnit(&stage, now_);
  Job& job = jobs_.at(stage.job);
  Task& task = job.tasks[stage.task->value];
  task.stage_failures = 0;
  if (event.outcome == v1::OUTCOME_OK && event.median_ns > 0) {
    task.best_ns = task.best_ns > 0 ? std::min(task.best_ns, event.median_ns) : event.median_ns;
  }
  task.device_ns += event.device_ns;
  FinishTrial(job, *stage.task, event.candidate, event.attempt, event.outcome, event.message,
              event.median_ns);
}

// ---- profile stages ----

void Dispatcher::FeedProfiles(Job& job, TaskIndex index, size_t depth) {
  Task& task = job.tasks[index.value];
  std::vector<LiveStage*> open;
  for (AttemptId id : task.profiles) {
    LiveStage& stage = live_.at(id);
    if (!stage.input_closed && !stage.cancelled) open.push_back(&stage);
  }
  if (open.empty()) return;
  for (auto& [id, candidate] : task.open) {
    if (!Is<Built>(candidate.where)) continue;
    LiveStage* next = nullptr;
    for (LiveStage* stage : open) {
      const bool takes = id < stage->before;
      if (takes && (next == nullptr || stage->candidates.size() < next->candidates.size()))
        next = stage;
    }
    if (next == nullptr || next->candidates.size() >= depth) return;
    candidate.where = Profiling{next->id};
    if (next->candidates.empty()) next->unit_since = now_;
    next->candidates.insert(id);
    Emit(FeedProfile{next->id, job.id, id});
  }
}

void Dispatcher::CloseProfiles() {
  for (const auto& [id, index] : feeding_) {
    Job& job = jobs_.at(id);
    const size_t before = decisions_.orders.size();
    FeedProfiles(job, index, std::numeric_limits<size_t>::max());
    if (decisions_.orders.size() != before) UpdateReady(job, false);
    const Task& task = job.tasks[index.value];
    for (AttemptId attempt : task.profiles) {
      LiveStage& stage = live_.at(attempt);
      if (stage.input_closed || AnyBuilding(task, stage)) continue;
      stage.input_closed = true;
      Emit(CloseProfile{attempt});
    }
  }
  feeding_.clear();
}

void Dispatcher::EndJob(Job& job, JobPhase phase) {
  job.tuned = Tuned(job, now_);
  job.tuning_since.reset();
  job.phase = std::move(phase);
  job.paused = false;
  LeaveGroups(job);
  for (auto& [id, stage] : live_) {
    if (stage.job != job.id || stage.fetch || stage.cancelled) continue;
    stage.cancelled = true;
    Emit(CancelStage{id});
  }
  Emit(JobChanged{job.id});
}

void Dispatcher::Fail(Job& job, FaultInfo fault) { EndJob(job, Failed{std::move(fault)}); }

}  // namespace heddle::scheduler
