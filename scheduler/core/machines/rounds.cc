#include "scheduler/core/machines/rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/machines/contest.h"
#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {

void DropRounds(Task* task, CandidateId before) {
  while (!task->rounds.empty() && task->rounds.front().end <= before) task->rounds.pop_front();
}

namespace {

// The most that the surveys of a job with a time limit take of it, all together.
absl::Duration SurveyTime(const DispatcherOptions& options, const JobParams& params) {
  return params.time_limit * options.survey_share;
}

}  // namespace

// ---- ends of trials and rounds ----

void Rounds::FinishTrial(Job& job, TaskIndex index, CandidateId id, AttemptId stage,
                         v1::Outcome outcome, const std::string& message, double median_ns) {
  Task& task = job.tasks[index.value];
  const int attempt = std::min(task.open.at(id).attempts + 1, options_->max_attempts);
  const bool valid = outcome == v1::OUTCOME_OK;
  task.open.erase(id);
  CountTrial(&task, id, valid, median_ns, message);
  effects_->Emit(FinishCandidate{job.id, index, id, attempt, stage, outcome, message});
  sharing_->ShareTrial(job, index, valid, median_ns);
  auto round = std::find_if(task.rounds.begin(), task.rounds.end(),
                            [&](const Round& one) { return id < one.end; });
  --round->open;
  Settle(job, index);
}

bool Rounds::Over(const Job& job, const Task& task) const {
  const bool hopeless =
      task.valid() == 0 && task.known.valid == 0 && task.trials >= options_->hopeless_after;
  return hopeless || NothingLeft(job, task) || Plateaued(job.params, task) || !job.stop.empty();
}

void Rounds::Settle(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  const std::optional<CandidateId> before = MeasuredBefore(task);
  if (!before || Is<Proposing>(task.phase) || Is<Updating>(task.phase)) return;
  const bool granted = WillPropose(task.phase);
  FoldResults(&task, before);
  task.unlearned.own = true;
  if (job.params.time_limit != absl::InfiniteDuration())
    effects_->Emit(JobChanged{job.id});  // so that a restart knows the time used so far
  if (Over(job, task)) return Drain(job, index);
  // No round will use what it would learn, or nobody knows yet whether one will.
  if (Surveying(job) ||
      (!granted && IsGradient(job) && (PoolLeft(job, *options_) <= 0 || WaitsForPlan(job)))) {
    DropRounds(&task, *before);
    if (task.rounds.empty()) Requeue(job, index);
    return;
  }
  if (Is<WantsPropose>(task.phase) && task.open.empty()) return;  // the propose comes first
  if (Is<WantsUpdate>(task.phase)) return;                        // wanted already
  task.phase = WantsUpdate{granted};
  effects_->Emit(TaskChanged{job.id, index});
}

void Rounds::Drain(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (task.open.empty()) return FinishTask(job, index);
  DropRounds(&task, MeasuredBefore(task).value_or(CandidateId{}));
  task.phase = Measuring{};
  // Gives back what was granted but not proposed.
  if (IsGradient(job)) task.budget = Allowance(job, task);
  effects_->Emit(TaskChanged{job.id, index});
}

void Rounds::FinishTask(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  task.phase = Finished{};
  task.rounds.clear();
  if (IsGradient(job)) task.budget = task.trials;  // gives the rest to the other tasks
  std::erase(job.in_flight, index);
  std::erase(job.queue, index);
  sharing_->Leave(job, index);
  effects_->Emit(TaskChanged{job.id, index});
  EndTuningIfDone(job);
}

void Rounds::Requeue(Job& job, TaskIndex index) {
  job.tasks[index.value].phase = Waiting{};
  std::erase(job.in_flight, index);
  job.queue.push_back(index);
  sharing_->EndRounds(job, index);
  effects_->Emit(TaskChanged{job.id, index});
}

void Rounds::EndEmptyRound(Job& job, TaskIndex index) {
  const Task& task = job.tasks[index.value];
  if (!Surveying(job) || task.exhausted || !task.open.empty()) return Drain(job, index);
  Requeue(job, index);
  EndTuningIfDone(job);
}

// ---- beginnings of rounds ----

