#include "scheduler/core/dispatcher.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/machines/ready_stages.h"
#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {

Dispatcher::Dispatcher(std::unique_ptr<Policy> policy, Options options)
    : options_(options), policy_(std::move(policy)) {
  policy_->Attach({&forecast_, &placement_.ready(), &placement_.slot_index(), &live_});
}

// ---- one step: process the event, advance the jobs it touched, assign slots ----

Decisions Dispatcher::Step(const Event& event, absl::Time now) {
  effects_.BeginStep(now);
  placement_.slot_index().Advance(now);
  if (now >= suspicions_.next()) GiveBackAttempts();
  const Subject subject = SubjectOf(event);
  if (subject.job && !subject.streamed) effects_.Touch(*subject.job);
  std::visit([this](const auto& e) { On(e); }, event);
  effects_.TouchWoken();
  for (JobId job : placement_.ready().TakeExpired(now)) effects_.Touch(job);
  flow_.FeedShortQueues();
  Proceed(subject);
  GiveOutSlots();
  return effects_.EndStep();
}

Dispatcher::Subject Dispatcher::SubjectOf(const Event& event) const {
  Subject subject;
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.attempt; }) {
          const auto stage = live_.find(e.attempt);
          if (stage == live_.end()) return;
          subject = {stage->second.job, stage->second.task,
                     !std::is_same_v<std::decay_t<decltype(e)>, StageFinished>};
        } else if constexpr (requires { e.job; }) {
          subject.job = e.job;
        } else if constexpr (requires { e.fetch; }) {
          subject.job = fetches_.JobOf(e.fetch);
        }
      },
      event);
  return subject;
}

void Dispatcher::Proceed(const Subject& subject) {
  if (subject.streamed && !effects_.IsTouched(*subject.job)) {
    Job& job = jobs_.at(*subject.job);
    rounds_.GoOn(job);
    if (!effects_.IsTouched(job.id)) UpdateReady(job, false);
  }
  for (JobId id : effects_.TakeTold()) {
    Job& job = jobs_.at(id);
    if (!effects_.IsTouched(id) && Is<Tuning>(job.phase)) rounds_.GoOnAfterSharedTrial(job);
  }
  const SlotIndex& slots = placement_.slot_index();
  while (const std::optional<JobId> id = effects_.TakeTouched()) {
    const auto found = jobs_.find(*id);
    if (found == jobs_.end()) continue;
    Job& job = found->second;
    job.lane = placement_.slot_index().DeviceLane(job.params);
    job.build_lane = placement_.slot_index().BuildLane(job.params);
    rounds_.GoOn(job);
    if (job.final()) unfinished_.erase(*id);
    forecast_.SetSlots(job.lane, slots.Count(job.lane), slots.Displaced(job.lane));
    int left = TrialBudget(job, options_);
    for (const Task& task : job.tasks) left -= task.trials;
    forecast_.Refresh(job, job.lane, left, job.id == subject.job ? subject.task : std::nullopt);
    policy_->Changed(job);
    deadlines_.Check(
        job, [&] { return ExpectedEnd(job, effects_.now()); }, &effects_);
    UpdateReady(job, true);
  }
  for (JobId stale : policy_->TakeStale(effects_.now())) {
    if (const auto other = jobs_.find(stale); other != jobs_.end())
      UpdateReady(other->second, true);
  }
}

void Dispatcher::UpdateReady(const Job& job, bool rank_again) {
  const bool idle = IsIdle(job);
  artifact_room_.Count(job, idle, effects_.now());
  placement_.ready().Set(job,
                         ReadyStages(job, fetches_.Of(job.id), artifact_room_.For(idle), &effects_),
                         rank_again, policy_.get(), effects_.now());
}

// Builds begin to wait for room, or wait no longer.
void Dispatcher::NoteRoom() {
  const absl::Time now = effects_.now();
  for (std::vector<JobId> jobs; artifact_room_.TakeChange(now, &jobs); jobs.clear()) {
    for (JobId job : jobs) UpdateReady(jobs_.at(job), false);
    while (const std::optional<JobId> idle = artifact_room_.ToDrop(now)) {
      Job& job = jobs_.at(*idle);
      if (!IsIdle(job)) {  // any more
        UpdateReady(job, false);
        continue;
      }
      effects_.Emit(DropArtifacts{job.id, DropBuilt(job, artifact_room_.Excess())});
      UpdateReady(job, false);
    }
  }
}

