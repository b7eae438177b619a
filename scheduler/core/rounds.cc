// The course of a task between its stages: trials counted, rounds ended and begun, and the ends of
// tuning.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {
namespace {

int Reused(const JobParams& params, const Task& task) { return params.force ? 0 : task.known; }

bool Gradient(const Job& job) { return job.params.allocation == Allocation::kGradient; }

GradientBudget BudgetOf(const Job& job) {
  std::vector<int> known;
  for (const Task& task : job.tasks) known.push_back(Reused(job.params, task));
  return MakeGradientBudget(job.params.trials_per_task, job.params.batch, known);
}

// Which waiting tasks are in flight with a partner.
template <typename F>
std::vector<bool> PartnersInFlight(const Job& job, F in_flight) {
  std::vector<bool> followed(job.tasks.size());
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    followed[i] = Is<Waiting>(job.tasks[i].phase) && in_flight(TaskIndex{static_cast<int>(i)});
  }
  return followed;
}

// Trials a task of a gradient job may be granted now, if it may begin a round: a round, less what
// is kept for tasks under the floor and for those whose partner is in flight. `left`: not granted
// to any task yet.
int GrantOf(const Job& job, size_t index, int floor, int left, const std::vector<bool>& followed) {
  const Task& task = job.tasks[index];
  auto owed = [&](const Task& other, int up_to) {
    return std::max(0, up_to - Reused(job.params, other) - other.budget);
  };
  int kept = 0;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    if (i == index || Is<Finished>(job.tasks[i].phase)) continue;
    kept += owed(job.tasks[i], followed[i] ? job.params.trials_per_task : floor);
  }
  const int free = std::max(left - kept, std::min(left, owed(task, floor)));
  return std::min({job.params.batch, free, owed(task, GradientCap(job.params.trials_per_task))});
}

}  // namespace

// ---- what may be measured ----

int Dispatcher::TrialBudget(const JobParams& params, absl::Span<const int> known) {
  if (params.allocation == Allocation::kGradient)
    return MakeGradientBudget(params.trials_per_task, params.batch, known).total;
  int sum = 0;
  for (int records : known) sum += std::max(0, params.trials_per_task - records);
  return sum;
}

int Dispatcher::TrialBudget(const Job& job) {
  if (Gradient(job)) return BudgetOf(job).total;
  int sum = 0;
  for (const Task& task : job.tasks) sum += task.budget;
  return sum;
}

int Dispatcher::Allowance(const Job& job, const Task& task) {
  const int begun = task.trials + static_cast<int>(task.open.size());
  if (Gradient(job)) return begun;
  return std::max(begun, job.params.trials_per_task - Reused(job.params, task));
}

bool Dispatcher::NothingLeft(const Job& job, const Task& task) {
  if (task.exhausted) return true;
  const int counted = Reused(job.params, task) + task.trials + static_cast<int>(task.open.size());
  return counted >=
         (Gradient(job) ? GradientCap(job.params.trials_per_task) : job.params.trials_per_task);
}

int Dispatcher::PoolLeft(const Job& job) {
  int left = BudgetOf(job).total;
  for (const Task& task : job.tasks) left -= task.budget;
  return left;
}

// ---- rounds ----

void Dispatcher::FinishTrial(Job& job, TaskIndex index, CandidateId id, AttemptId stage,
                             v1::Outcome outcome, const std::string& message, double median_ns) {
  Task& task = job.tasks[index.value];
  const int attempt = std::min(task.open.at(id).attempts + 1, options_.max_attempts);
  const bool valid = outcome == v1::OUTCOME_OK;
  task.open.erase(id);
  task.results[id] = valid ? median_ns : 0;
  ++task.trials;
  if (!valid) {
    ++task.failed;
    if (task.first_error.empty()) task.first_error = message;
  }
  Emit(FinishCandidate{job.id, index, id, attempt, stage, outcome, message});
  ShareTrial(job, index, valid, median_ns);
  auto round = std::find_if(task.rounds.begin(), task.rounds.end(),
                            [&](const Round& one) { return id < one.end; });
  --round->open;
  EndRounds(job, index);
}