void Rounds::GoOn(Job& job) {
  if (Is<Comparing>(job.phase)) CheckComparing(job);
  if (!Is<Tuning>(job.phase)) return;
  EndTuningIfDone(job);
  BeginRounds(job);
  if (job.params.pipeline_depth <= 1) return;
  for (TaskIndex index : std::vector<TaskIndex>(job.in_flight)) {
    if (Is<Measuring>(job.tasks[index.value].phase)) Settle(job, index);
  }
}

void Rounds::GoOnAfterSharedTrial(Job& job) {
  EndTuningIfDone(job);
  if (Is<Tuning>(job.phase) && !job.paused) FinishIdle(job);
}

bool Rounds::MoreDepth(const Job& job) const {
  return RoundsInFlight(job) < PipelineDepth(job.params, slots_->Usable(job.lane));
}

bool Rounds::WaitsForPlan(const Job& job) const {
  return ContestOver(job, *options_, Tuned(job, effects_->now()));
}

// Tasks begin rounds while the pipeline has room and there is a device to measure on. Records are
// comparable only within one device key, so the first device that the job finds pins its device
// key, once the records of that key are known (RecordsFound). GPU jobs ask for no threads; their
// first rounds are built before there is a device. Workers without a GPU have nothing else to do
// for such a job, and a device that arrives finds code to run.
void Rounds::BeginRounds(Job& job) {
  if (!Is<Tuning>(job.phase) || job.paused) return;
  FinishIdle(job);
  if (!Is<Tuning>(job.phase)) return;
  const bool ahead = job.params.pipeline_depth > 1;
  const bool room = (ahead || !job.queue.empty()) && MoreDepth(job);
  const bool begun_without_device = job.params.device_key.empty() && !job.in_flight.empty();
  if (!room && !begun_without_device) return;
  const SlotInfo* device = slots_->First(job.lane);
  if (device == nullptr && job.params.threads != 0) return;
  if (job.params.device_key.empty() && device != nullptr && !device->device_key.empty()) {
    if (!std::exchange(job.finding, true)) effects_->Emit(FindRecords{job.id, device->device_key});
    return;
  }
  while (Is<Tuning>(job.phase) && MoreDepth(job) && !WaitsForPlan(job)) {
    std::optional<TaskIndex> next;
    if (!job.queue.empty()) next = NextTask(job, false);
    if (!next && ahead) next = NextTask(job, true);
    if (!next) return;
    BeginRound(job, *next);
  }
}

void Rounds::FinishIdle(Job& job) {
  std::vector<TaskIndex> idle, surveyed;
  for (TaskIndex index : job.queue) {
    if (NothingLeft(job, job.tasks[index.value])) idle.push_back(index);
  }
  for (TaskIndex index : job.in_flight) {
    const Task& task = job.tasks[index.value];
    const bool wants = Is<WantsPropose>(task.phase) || Is<WantsUpdate>(task.phase);
    if (wants && NothingLeft(job, task)) idle.push_back(index);
    if (wants && Surveying(job) && !task.exhausted && task.rounds.empty() && task.unproposed() <= 0)
      surveyed.push_back(index);
  }
  if (IsGradient(job) && job.in_flight.empty() && PoolLeft(job, *options_) <= 0 && !Contending(job))
    idle.assign(job.queue.begin(), job.queue.end());
  for (TaskIndex index : idle) Drain(job, index);
  for (TaskIndex index : surveyed) {
    if (Is<Tuning>(job.phase) && InFlight(job.tasks[index.value])) EndEmptyRound(job, index);
  }
}

// A task whose search lacks other results as well may not begin a round ahead. The rounds in flight
// thus bound how stale the model is.
bool Rounds::MayBegin(const Job& job, TaskIndex index, bool ahead) const {
  const Task& task = job.tasks[index.value];
  const bool may =
      ahead ? Is<Measuring>(task.phase) && !task.unlearned.any() : Is<Waiting>(task.phase);
  // What the task is worth to a gradient job says NextByGain.
  const bool unused = Surveying(job) ? Surveyed(job, task) || SurveySpent(job)
                                     : !IsGradient(job) && task.weight == 0;
  if (!may || unused) return false;
  if (ahead && (Over(job, task) || (!IsGradient(job) && task.unproposed() <= 0))) return false;
  return !sharing_->PartnerInFlight(job, index);
}