// A candidate that is fed to a running stage no longer waits for a slot and reserves no cores.
// Slots are therefore assigned once more after feeding.
void Dispatcher::GiveOutSlots() {
  for (bool fed = true; fed;) {
    for (;;) {
      placement_.ready().TakeShares(policy_.get());
      // Nothing may start that the store cannot remember.
      if (!store_problem_.empty()) break;
      NoteRoom();
      const std::optional<Placement::Assignment> next = placement_.Next(*policy_, jobs_);
      if (!next) break;
      Start(*next);
    }
    const std::vector<JobId> jobs = flow_.FeedAndClose();
    for (JobId job : jobs) UpdateReady(jobs_.at(job), false);
    fed = !jobs.empty();
  }
}

void Dispatcher::Start(const Placement::Assignment& assignment) {
  const WorkItem& work = assignment.work;
  const SlotInfo& slot = *assignment.slot;
  const AttemptId attempt{next_attempt_++};
  StartStage start{work, attempt, slot.id};
  start.ready_since = assignment.ready_since;
  Job& job = jobs_.at(work.job);
  if (work.fetch) {
    fetches_.Started(*work.fetch, attempt);
  } else if (!work.task) {
    job.live = attempt;
  } else {
    Task& task = job.tasks[work.task->value];
    switch (work.kind) {
      case v1::STAGE_PROPOSE:
        task.phase = Proposing{attempt};
        start.count = std::min(job.params.batch, task.unproposed());
        break;
      case v1::STAGE_BUILD: {
        const int lane = SlotIndex::CpuLane(work.kind, job);
        const size_t share =
            LacksRoom(job) ? 1
                           : artifact_room_.Share(placement_.BuildShare(task, lane), IsIdle(job));
        start.candidates = Take<Unbuilt, Building>(task, share, attempt);
        break;
      }
      case v1::STAGE_PROFILE:
        start.candidates =
            Take<Built, Profiling>(task, placement_.ProfileShare(task, job.lane), attempt);
        start.before = task.rounds.back().end;
        task.profiles.insert(attempt);
        flow_.Note(work.job, *work.task);
        break;
      default:
        start.before = MeasuredBefore(task).value_or(
            task.rounds.empty() ? CandidateId{job.next_candidate} : task.rounds.front().first);
        task.phase = Updating{attempt, WillPropose(task.phase)};
        break;
    }
  }
  LiveStage stage;
  static_cast<StageWork&>(stage) = work;
  stage.before = start.before;
  stage.id = attempt;
  stage.slot = slot.id;
  stage.host = slot.host;
  stage.boot = slot.boot;
  stage.cores = slot.cores;
  stage.candidates.insert(start.candidates.begin(), start.candidates.end());
  stage.started = stage.unit_since = effects_.now();
  stage.worker_class = DurationModel::ClassId(
      absl::StrCat(slot.target, "|", slot.device_key, "|", slot.cores.size()));
  if (!work.fetch) job.stages.insert(attempt);
  placement_.StageStarted(assignment, job);
  const LiveStage& live = live_.emplace(attempt, std::move(stage)).first->second;
  running_on_[live.slot] = attempt;
  policy_->Started(work, job, live);
  effects_.Emit(std::move(start));
  UpdateReady(job, true);
}

// ---- requests ----

