// Decides what a task does next: counts trials, begins and ends rounds, ends tuning.
//
// JobParams.pipeline_depth bounds the rounds of a job in flight. Tasks that wait begin rounds
// first. If none of them may begin one and the depth is set to more than 1, a task that is being
// measured may begin a further round. Its model then lacks the results of the rounds in flight, at
// most depth - 1 rounds.
//
// A task runs one propose or update at a time, on a single chain of search states. An update learns
// the oldest rounds as soon as they are completely measured. It precedes the next propose, unless
// the task would have nothing left to measure in the meantime. Each round is thus learned once, in
// order; if an update is skipped after faults, the next one learns its results too.
//
// In a survey (Tuning of job_state.h) each task has one round of one trial and learns nothing; then it
// waits for the plan stage. When a contest of plans is over (contest.h), tasks wait for the plan stage, too.
//
// Under gradient allocation, ChooseTask picks the task of the next round, which takes its trials
// from the job's pool (trial_budget.h). Tuning ends when nothing more may be measured, or by a stop
// (Job.stop). After a stop, rounds that are being measured are finished and nothing new begins.
#pragma once

#include <optional>
#include <string>

#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/effects.h"
#include "scheduler/core/machines/retry.h"
#include "scheduler/core/machines/sharing.h"
#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {

class Rounds {
 public:
  // All outlive this.
  Rounds(const DispatcherOptions* options, const SlotIndex* slots, Sharing* sharing,
         LiveStages* live, Effects* effects)
      : options_(options), slots_(slots), sharing_(sharing), live_(live), effects_(effects) {}

  // The candidate has its final outcome, reported by `stage`. median_ns counts only if it is OK.
  void FinishTrial(Job& job, TaskIndex task, CandidateId id, AttemptId stage, v1::Outcome outcome,
                   const std::string& message, double median_ns);
  // If the oldest rounds are completely measured and no propose or update runs, the task asks for
  // an update. It does not if nothing would be proposed after it.
  void Settle(Job& job, TaskIndex task);
  // The task proposes nothing more. It ends when its open candidates are measured.
  void Drain(Job& job, TaskIndex task);
  // The round has nothing to propose: others measured what it was granted. A task that was only being
  // surveyed waits for the plan, which may need more of it.
  void EndEmptyRound(Job& job, TaskIndex task);
  // Puts the task back into the queue, to wait for its next round.
  void Requeue(Job& job, TaskIndex task);

  // Advances the job after something happened to it: tuning may end, and tasks may begin rounds.
  void GoOn(Job& job);
  // A partner's trial has become a known record of a task of the job, which may end its tuning.
  void GoOnAfterSharedTrial(Job& job);
  // Ends waiting tasks that may not measure any more, for instance because of others' records.
  void FinishIdle(Job& job);
  // Whether the survey has used up its share of the job's time limit. Then no further task is
  // measured for it, and the plan stage predicts the times that lack.
  bool SurveySpent(const Job& job) const;
  // Whether a further survey follows a plan stage that asks for one, or does not.
  bool SurveysFurther(const Job& job, bool asked) const;
  // What follows a plan stage, unless the job was stopped: then it compiles.
  enum class After {
    kTune,  // the tasks of the settled plan are tuned and the others end, or a contest or a further survey follows
    kJudge,    // modules by the plan and by the estimated one are compared
    kCompile,  // the job is tuned
  };
  // The plan stage has ended, and tasks from `first` on are new.
  void EndPlanning(Job& job, size_t first, After after, bool survey_more);
  // The comparison after a contest has ended. The job is tuned by its plan if that stays, or else by the estimated one.
  void EndJudging(Job& job, bool stays);
  // The module is compiled. The job compares it with the default one if that was asked for and there
  // is a device; otherwise the job is done, or keeps the estimated plan (Judging).
  void EndCompiling(Job& job);
  // Ends the job in a final phase and cancels its running stages.
  void EndJob(Job& job, JobPhase phase);

  // Puts the tasks of a job loaded from a store into phases from which they can continue.
  void Restore(Job& job);

 private:
  void RestoreTask(Job& job, TaskIndex task);
  bool Over(const Job& job, const Task& task) const;  // whether it proposes nothing more
  void FinishTask(Job& job, TaskIndex task);

  // Beginning rounds.
  bool MoreDepth(const Job& job) const;
  bool WaitsForPlan(const Job& job) const;  // the contest is over
  void BeginRounds(Job& job);
  // Whether the task may begin a round: a waiting task or, with `ahead`, a further round of a task
  // that is being measured.
  bool MayBegin(const Job& job, TaskIndex task, bool ahead) const;
  std::vector<bool> Followed(const Job& job) const;  // waiting tasks with a partner in flight
  std::optional<TaskIndex> NextTask(const Job& job, bool ahead) const;
  std::optional<TaskIndex> NextByGain(const Job& job, bool ahead) const;
  void BeginRound(Job& job, TaskIndex task);

  // Ending tuning.
  void CheckStops(Job& job);
  void StopTuning(Job& job, std::string reason);
  void EndTuningIfDone(Job& job);
  // Ends the comparison of a job that has waited for a device for too long to make it.
  void CheckComparing(Job& job);
  // Ends tasks that the plan does not need, unless it is still to be chosen.
  void RetireUnused(Job& job);

  const DispatcherOptions* const options_;
  const SlotIndex* const slots_;
  Sharing* const sharing_;
  LiveStages* const live_;
  Effects* const effects_;
};

// Removes the task's rounds that end at or before `before`: they are no longer in flight.
void DropRounds(Task* task, CandidateId before);

}  // namespace heddle::scheduler