std::vector<bool> Rounds::Followed(const Job& job) const {
  std::vector<bool> followed(job.tasks.size());
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    followed[i] = Is<Waiting>(job.tasks[i].phase) &&
                  sharing_->PartnerInFlight(job, TaskIndex{static_cast<int>(i)});
  }
  return followed;
}

std::optional<TaskIndex> Rounds::NextTask(const Job& job, bool ahead) const {
  if (IsGradient(job)) return NextByGain(job, ahead);
  if (!ahead) {
    for (TaskIndex index : job.queue) {
      if (MayBegin(job, index, false)) return index;
    }
    return std::nullopt;
  }
  std::optional<TaskIndex> next;  // the task with the fewest rounds
  auto rounds = [&](TaskIndex index) { return job.tasks[index.value].rounds.size(); };
  for (TaskIndex index : job.in_flight) {
    if ((!next || rounds(*next) > rounds(index)) && MayBegin(job, index, true)) next = index;
  }
  return next;
}

std::optional<TaskIndex> Rounds::NextByGain(const Job& job, bool ahead) const {
  const std::vector<bool> followed = Followed(job);
  const int floor = TrialFloor(job), left = PoolLeft(job, *options_);
  const PlanChances chances = ChancesOf(job, *options_);
  std::vector<ChoiceTask> choices;
  choices.reserve(job.tasks.size());
  int given = 0;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    const int counted = task.known.total + task.trials;
    const double uses = ExpectedUses(task, chances);
    const bool may =
        uses > 0 && MayBegin(job, index, ahead) && GrantFor(job, index, floor, left, followed) > 0;
    choices.push_back({may, uses, task.flops, counted, task.curve,
                       task.trials > 0 ? task.device_ns / task.trials : 0});
    given += task.budget;
  }
  const std::optional<size_t> chosen =
      ChooseTask(choices, {job.params.batch, floor, given / std::max(1, job.params.batch)});
  if (!chosen) return std::nullopt;
  return TaskIndex{static_cast<int>(*chosen)};
}

void Rounds::BeginRound(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (IsGradient(job))
    task.budget += GrantFor(job, index, TrialFloor(job), PoolLeft(job, *options_), Followed(job));
  if (InFlight(task)) {
    task.phase = WantsPropose{};
    return;
  }
  sharing_->CatchUp(job, index);
  std::erase(job.queue, index);
  job.in_flight.push_back(index);
  // Earlier results may not be learned yet: after faults, or because no round was to use them.
  if (task.unlearned.known || task.unlearned.own) {
    task.phase = WantsUpdate{true};
  } else {
    task.phase = WantsPropose{};
  }
}

// ---- end of tuning ----

void Rounds::CheckStops(Job& job) {
  const JobParams& params = job.params;
  const absl::Time now = effects_->now();
  if (!job.paused && !job.tuning_since) {
    job.tuning_since = now;
    if (params.time_limit != absl::InfiniteDuration()) {
      effects_->WakeAt(job.id, now + (params.time_limit - job.tuned));
      if (Surveying(job) && !SurveySpent(job))
        effects_->WakeAt(job.id, now + (SurveyTime(*options_, params) - job.tuned));
      if (Contending(job))
        effects_->WakeAt(job.id, now + (params.time_limit * options_->contest_share - job.tuned));
    }
  }
  if (!job.stop.empty()) return;
  if (Tuned(job, now) >= params.time_limit) {
    return StopTuning(
        job, absl::StrCat("the time limit of ", absl::FormatDuration(params.time_limit), " is up"));
  }
  if (params.target_latency_ns <= 0 || job.tasks.empty()) return;
  double sum = 0;
  for (const Task& task : job.tasks) {
    if (task.weight > 0 && task.best_ns <= 0) return;
    sum += task.best_ns * task.weight;
  }
  if (sum <= params.target_latency_ns) {
    auto text = [](double ns) { return absl::FormatDuration(absl::Nanoseconds(std::ceil(ns))); };
    StopTuning(job, absl::StrCat("the target latency of ", text(params.target_latency_ns),
                                 " is reached: ", text(sum)));
  }
}

void Rounds::StopTuning(Job& job, std::string reason) {
  job.stop = std::move(reason);
  effects_->Emit(JobChanged{job.id});
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const TaskPhase& phase = job.tasks[i].phase;
    if (Is<Waiting>(phase) || Is<WantsPropose>(phase) || Is<WantsUpdate>(phase))
      Drain(job, TaskIndex{static_cast<int>(i)});
  }
}