const Job* Dispatcher::FindJob(JobId id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

Job* Dispatcher::FindUnfinished(JobId id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() || found->second.final() ? nullptr : &found->second;
}

void Dispatcher::On(const JobSubmitted& event) {
  Job job;
  job.id = event.job;
  job.params = event.params;
  job.settled = !job.params.plan;
  const auto [place, fresh] = jobs_.emplace(event.job, std::move(job));
  if (fresh) unfinished_[event.job] = &place->second;
  effects_.Emit(JobChanged{event.job});
}

void Dispatcher::On(const PauseRequested& event) {
  Job* job = FindUnfinished(event.job);
  if (job == nullptr) return;
  job->paused = event.reason;
  StopClock(job, effects_.now());
  sharing_.TouchAll(*job);
  effects_.Emit(JobChanged{event.job});
}

void Dispatcher::On(const ResumeRequested& event) {
  Job* job = FindUnfinished(event.job);
  if (job == nullptr) return;
  job->paused.reset();
  effects_.Emit(JobChanged{event.job});
}

void Dispatcher::On(const CancelRequested& event) {
  Job* job = FindUnfinished(event.job);
  if (job != nullptr) rounds_.EndJob(*job, Cancelled{event.reason});
}

void Dispatcher::On(const PriorityRequested& event) {
  Job* job = FindUnfinished(event.job);
  if (job == nullptr) return;
  job->params.priority = event.priority;
  effects_.Emit(JobChanged{event.job});
}

void Dispatcher::On(const FetchRequested& event) {
  fetches_.Request(event, FindJob(event.job), &effects_);
}

void Dispatcher::On(const FetchAbandoned& event) {
  const std::optional<AttemptId> live = fetches_.Abandon(event.fetch);
  if (!live) return;
  live_.at(*live).cancelled = true;
  effects_.Emit(CancelStage{*live});
}

// ---- slots and records ----

// Touches only jobs that the changed lanes matter to: their rounds may begin, their end is estimated anew, or they
// become idle or active. With thousands of jobs and workers, touching all jobs would take longer than the time between
// two changes.
void Dispatcher::On(const SlotsChanged& event) {
  const SlotIndex& slots = placement_.slot_index();
  const std::vector<SlotIndex::LaneFigures> before = slots.Figures();
  if (!placement_.TakeSlots(event, effects_.now())) return;
  GiveBackAttempts();
  const std::vector<SlotIndex::LaneFigures> after = slots.Figures();
  std::vector<bool> changed(after.size());
  for (size_t lane = 0; lane < after.size(); ++lane) {
    changed[lane] = before[lane] != after[lane];
    forecast_.SetSlots(static_cast<int>(lane), after[lane].count, after[lane].displaced);
  }
  for (const auto& [id, unfinished] : unfinished_) {
    const Job& job = *unfinished;
    const auto lane = static_cast<size_t>(job.lane);
    const bool awaits_device =
        Is<Tuning>(job.phase) && (!job.queue.empty() || job.params.device_key.empty());
    const bool has_deadline = job.params.deadline != absl::InfiniteFuture();
    const bool idle_matters = artifact_room_.Tight() && !job.in_flight.empty();
    const bool device_matters = awaits_device || has_deadline || idle_matters;
    if ((device_matters && changed[lane]) || (has_deadline && changed[SlotIndex::kCpuLane])) {
      effects_.Touch(id);
    } else if ((before[lane].usable == 0) != (after[lane].usable == 0)) {
      artifact_room_.Count(job, IsIdle(job), effects_.now());
    }
  }
  RankAnew();
  CloseUnusable();
}

// Policies compute ranks from the work left and the number of slots. All ready work is ranked anew when the
// CPU slots have become a quarter more or fewer. To do so for each of thousands of workers would take too long.
void Dispatcher::RankAnew() {
  const int slots = placement_.slot_index().Count(SlotIndex::kCpuLane);
  if (4 * slots <= 5 * ranked_for_ && 5 * slots >= 4 * ranked_for_) return;
  ranked_for_ = slots;
  placement_.ready().ForEach([&](const WorkItem& work, absl::Time) { effects_.Touch(work.job); });
}

// To trials whose worker lives and had only been silent.
void Dispatcher::GiveBackAttempts() {
  for (const Suspicions::Suspect& cleared : suspicions_.TakeCleared(effects_.now())) {
    Job* job = FindUnfinished(cleared.job);
    const auto task = static_cast<size_t>(cleared.task.value);
    if (job == nullptr || task >= job->tasks.size()) continue;
    const auto open = job->tasks[task].open.find(cleared.candidate);
    if (open == job->tasks[task].open.end() || open->second.attempts == 0) continue;
    effects_.Emit(SetAttempts{job->id, cleared.candidate, --open->second.attempts});
  }
}

// What a stage on an unusable slot would still be given waits for another slot instead.
void Dispatcher::CloseUnusable() {
  std::set<SlotId> unusable;
  for (const SlotInfo& slot : placement_.slots()) {
    if (!slot.usable) unusable.insert(slot.id);
  }
  for (auto& [attempt, stage] : live_) {
    if (stage.kind == v1::STAGE_PROFILE && !stage.input_closed && unusable.count(stage.slot))
      flow_.Close(stage);
  }
}

void Dispatcher::On(const RecordsFound& event) {
  Job* job = FindUnfinished(event.job);
  if (job == nullptr || !job->finding) return;
  job->finding = false;
  JobParams pinned = job->params;
  pinned.device_key = event.device_key;
  const int lane = placement_.slot_index().DeviceLane(pinned);
  // The device has left; the job asks about the next one.
  if (placement_.slot_index().Count(lane) == 0) return;
  job->params.device_key = event.device_key;
  job->lane = lane;
  for (size_t i = 0; i < std::min(job->tasks.size(), event.known.size()); ++i) {
    if (!job->params.force && event.known[i].total > job->tasks[i].known.total)
      sharing_.TakeKnown(*job, TaskIndex{static_cast<int>(i)}, event.known[i]);
  }
  sharing_.Join(*job);
  sharing_.TouchAll(*job);  // tasks that turn out not to be its partners need not wait for it
  effects_.Emit(JobChanged{job->id});
}

// ---- stages ----

void Dispatcher::On(const CandidateStarted& event) {
  const auto stage = live_.find(event.attempt);
  if (stage == live_.end() || !stage->second.candidates.count(event.candidate)) return;
  stage->second.in_progress.insert(event.candidate);
  stage->second.unit_since = effects_.now();
}

LiveStage* Dispatcher::TakeAnswer(AttemptId attempt, v1::StageKind kind, CandidateId candidate) {
  const auto found = live_.find(attempt);
  if (found == live_.end() || found->second.cancelled) return nullptr;
  LiveStage& stage = found->second;
  if (stage.kind != kind || !stage.candidates.erase(candidate)) return nullptr;
  stage.in_progress.erase(candidate);
  ++stage.units;
  stage.busy += effects_.now() - stage.unit_since;
  stage.unit_since = effects_.now();
  return &stage;
}

void Dispatcher::On(const CandidateBuilt& event) {
  const LiveStage* stage = TakeAnswer(event.attempt, v1::STAGE_BUILD, event.candidate);
  if (stage == nullptr) return;
  Job& job = jobs_.at(stage->job);
  Task& task = job.tasks[stage->task->value];
  task.stage_failures = 0;
  flow_.Note(job.id, *stage->task);
  if (event.outcome == v1::OUTCOME_OK) {
    Candidate& built = task.open.at(event.candidate);
    built.where = Built{};
    built.artifact_bytes = event.artifact_bytes;
    artifact_room_.Observe(event.artifact_bytes);
  } else {
    rounds_.FinishTrial(job, *stage->task, event.candidate, event.attempt, event.outcome,
                        event.message, 0);
  }
}

void Dispatcher::On(const CandidateProfiled& event) {
  const LiveStage* stage = TakeAnswer(event.attempt, v1::STAGE_PROFILE, event.candidate);
  if (stage == nullptr) return;
  Job& job = jobs_.at(stage->job);
  Task& task = job.tasks[stage->task->value];
  task.stage_failures = 0;
  if (event.outcome == v1::OUTCOME_OK && event.median_ns > 0)
    task.best_ns = Faster(task.best_ns, event.median_ns);
  task.device_ns += event.device_ns;
  rounds_.FinishTrial(job, *stage->task, event.candidate, event.attempt, event.outcome,
                      event.message, event.median_ns);
}

// Applies the end of the stage to its job first. Then the slot is freed, and the forecast and the
// policy are told.
void Dispatcher::On(const StageFinished& event) {
  const auto found = live_.find(event.attempt);
  if (found == live_.end()) return;
  const LiveStage stage = std::move(found->second);
  live_.erase(found);
  running_on_.erase(stage.slot);
  Job& job = jobs_.at(stage.job);
  if (stage.fetch) {
    fetches_.StageEnded(*stage.fetch, event, options_, &effects_);
  } else {
    job.stages.erase(stage.id);
    if (stage.task) job.tasks[stage.task->value].profiles.erase(stage.id);
    if (job.live == stage.id) job.live.reset();
    if (!job.final()) stage_ends_.Take(job, stage, event);
  }
  const absl::Time now = effects_.now();
  placement_.StageEnded(stage, event, options_, now);
  const bool streams = stage.kind == v1::STAGE_BUILD || stage.kind == v1::STAGE_PROFILE;
  if (event.fault.kind == v1::FAULT_NONE && !Blameless(event) && (!streams || stage.units > 0))
    forecast_.Observe(stage, job, streams ? stage.busy / stage.units : now - stage.started);
  policy_->Ended(stage, job, now);
}

// ---- questions ----

absl::Time Dispatcher::NextWake(absl::Time now) const {
  // Nothing is dropped while the store takes nothing (GiveOutSlots).
  const absl::Time drop =
      store_problem_.empty() ? artifact_room_.NextDrop() : absl::InfiniteFuture();
  return std::max(now, std::min({effects_.NextWake(), placement_.slot_index().NextWake(),
                                 placement_.ready().NextStart(), drop}));
}

std::vector<WorkItem> Dispatcher::ReadyWork() const {
  // Nothing may start that the store cannot remember.
  return store_problem_.empty() ? placement_.ready().All(*policy_) : std::vector<WorkItem>();
}

bool Dispatcher::Suits(const SlotInfo& slot, const WorkItem& work) const {
  const Job& job = jobs_.at(work.job);
  if (!SlotIndex::Suits(slot, work.kind, job.params)) return false;
  const std::string* avoided = placement_.Avoided(job, work);
  return avoided == nullptr || slot.id.worker != *avoided;
}

Dispatcher::SuitingSlots Dispatcher::SlotsFor(const WorkItem& work) const {
  const Job& job = jobs_.at(work.job);
  SuitingSlots found;
  if (placement_.Avoided(job, work) == nullptr) {
    const int lane = SlotIndex::LaneOf(work.kind, job);
    found.free = tracker_problem().empty() && placement_.slot_index().AnyFree(lane);
    found.one = placement_.slot_index().First(lane);
    return found;
  }
  for (const SlotInfo& slot : slots()) {
    if (!Suits(slot, work)) continue;
    found.free |= SlotFree(slot);
    if (found.one == nullptr || (slot.usable && !found.one->usable)) found.one = &slot;
  }
  return found;
}

const LiveStage* Dispatcher::StageOn(const SlotId& slot) const {
  const auto running = running_on_.find(slot);
  return running == running_on_.end() ? nullptr : &live_.at(running->second);
}

absl::Time Dispatcher::ExpectedEnd(const Job& job, absl::Time now) const {
  if (job.paused) return absl::InfiniteFuture();
  // While the tracker does not answer, it is unknown whether there is a device.
  const bool no_device = Is<Tuning>(job.phase) && tracker_problem().empty() &&
                         placement_.slot_index().Count(job.lane) == 0;
  if (no_device) return absl::InfiniteFuture();
  const absl::Time measured = forecast_.Finish(job, policy_->HonoursDeadlines(), now);
  const absl::Duration left = job.params.time_limit - Tuned(job, now);
  if (left == absl::InfiniteDuration()) return measured;
  // Candidates in flight when the time limit is reached are still built and measured. Their number
  // is assumed to be the same then as now.
  return std::min(measured, now + std::max(absl::ZeroDuration(), left) +
                                forecast_.InFlight(job, job.lane) +
                                forecast_.Stage(job, v1::STAGE_COMPILE, std::nullopt, 1));
}

// ---- restart ----

void Dispatcher::Restore(Job job) {
  const JobId id = job.id;
  rounds_.Restore(job);
  Job& restored = jobs_[id] = std::move(job);
  if (!restored.final()) unfinished_[id] = &restored;
  sharing_.Enter(restored);
  effects_.Touch(id);
}

bool Dispatcher::Forget(JobId id) {
  const Job* job = FindJob(id);
  if (job == nullptr || !job->final() || !fetches_.Of(id).empty()) return false;
  for (const auto& [attempt, stage] : live_) {
    if (stage.job == id) return false;
  }
  jobs_.erase(id);
  return true;
}

}  // namespace heddle::scheduler
