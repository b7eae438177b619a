#include "scheduler/core/job_state.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace heddle::scheduler {

v1::StageKind StageOf(const JobPhase& phase) {
  if (Is<Importing>(phase)) return v1::STAGE_IMPORT;
  if (Is<Planning>(phase)) return v1::STAGE_PLAN;
  if (Is<Compiling>(phase)) return v1::STAGE_COMPILE;
  if (Is<Comparing>(phase)) return v1::STAGE_COMPARE;
  return v1::STAGE_UNSPECIFIED;
}

std::string StageName(v1::StageKind kind) {
  // "STAGE_PROFILE" without its prefix.
  return absl::AsciiStrToLower(v1::StageKind_Name(kind).substr(6));
}

bool WillPropose(const TaskPhase& phase) {
  const auto* wants = std::get_if<WantsUpdate>(&phase);
  const auto* updating = std::get_if<Updating>(&phase);
  return Is<WantsPropose>(phase) || (wants != nullptr && wants->then_propose) ||
         (updating != nullptr && updating->then_propose);
}

bool Contending(const Job& job) {
  return job.params.plan && std::any_of(job.tasks.begin(), job.tasks.end(),
                                        [](const Task& task) { return task.rival_weight > 0; });
}

bool Judging(const Job& job) {
  return (Is<Compiling>(job.phase) || Is<Comparing>(job.phase)) && Contending(job);
}

bool HasEstimatedTasks(const Job& job) {
  return std::all_of(job.tasks.begin(), job.tasks.end(),
                     [](const Task& task) { return task.weight == task.estimated_weight; });
}

void TakeEstimatedPlan(Job* job) {
  job->has_estimated_plan = true;
  for (Task& task : job->tasks) {
    task.weight = task.estimated_weight;
    task.rival_weight = 0;
  }
}

Task MakeTask(const v1::TaskInfo& info, const TaskProgress& progress) {
  Task task;
  static_cast<TaskProgress&>(task) = progress;
  task.key = info.key();
  task.weight = std::max(0, info.weight());
  task.flops = info.flops();
  task.best_ns = progress.known.best_ns;
  AddToCurve(&task, progress.known.total, progress.known.best_ns);
  return task;
}

void CountTrial(Task* task, CandidateId candidate, bool valid, double median_ns,
                const std::string& message) {
  task->results[candidate] = valid ? median_ns : 0;
  ++task->trials;
  if (valid) return;
  ++task->failed;
  if (task->first_error.empty()) task->first_error = message;
}

absl::Duration Tuned(const Job& job, absl::Time now) {
  return job.tuned + (job.tuning_since ? now - *job.tuning_since : absl::ZeroDuration());
}

void StopClock(Job* job, absl::Time now) {
  job->tuned = Tuned(*job, now);
  job->tuning_since.reset();
}

bool HasUnbuilt(const Task& task) {
  return std::any_of(task.open.begin(), task.open.end(),
                     [](const auto& entry) { return Is<Unbuilt>(entry.second.where); });
}

int RoundsInFlight(const Task& task) {
  if (!InFlight(task)) return 0;
  const bool wanted = WillPropose(task.phase) || Is<Proposing>(task.phase);
  return std::max(1, static_cast<int>(task.rounds.size()) + (wanted ? 1 : 0));
}

int RoundsInFlight(const Job& job) {
  int rounds = 0;
  for (TaskIndex index : job.in_flight)
    rounds += RoundsInFlight(job.tasks[static_cast<size_t>(index.value)]);
  return rounds;
}

std::optional<CandidateId> MeasuredBefore(const Task& task) {
  std::optional<CandidateId> end;
  for (const Round& round : task.rounds) {
    if (round.open > 0) break;
    end = round.end;
  }
  return end;
}

std::deque<Round> MakeRounds(const std::vector<std::pair<CandidateId, bool>>& candidates, int batch,
                             bool several) {
  std::deque<Round> rounds;
  for (const auto& [id, open] : candidates) {
    if (rounds.empty() || (several && rounds.back().size >= batch))
      rounds.push_back({id, id, 0, 0});
    rounds.back().end = CandidateId{id.value + 1};
    ++rounds.back().size;
    rounds.back().open += open;
  }
  return rounds;
}

int PipelineDepth(const JobParams& params, int devices) {
  constexpr int kMinDepth = 2, kMaxDepth = 64;
  if (params.pipeline_depth > 0) return params.pipeline_depth;
  if (params.max_devices > 0) devices = std::min(devices, params.max_devices);
  return std::clamp(devices + 1, kMinDepth, kMaxDepth);
}

bool Plateaued(const JobParams& params, const Task& task) {
  return params.plateau > 0 && task.trials >= params.plateau &&
         OnPlateau(task.curve, task.known.total + task.trials, params.plateau);
}

void AddToCurve(Task* task, int trials, double ns) {
  // A smaller gain changes the last point, to keep the curve short.
  constexpr double kPoint = 0.999;
  if (ns <= 0 || (!task->curve.empty() && ns >= task->curve.back().best_ns)) return;
  if (!task->curve.empty() && ns > kPoint * task->curve.back().best_ns) {
    task->curve.back().best_ns = ns;
  } else {
    task->curve.push_back({trials, ns});
  }
}

void FoldResults(Task* task, std::optional<CandidateId> before) {
  int position = task->known.total + task->trials - static_cast<int>(task->results.size());
  while (!task->results.empty()) {
    const auto first = task->results.begin();
    if (before && first->first >= *before) return;
    AddToCurve(task, ++position, first->second);
    task->results.erase(first);
  }
}

}  // namespace heddle::scheduler
