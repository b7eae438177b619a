// What was in flight when the process ended goes on.
#include <limits>

#include "scheduler/core/dispatcher.h"

namespace heddle::scheduler {
void Dispatcher::RestoreTask(Job& job, TaskIndex index) {
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

void Dispatcher::Restore(Job job) {
  const JobId id = job.id;
  for (size_t i = 0; i < job.tasks.size(); ++i) RestoreTask(job, TaskIndex{static_cast<int>(i)});
  // A task whose update was left out (see EndUpdate) waits, but looks as if it wanted that update:
  // beyond the depth it waits again. So does one whose job has nothing left to grant.
  // Slots are not known yet: where these decide about the depth, every update is made.
  const int depth =
      job.params.pipeline_depth > 0 ? job.params.pipeline_depth : std::numeric_limits<int>::max();
  const bool spent = job.params.allocation == Allocation::kGradient && PoolLeft(job) <= 0;
  for (size_t i = 0; i < job.tasks.size(); ++i) {
    Task& task = job.tasks[i];
    const TaskIndex index{static_cast<int>(i)};
    if (Is<WantsUpdate>(task.phase) && task.open.empty()) {
      if (RoundsInFlight(job) < depth && !spent) {
        job.in_flight.push_back(index);
      } else {
        task.phase = Waiting{};
        task.rounds.clear();
      }
    }
    if (Is<Waiting>(task.phase)) job.queue.push_back(index);
  }
  Job& restored = jobs_[id] = std::move(job);
  EnterGroups(restored);
  Touch(id);
}

}  // namespace heddle::scheduler