bool Dispatcher::Over(const Job& job, const Task& task) const {
  const bool hopeless =
      task.valid() == 0 && task.known_valid == 0 && task.trials >= options_.hopeless_after;
  return hopeless || NothingLeft(job, task) || Plateaued(job.params, task) || !job.stop.empty();
}

// Once the oldest rounds are measured, and no propose or update runs: an update, unless nothing
// would be proposed by it.
void Dispatcher::EndRounds(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  const bool granted = Is<WantsPropose>(task.phase) || task.update_first;
  const std::optional<CandidateId> before = MeasuredBefore(task);
  if (!before || Is<Proposing>(task.phase) || Is<Updating>(task.phase)) return;
  FoldResults(&task, before);
  task.unlearned = true;
  if (job.params.time_limit != absl::InfiniteDuration())
    Emit(JobChanged{job.id});  // so that a restart knows the time used so far
  if (Over(job, task)) return Drain(job, index);
  if (!granted && Gradient(job) && PoolLeft(job) <= 0) {  // nothing to learn for
    DropRounds(&task, *before);
    if (task.rounds.empty()) Requeue(job, index);
    return;
  }
  if (Is<WantsPropose>(task.phase) && task.open.empty()) return;  // that comes first
  task.update_first = granted;
  if (Is<WantsUpdate>(task.phase)) return;  // since an earlier trial
  task.phase = WantsUpdate{};
  Emit(TaskChanged{job.id, index});
}

void Dispatcher::DropRounds(Task* task, CandidateId before) {
  while (!task->rounds.empty() && task->rounds.front().end <= before) task->rounds.pop_front();
}

void Dispatcher::Drain(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (task.open.empty()) return FinishTask(job, index);
  DropRounds(&task, MeasuredBefore(task).value_or(CandidateId{}));
  task.update_first = false;
  task.phase = Measuring{};
  if (Gradient(job)) task.budget = Allowance(job, task);  // what was granted and not proposed
  Emit(TaskChanged{job.id, index});
}

void Dispatcher::FinishTask(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  task.phase = Finished{};
  task.rounds.clear();
  task.update_first = false;
  if (Gradient(job)) task.budget = task.trials;  // the rest is the others'
  std::erase(job.in_flight, index);
  std::erase(job.queue, index);
  LeaveGroup(job, index);
  Emit(TaskChanged{job.id, index});
  FinishTuningIfDone(job);
}

void Dispatcher::Requeue(Job& job, TaskIndex index) {
  job.tasks[index.value].phase = Waiting{};
  std::erase(job.in_flight, index);
  job.queue.push_back(index);
  TouchGroup(job, index);
  Emit(TaskChanged{job.id, index});
}

bool Dispatcher::MoreDepth(const Job& job) const {
  const int depth = PipelineDepth(job.params, slot_index_.Usable(job.lane));
  return RoundsInFlight(job) < depth;
}

// Lets tasks of the queue begin a round while the pipeline has room and there is a device to
// measure on. The first device the job finds pins its device key, as soon as it is known what is on
// record for that (RecordsFound): records are comparable within one only. For GPUs (which ask for
// no threads) the first rounds are built before there is one: workers without a GPU have nothing
// else to do for such a job, and whoever brings one finds code to run.
void Dispatcher::Activate(Job& job) {
  BeginRounds(job);
  if (job.params.pipeline_depth <= 1) return;
  for (TaskIndex index : std::vector<TaskIndex>(job.in_flight)) {
    if (Is<Measuring>(job.tasks[index.value].phase)) EndRounds(job, index);
  }
}