void Rounds::EndTuningIfDone(Job& job) {
  if (!Is<Tuning>(job.phase)) return;
  CheckStops(job);
  if (!Is<Tuning>(job.phase)) return;
  bool any_valid = job.tasks.empty();
  int trials = 0, plateaus = 0;
  std::string error;
  // Whether another choice of the plan follows before the job compiles.
  const bool chooses_again = Surveying(job) || Contending(job);
  const bool contest_over = WaitsForPlan(job);
  const PlanChances chances = ChancesOf(job, *options_);
  for (const Task& task : job.tasks) {
    const bool waits =
        Is<Waiting>(task.phase) &&
        (Surveying(job) ? Surveyed(job, task) || SurveySpent(job)
                        : contest_over || (chooses_again && ExpectedUses(task, chances) == 0));
    if (!Is<Finished>(task.phase) && !waits) return;
    any_valid |= task.valid() > 0 || task.known.valid > 0;
    trials += task.trials;
    plateaus += Plateaued(job.params, task) && !NothingLeft(job, task);
    if (error.empty()) error = task.first_error;
  }
  // The default schedules can still be compiled.
  const bool stopped_first = !job.stop.empty() && trials == 0;
  const bool plans = job.params.plan && !job.tasks.empty() && (Surveying(job) || job.surveys > 0);
  if (!any_valid && !stopped_first && (!chooses_again || !job.stop.empty())) {
    FaultInfo fault{v1::FAULT_CANDIDATE,
                    absl::StrCat("no candidate of any task gave a valid measurement; the first "
                                 "error: ",
                                 error.empty() ? "the search proposed nothing" : error)};
    return EndJob(job, Failed{std::move(fault)});
  }
  if (job.stop.empty() && plateaus > 0 && !chooses_again &&
      (!IsGradient(job) || PoolLeft(job, *options_) > 0)) {
    job.stop = absl::StrCat("plateau: ", plateaus, " of ", job.tasks.size(),
                            " tasks gained no 1 % in ", job.params.plateau, " trials");
  }
  StopClock(&job, effects_->now());
  if (plans) {
    job.phase = Planning{};
  } else {
    job.phase = Compiling{};
    job.settled = true;
  }
  job.stage_failures = 0;
  effects_->Emit(JobChanged{job.id});
}

bool Rounds::SurveySpent(const Job& job) const {
  return job.params.time_limit != absl::InfiniteDuration() &&
         Tuned(job, effects_->now()) >= SurveyTime(*options_, job.params);
}

bool Rounds::SurveysFurther(const Job& job, bool asked) const {
  return asked && Surveying(job) && job.stop.empty() && !SurveySpent(job) &&
         job.surveys + 1 < options_->max_surveys;
}

void Rounds::EndPlanning(Job& job, size_t first, After after, bool survey_more) {
  const bool surveyed = Surveying(job);
  const bool tune = after != After::kCompile && job.stop.empty();
  const bool contending = Contending(job);
  job.settled = !SurveysFurther(job, survey_more);
  job.surveys += surveyed;
  job.stage_failures = 0;
  if (tune && after != After::kJudge) {
    job.phase = Tuning{};
  } else {
    job.phase = Compiling{};
  }
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    const bool begins = tune && (Surveying(job) || Uses(task, contending) > 0);
    if (i >= first && !begins) task.phase = Finished{};
    if (i >= first && begins) {
      task.unlearned.known = task.known.total > 0;
      job.queue.push_back(index);
    }
    effects_->Emit(TaskChanged{job.id, index});
  }
  sharing_->Join(job, first);
  RetireUnused(job);
  effects_->Emit(JobChanged{job.id});
}

void Rounds::RetireUnused(Job& job) {
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    task.budget = Allowance(job, task);
    if (Is<Finished>(task.phase) || Surveying(job) || Contending(job) || task.weight > 0) continue;
    task.phase = Finished{};
    std::erase(job.queue, TaskIndex{static_cast<int>(i)});
    sharing_->Leave(job, TaskIndex{static_cast<int>(i)});
  }
}

