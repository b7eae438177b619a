// The course of a task between its stages: trials counted, rounds ended and begun, and the ends of
// tuning.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/dispatcher.h"

namespace heddle::scheduler {
namespace {

template <typename Phase, typename Variant>
bool Is(const Variant& phase) {
  return std::holds_alternative<Phase>(phase);
}

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

// Trials a waiting task of a gradient job may be granted now: a round, less what is kept for tasks
// under the floor and for those whose partner is in flight. `left`: not granted to any task yet.
int GrantOf(const Job& job, size_t index, int floor, int left, const std::vector<bool>& followed) {
  const Task& task = job.tasks[index];
  if (!Is<Waiting>(task.phase) || followed[index]) return 0;
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
  const int begun = task.trials + static_cast<int>(task.round.size());
  if (Gradient(job)) return begun;
  return std::max(begun, job.params.trials_per_task - Reused(job.params, task));
}

bool Dispatcher::NothingLeft(const Job& job, const Task& task) {
  if (task.exhausted) return true;
  const int counted = Reused(job.params, task) + task.trials;
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
  const int attempt = std::min(task.round.at(id).attempts + 1, options_.max_attempts);
  const bool valid = outcome == v1::OUTCOME_OK;
  task.round.erase(id);
  task.results[id] = valid ? median_ns : 0;
  ++task.trials;
  if (!valid) {
    ++task.failed;
    if (task.first_error.empty()) task.first_error = message;
  }
  Emit(FinishCandidate{job.id, index, id, attempt, stage, outcome, message});
  ShareTrial(job, index, valid, median_ns);
  if (task.round.empty()) EndRound(job, index);
}

void Dispatcher::EndRound(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  FoldResults(&task, std::nullopt);
  task.unlearned = true;
  if (job.params.time_limit != absl::InfiniteDuration())
    Emit(JobChanged{job.id});  // so that a restart knows the time used so far
  const bool hopeless =
      task.valid() == 0 && task.known_valid == 0 && task.trials >= options_.hopeless_after;
  if (hopeless || NothingLeft(job, task) || Plateaued(job.params, task) || !job.stop.empty())
    return FinishTask(job, index);
  if (Gradient(job) && PoolLeft(job) <= 0) return Requeue(job, index);  // nothing to learn for
  task.phase = WantsUpdate{};
  Emit(TaskChanged{job.id, index});
}

void Dispatcher::FinishTask(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  task.phase = Finished{};
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
  TouchPartners(job);
  Emit(TaskChanged{job.id, index});
}

bool Dispatcher::MoreDepth(const Job& job) const {
  const int depth = PipelineDepth(job.params, slot_index_.Usable(job.lane));
  return job.in_flight.size() < static_cast<size_t>(depth);
}

// Lets tasks of the queue begin a round while the pipeline has room and there is a device to
// measure on. The first device the job finds pins its device key: records are comparable within one
// only. For GPUs (which ask for no threads) the first rounds are built before there is one: workers
// without a GPU have nothing else to do for such a job, and whoever brings one finds code to run.
void Dispatcher::Activate(Job& job) {
  if (!Is<Tuning>(job.phase) || job.paused) return;
  FinishIdle(job);
  if (!Is<Tuning>(job.phase)) return;
  const bool room = !job.queue.empty() && MoreDepth(job);
  if (!room && job.in_flight.empty()) return;
  const SlotInfo* device = slot_index_.First(job.lane);
  if (device == nullptr && job.params.threads != 0) return;
  if (device != nullptr && job.params.device_key.empty()) {
    job.params.device_key = device->device_key;
    job.lane = slot_index_.DeviceLane(job.params);
    JoinGroups(job);
    Emit(JobChanged{job.id});
    FinishIdle(job);
  }
  while (Is<Tuning>(job.phase) && !job.queue.empty() && MoreDepth(job)) {
    const std::optional<TaskIndex> next = NextTask(job);
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
  for (TaskIndex index : idle) FinishTask(job, index);
}

// Whose round begins next.
std::optional<TaskIndex> Dispatcher::NextTask(const Job& job) const {
  if (!Gradient(job)) {
    for (TaskIndex index : job.queue) {
      if (!PartnerInFlight(job, index)) return index;
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
    choices.push_back({GrantOf(job, i, floor, left, followed) > 0, static_cast<double>(task.weight),
                       task.flops, counted, task.curve,
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
      FinishTask(job, TaskIndex{static_cast<int>(i)});
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

// ---- restart ----

void Dispatcher::RestoreTask(Job& job, TaskIndex index) {
  Task& task = job.tasks[index.value];
  if (Is<Finished>(task.phase)) return;
  if (Is<Measuring>(task.phase) && task.round.empty()) task.phase = WantsUpdate{};
  task.budget = Allowance(job, task);
  task.round_size = static_cast<int>(task.round.size());
  if (task.round.empty() && (NothingLeft(job, task) || !job.stop.empty())) task.phase = Finished{};
  if (Is<Measuring>(task.phase)) job.in_flight.push_back(index);
}

void Dispatcher::Restore(Job job) {
  const JobId id = job.id;
  for (size_t i = 0; i < job.tasks.size(); ++i) RestoreTask(job, TaskIndex{static_cast<int>(i)});
  // A task whose update was left out (see EndUpdate) waits, but looks as if it wanted that update:
  // beyond the depth it waits again. So does one whose job has nothing left to grant.
  // Slots are not known yet: where these decide about the depth, every update is made.
  const size_t depth = job.params.pipeline_depth > 0
                           ? static_cast<size_t>(job.params.pipeline_depth)
                           : std::numeric_limits<size_t>::max();
  const bool spent = Gradient(job) && PoolLeft(job) <= 0;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    if (Is<WantsUpdate>(task.phase)) {
      if (job.in_flight.size() < depth && !spent) {
        job.in_flight.push_back(index);
      } else {
        task.phase = Waiting{};
      }
    }
    if (Is<Waiting>(task.phase)) job.queue.push_back(index);
  }
  Job& restored = jobs_[id] = std::move(job);
  EnterGroups(restored);
  Touch(id);
}

int PipelineDepth(const JobParams& params, int devices) {
  constexpr int kMinDepth = 2, kMaxDepth = 64;
  if (params.pipeline_depth > 0) return params.pipeline_depth;
  if (params.max_devices > 0) devices = std::min(devices, params.max_devices);
  return std::clamp(devices + 1, kMinDepth, kMaxDepth);
}

bool Plateaued(const JobParams& params, const Task& task) {
  return params.plateau > 0 && task.trials >= params.plateau &&
         OnPlateau(task.curve, task.known + task.trials, params.plateau);
}

void AddToCurve(Task* task, int trials, double ns) {
  constexpr double kPoint = 0.999;  // a smaller gain makes no point of its own: few are kept
  if (ns <= 0 || (!task->curve.empty() && ns >= task->curve.back().best_ns)) return;
  if (!task->curve.empty() && ns > kPoint * task->curve.back().best_ns) {
    task->curve.back().best_ns = ns;
  } else {
    task->curve.push_back({trials, ns});
  }
}

void FoldResults(Task* task, std::optional<CandidateId> before) {
  int position = task->known + task->trials - static_cast<int>(task->results.size());
  while (!task->results.empty()) {
    const auto first = task->results.begin();
    if (before && first->first >= *before) return;
    AddToCurve(task, ++position, first->second);
    task->results.erase(first);
  }
}

}  // namespace heddle::scheduler
