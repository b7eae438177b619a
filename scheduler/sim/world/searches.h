// What simulated searches find: the tasks of a model, the candidates of a task, and how long these
// truly take.
//
// Everything that a search learned, in order, goes into the hash of its state and from there into
// the traces it proposes. So a run that learned something else, or nothing, has other records.
#pragma once

#include <map>

#include "scheduler/core/events.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/stage_work.h"

namespace heddle::sim {

class Searches {
 public:
  // Both outlive this. In worlds that are not durable, results are without traces and states.
  Searches(const Scenario& scenario, Dice* dice, bool durable)
      : scenario_(scenario), dice_(dice), durable_(durable) {}

  v1::ImportResult Import(JobId job) const;
  Proposed Propose(JobId job, TaskIndex task, const StageWork& work);
  Updated Learn(const StageWork& work) const;
  Planned Plan(JobId job, const StageWork& work) const;
  Compiled Compile(const StageWork& work) const;
  Compared Compare(JobId job, const StageWork& work);

  // The measured median in nanoseconds that is typical of the candidate.
  double TrueMedian(JobId job, TaskIndex task, int ordinal) const;
  // Whether the candidate itself fails, and where.
  enum class Flaw { kNone, kBuild, kRun };
  Flaw FlawOf(JobId job, TaskIndex task, int ordinal) const;

 private:
  const SimJob& JobOf(JobId id) const { return scenario_.jobs[static_cast<size_t>(id.value - 1)]; }
  v1::TaskInfo InfoOf(JobId id, size_t index) const;
  const SimTask& TaskOf(JobId job, TaskIndex task) const {
    return JobOf(job).tasks[static_cast<size_t>(task.value)];
  }
  bool Broken() { return scenario_.faults.broken > 0 && dice_->Likely(scenario_.faults.broken); }

  const Scenario& scenario_;
  Dice* const dice_;
  const bool durable_;
  std::map<JobId, int> compared_;  // comparisons so far, where their number is given
};

}  // namespace heddle::sim