void Rounds::EndJudging(Job& job, bool stays) {
  if (!stays) TakeEstimatedPlan(&job);
  for (Task& task : job.tasks) task.rival_weight = 0;
  job.phase = Tuning{};
  job.stage_failures = 0;
  job.compare_before = absl::InfiniteFuture();
  RetireUnused(job);
  for (size_t i = 0; i < job.tasks.size(); ++i)
    effects_->Emit(TaskChanged{job.id, TaskIndex{static_cast<int>(i)}});
  effects_->Emit(JobChanged{job.id});
}

void Rounds::EndCompiling(Job& job) {
  const bool tuned = std::any_of(job.tasks.begin(), job.tasks.end(),
                                 [](const Task& task) { return task.best_ns > 0; });
  // What was compared before is compared again, also if no record is left after one did not hold.
  if (!Judging(job) && (!job.params.compare || (!tuned && job.compared == 0)))
    return EndJob(job, Done{});
  if (slots_->Count(job.lane) == 0) {
    if (Judging(job)) return EndJudging(job, false);
    job.not_compared = "there is no device for it now";
    return EndJob(job, Done{});
  }
  job.phase = Comparing{};
  job.stage_failures = 0;
  effects_->Emit(JobChanged{job.id});
}

void Rounds::CheckComparing(Job& job) {
  const absl::Time now = effects_->now();
  if (job.paused || job.live) {
    job.compare_before = absl::InfiniteFuture();
  } else if (job.compare_before == absl::InfiniteFuture()) {
    job.compare_before = now + options_->compare_wait;
    effects_->WakeAt(job.id, job.compare_before);
  } else if (now >= job.compare_before) {
    if (Judging(job)) return EndJudging(job, false);
    job.not_compared = absl::StrCat("no device was free for it within ",
                                    absl::FormatDuration(options_->compare_wait));
    EndJob(job, Done{});
  }
}

void Rounds::EndJob(Job& job, JobPhase phase) {
  StopClock(&job, effects_->now());
  job.phase = std::move(phase);
  job.paused.reset();
  sharing_->Leave(job);
  for (AttemptId id : job.stages) {
    LiveStage& stage = live_->at(id);
    if (stage.cancelled) continue;
    stage.cancelled = true;
    effects_->Emit(CancelStage{id});
  }
  effects_->Emit(JobChanged{job.id});
}

// ---- restart ----

void Rounds::RestoreTask(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (Is<Finished>(task.phase)) return;
  const int open = static_cast<int>(task.open.size());
  if (task.rounds.empty() && open > 0)
    task.rounds.push_back(
        {task.open.begin()->first, CandidateId{task.open.rbegin()->first.value + 1}, open, open});
  task.budget = Allowance(job, task);
  const bool over = NothingLeft(job, task) || !job.stop.empty();
  if (open == 0 && over) {
    task.phase = Finished{};
    task.rounds.clear();
  } else if (Is<Measuring>(task.phase) && open == 0) {
    task.phase = WantsUpdate{};
  } else if (Is<WantsUpdate>(task.phase) && over) {
    task.phase = Measuring{};
  }
  if (open > 0) job.in_flight.push_back(index);
}

void Rounds::Restore(Job& job) {
  for (size_t i = 0; i < job.tasks.size(); ++i) RestoreTask(job, TaskIndex{static_cast<int>(i)});
  // A task whose update was skipped after faults was waiting, but cannot be told from one that
  // wants its update. Such tasks update only within the pipeline depth and while the job has trials
  // to grant; the others wait. A depth that depends on the number of devices is not known yet,
  // since slots are not; then all of them update.
  const int depth =
      job.params.pipeline_depth > 0 ? job.params.pipeline_depth : std::numeric_limits<int>::max();
  const bool contending = Contending(job);
  const bool spent = Surveying(job) || !Is<Tuning>(job.phase) || WaitsForPlan(job) ||
                     (IsGradient(job) && PoolLeft(job, *options_) <= 0);
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    if (Is<WantsUpdate>(task.phase) && task.open.empty()) {
      if (RoundsInFlight(job) < depth && !spent && Uses(task, contending) > 0) {
        job.in_flight.push_back(index);
      } else {
        task.phase = Waiting{};
        task.rounds.clear();
      }
    }
    if (Is<Waiting>(task.phase)) job.queue.push_back(index);
  }
}

}  // namespace heddle::scheduler