void Dispatcher::BeginRounds(Job& job) {
  if (!Is<Tuning>(job.phase) || job.paused) return;
  FinishIdle(job);
  if (!Is<Tuning>(job.phase)) return;
  const bool ahead = job.params.pipeline_depth > 1;
  const bool room = (ahead || !job.queue.empty()) && MoreDepth(job);
  const bool begun_without_device = job.params.device_key.empty() && !job.in_flight.empty();
  if (!room && !begun_without_device) return;
  const SlotInfo* device = slot_index_.First(job.lane);
  if (device == nullptr && job.params.threads != 0) return;
  if (job.params.device_key.empty() && device != nullptr && !device->device_key.empty()) {
    if (!std::exchange(job.finding, true)) Emit(FindRecords{job.id, device->device_key});
    return;
  }
  while (Is<Tuning>(job.phase) && MoreDepth(job)) {
    std::optional<TaskIndex> next;
    if (!job.queue.empty()) next = NextTask(job, false);
    if (!next && ahead) next = NextTask(job, true);
    if (!next) return;
    BeginRound(job, *next);
  }
}

// Whoever waits and may not measure any more, which others' records may bring about.
void Dispatcher::FinishIdle(Job& job) {
  std::vector<TaskIndex> idle;
  for (TaskIndex index : job.queue) {
    if (NothingLeft(job, job.tasks[index.value])) idle.push_back(index);
  }
  for (TaskIndex index : job.in_flight) {
    const Task& task = job.tasks[index.value];
    const bool wants = Is<WantsPropose>(task.phase) || Is<WantsUpdate>(task.phase);
    if (wants && NothingLeft(job, task)) idle.push_back(index);
  }
  if (Gradient(job) && job.in_flight.empty() && PoolLeft(job) <= 0)
    idle.assign(job.queue.begin(), job.queue.end());
  for (TaskIndex index : idle) Drain(job, index);
}

// Whether the task may begin a round: where it waits, or `ahead` of what it measures. Rounds ahead
// lack only results of rounds in flight, so that these bound how stale the model is.
bool Dispatcher::MayBegin(const Job& job, TaskIndex index, bool ahead) const {
  const Task& task = job.tasks[index.value];
  const bool learned = !task.unlearned && !task.behind && !task.warm_pending;
  if (!(ahead ? Is<Measuring>(task.phase) && learned : Is<Waiting>(task.phase))) return false;
  if (ahead && (Over(job, task) || (!Gradient(job) && task.unproposed() <= 0))) return false;
  return !PartnerInFlight(job, index);
}

// Whose round begins next.
std::optional<TaskIndex> Dispatcher::NextTask(const Job& job, bool ahead) const {
  if (!Gradient(job)) {
    std::optional<TaskIndex> next;
    auto rounds = [&](TaskIndex index) { return job.tasks[index.value].rounds.size(); };
    auto look = [&](TaskIndex index) {
      if (next && rounds(*next) <= rounds(index)) return;
      if (MayBegin(job, index, ahead)) next = index;
    };
    if (ahead) {
      for (TaskIndex index : job.in_flight) look(index);
      return next;
    }
    for (TaskIndex index : job.queue) {
      if (MayBegin(job, index, false)) return index;
    }
    return std::nullopt;
  }
  const std::vector<bool> followed =
      PartnersInFlight(job, [&](TaskIndex task) { return PartnerInFlight(job, task); });
  const int floor = BudgetOf(job).floor, left = PoolLeft(job);
  std::vector<ChoiceTask> choices;
  choices.reserve(job.tasks.size());
  int given = 0;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const Task& task = job.tasks[i];
    const int counted = task.known + task.trials;
    const bool may = MayBegin(job, TaskIndex{static_cast<int>(i)}, ahead) &&
                     GrantOf(job, i, floor, left, followed) > 0;
    choices.push_back({may, static_cast<double>(task.weight), task.flops, counted, task.curve,
                       task.trials > 0 ? task.device_ns / task.trials : 0});
    given += task.budget;
  }
  const std::optional<size_t> chosen =
      ChooseTask(choices, {job.params.batch, floor, given / std::max(1, job.params.batch)});
  if (!chosen) return std::nullopt;
  return TaskIndex{static_cast<int>(*chosen)};
}

