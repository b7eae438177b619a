// What a task does next: trials are counted, rounds end and begin, tuning ends.
//
// JobParams.pipeline_depth bounds the job's rounds in flight; rounds of different tasks come first.
// Where no other task may begin one and the depth is set and over 1, a task that is being measured
// may begin a further round: it proposes by a model that lacks the results of the rounds in flight,
// that is of at most depth - 1 rounds. Propose and update of a task run one at a time, on one chain
// of search states. An update learns the oldest rounds as soon as they are measured as a whole, and
// comes before the next propose, unless nothing of the task would be left to measure meanwhile; so
// each round is learned once, in order. (The next update makes up for one that was given up after
// faults.)
//
// Under gradient allocation ChooseTask names the task of the next round, which takes its trials
// from the job's pool (trial_budget.h). Tuning ends when nothing may be measured any more, or by a
// stop (Job.stop): rounds that are being measured are finished, nothing new begins.
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

  // The candidate has its final outcome, given by `stage`; median_ns counts when it is OK.
  void FinishTrial(Job& job, TaskIndex task, CandidateId id, AttemptId stage, v1::Outcome outcome,
                   const std::string& message, double median_ns);
  // Where the oldest rounds are measured and no propose or update runs: the task wants an update,
  // unless nothing would be proposed by it.
  void Settle(Job& job, TaskIndex task);
  // The task proposes nothing more: what is being measured goes on, and the task ends with that.
  void Drain(Job& job, TaskIndex task);
  // The task waits for its next round.
  void Requeue(Job& job, TaskIndex task);

  // Something happened to the job: its tuning may end, and its tasks may begin rounds.
  void GoOn(Job& job);
  // A partner's trial became known to a task of the job: that may end its tuning.
  void GoOnAfterSharedTrial(Job& job);
  // Ends waiting tasks that may not measure any more, which others' records may bring about.
  void FinishIdle(Job& job);
  // The job ends, in a final phase: its running stages are cancelled.
  void EndJob(Job& job, JobPhase phase);

  // Brings the tasks of a job that was loaded from a store into phases from which they go on.
  void Restore(Job& job);

 private:
  void RestoreTask(Job& job, TaskIndex task);
  bool Over(const Job& job, const Task& task) const;  // nothing more is proposed
  void FinishTask(Job& job, TaskIndex task);

  // Beginning rounds.
  bool MoreDepth(const Job& job) const;
  void BeginRounds(Job& job);
  // Whether the task may begin a round: where it waits, or `ahead` of what it measures.
  bool MayBegin(const Job& job, TaskIndex task, bool ahead) const;
  std::vector<bool> Followed(const Job& job) const;  // waiting tasks with a partner in flight
  std::optional<TaskIndex> NextTask(const Job& job, bool ahead) const;
  std::optional<TaskIndex> NextByGain(const Job& job, bool ahead) const;
  void BeginRound(Job& job, TaskIndex task);

  // Ending tuning.
  void CheckStops(Job& job);
  void StopTuning(Job& job, std::string reason);
  void EndTuningIfDone(Job& job);

  const DispatcherOptions* const options_;
  const SlotIndex* const slots_;
  Sharing* const sharing_;
  LiveStages* const live_;
  Effects* const effects_;
};

// The oldest rounds of the task, before `before`, are no longer in flight.
void DropRounds(Task* task, CandidateId before);

}  // namespace heddle::scheduler
