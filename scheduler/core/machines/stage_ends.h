// Applies the end of a stage to its job: takes the results in, counts faults, and queues again what
// was not done.
//
// One worker alone cannot fail a job. A user fault that it tells is confirmed by a second attempt of
// the stage on another worker (Placement::Avoided). If no other worker has a usable slot that suits,
// a second attempt on the same worker must do.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/candidate_flow.h"
#include "scheduler/core/machines/effects.h"
#include "scheduler/core/machines/retry.h"
#include "scheduler/core/machines/rounds.h"
#include "scheduler/core/machines/sharing.h"
#include "scheduler/core/machines/suspicions.h"
#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {

class StageEnds {
 public:
  // All outlive this.
  StageEnds(const DispatcherOptions* options, const SlotIndex* slots, Suspicions* suspicions,
            Rounds* rounds, Sharing* sharing, CandidateFlow* flow, Effects* effects)
      : options_(options),
        slots_(slots),
        suspicions_(suspicions),
        rounds_(rounds),
        sharing_(sharing),
        flow_(flow),
        effects_(effects) {}

  // `stage` belongs to the job's own course (it is no fetch) and is no longer live. The job is not
  // final.
  void Take(Job& job, const LiveStage& stage, const StageFinished& event);

 private:
  // Whether the user fault fails the job. If not, its worker is noted in Job.accusers.
  bool IsConfirmed(Job& job, const LiveStage& stage, const FaultInfo& fault);
  void EndImport(Job& job, const StageFinished& event);
  void EndPlan(Job& job, const StageFinished& event);
  // Begins a contest if the stage names a rival; if there can be none (contest.h), one of the chosen plan and the estimated
  // one; and else the estimated plan stays. `places`: of the job's tasks; those from `first` on are new.
  void Contend(Job& job, const Planned& planned, std::map<std::string, size_t> places,
               size_t first);
  void EndPropose(Job& job, TaskIndex task, const StageFinished& event);
  void EndMeasuring(Job& job, const LiveStage& stage, const StageFinished& event);
  void EndUpdate(Job& job, const LiveStage& stage, const StageFinished& event);
  void EndCompile(Job& job, const StageFinished& event);
  void EndCompare(Job& job, const StageFinished& event);
  // Takes the times of tasks whose imported record did not hold from what they have instead.
  void TakeNextBest(Job& job, const Compiled& compiled);
  // Calls Retry (retry.h) for the job or for one of its tasks.
  template <typename Of>
  bool TryAgain(const StageFinished& event, Of* of) {
    return Retry(*options_, event, effects_->now(), &of->stage_failures, &of->not_before);
  }

  const DispatcherOptions* const options_;
  const SlotIndex* const slots_;
  Suspicions* const suspicions_;
  Rounds* const rounds_;
  Sharing* const sharing_;
  CandidateFlow* const flow_;
  Effects* const effects_;
};

}  // namespace heddle::scheduler