int Dispatcher::Grant(const Job& job, TaskIndex index) const {
  return GrantOf(
      job, static_cast<size_t>(index.value), BudgetOf(job).floor, PoolLeft(job),
      PartnersInFlight(job, [this, &job](TaskIndex task) { return PartnerInFlight(job, task); }));
}

void Dispatcher::BeginRound(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (Gradient(job)) task.budget += Grant(job, index);
  if (InFlight(task)) {
    task.phase = WantsPropose{};
    return;
  }
  CatchUp(job, index);
  std::erase(job.queue, index);
  job.in_flight.push_back(index);
  // Results may have been left unlearned: after faults, or because nothing was left to learn for.
  task.update_first = task.warm_pending || task.unlearned;
  if (task.update_first) {
    task.phase = WantsUpdate{};
  } else {
    task.phase = WantsPropose{};
  }
}

// ---- ends of tuning ----

absl::Duration Dispatcher::Tuned(const Job& job, absl::Time now) {
  return job.tuned + (job.tuning_since ? now - *job.tuning_since : absl::ZeroDuration());
}

void Dispatcher::CheckStops(Job& job) {
  const JobParams& params = job.params;
  if (!job.paused && !job.tuning_since) {
    job.tuning_since = now_;
    if (params.time_limit != absl::InfiniteDuration())
      WakeAt(job.id, now_ + (params.time_limit - job.tuned));
  }
  if (!job.stop.empty()) return;
  if (Tuned(job, now_) >= params.time_limit) {
    return StopTuning(
        job, absl::StrCat("the time limit of ", absl::FormatDuration(params.time_limit), " is up"));
  }
  if (params.target_latency_ns <= 0 || job.tasks.empty()) return;
  double sum = 0;
  for (const Task& task : job.tasks) {
    if (task.best_ns <= 0) return;
    sum += task.best_ns * task.weight;
  }
  if (sum <= params.target_latency_ns) {
    auto text = [](double ns) { return absl::FormatDuration(absl::Nanoseconds(std::ceil(ns))); };
    StopTuning(job, absl::StrCat("the target latency of ", text(params.target_latency_ns),
                                 " is reached: ", text(sum)));
  }
}

void Dispatcher::StopTuning(Job& job, std::string reason) {
  job.stop = std::move(reason);
  Emit(JobChanged{job.id});
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    const TaskPhase& phase = job.tasks[i].phase;
    if (Is<Waiting>(phase) || Is<WantsPropose>(phase) || Is<WantsUpdate>(phase))
      Drain(job, TaskIndex{static_cast<int>(i)});
  }
}

void Dispatcher::FinishTuningIfDone(Job& job) {
  if (!Is<Tuning>(job.phase)) return;
  CheckStops(job);
  if (!Is<Tuning>(job.phase)) return;
  bool any_valid = job.tasks.empty();
  int trials = 0, plateaus = 0;
  std::string error;
  for (const Task& task : job.tasks) {
    if (!Is<Finished>(task.phase)) return;
    any_valid |= task.valid() > 0 || task.known_valid > 0;
    trials += task.trials;
    plateaus += Plateaued(job.params, task) && !NothingLeft(job, task);
    if (error.empty()) error = task.first_error;
  }
  const bool stopped_first = !job.stop.empty() && trials == 0;  // default schedules are left
  if (!any_valid && !stopped_first) {
    return Fail(
        job, {v1::FAULT_CANDIDATE,
              absl::StrCat("no candidate of any task gave a valid measurement; the first error: ",
                           error.empty() ? "the search proposed nothing" : error)});
  }
  if (job.stop.empty() && plateaus > 0 && (!Gradient(job) || PoolLeft(job) > 0)) {
    job.stop = absl::StrCat("plateau: ", plateaus, " of ", job.tasks.size(),
                            " tasks gained no 1 % in ", job.params.plateau, " trials");
  }
  job.tuned = Tuned(job, now_);
  job.tuning_since.reset();
  job.phase = Compiling{};
  job.stage_failures = 0;
  Emit(JobChanged{job.id});
}

}  // namespace heddle::scheduler
