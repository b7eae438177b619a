// The decision core of the scheduler: Step(event, now) -> decisions. It has no clock, thread, I/O
// or randomness inside, so the same events give the same decisions. The simulation tests therefore
// drive the same class that runs in production.
//
// Read job_state.h and events.h first. The caller makes the changes durable, performs the orders
// and feeds back what happens. The environment may deliver events of a stage late, twice or not at
// all (late and repeated ones are ignored), end any stage at any time, and add or remove slots. It
// must end every started stage with exactly one StageFinished.
//
// Flow of a job: import -> per task, rounds of propose, build, profile, update -> compile.
//
// The dispatcher composes small machines, each with a state and a file of its own:
//   rounds.h          what a task does next, and when tuning ends
//   trial_budget.h    how many trials jobs and tasks may measure
//   sharing.h         tasks that several jobs have in common are tuned once
//   candidate_flow.h  candidates go from builds to measurements one by one
//   stage_ends.h      what the end of a stage means for its job
//   fetches.h         modules compiled on demand
//   artifact_room.h   how much built code may wait to be measured
//   ready_stages.h    which stages of a job could start now
//   placement.h       which work goes to which slot
//   deadlines.h       whether deadlines can be met
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/events.h"
#include "scheduler/core/forecast.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/machines/artifact_room.h"
#include "scheduler/core/machines/candidate_flow.h"
#include "scheduler/core/machines/deadlines.h"
#include "scheduler/core/machines/effects.h"
#include "scheduler/core/machines/fetches.h"
#include "scheduler/core/machines/placement.h"
#include "scheduler/core/machines/retry.h"
#include "scheduler/core/machines/rounds.h"
#include "scheduler/core/machines/sharing.h"
#include "scheduler/core/machines/stage_ends.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {

class Dispatcher {
 public:
  using Options = DispatcherOptions;
  explicit Dispatcher(std::unique_ptr<Policy> policy, Options options = {});
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  Decisions Step(const Event& event, absl::Time now);

  // Call before the first Step with each job of the store. None of its stages is live. Its tasks
  // have their rounds (open candidates are Unbuilt) and are in phase Measuring, WantsUpdate,
  // Waiting or Finished.
  void Restore(Job job);
  // Forgets a job that is over. False, and nothing is done, while a stage of it runs or somebody fetches a module of it.
  // FetchRequested needs it again (Restore); other events about it are without effect then.
  bool Forget(JobId id);
  void SetNextAttempt(AttemptId next) { next_attempt_ = next.value; }

  // When to send a Tick, not before `now`; InfiniteFuture if nothing waits for a time.
  absl::Time NextWake(absl::Time now) const;

  // When the job is expected to be done. InfiniteFuture while it is paused or there is no device
  // for it.
  absl::Time ExpectedEnd(const Job& job, absl::Time now) const;
  // The same, as last computed for the job's deadline (deadlines.h). It costs no look at all jobs.
  absl::Time EstimatedEnd(JobId job) const { return deadlines_.EstimatedEnd(job); }

  const Options& options() const { return options_; }
  const Job* FindJob(JobId id) const;
  const Jobs& jobs() const { return jobs_; }
  const LiveStages& live() const { return live_; }
  const std::vector<SlotInfo>& slots() const { return placement_.slots(); }
  const std::string& tracker_problem() const { return placement_.tracker_problem(); }
  const std::string& store_problem() const { return store_problem_; }
  const Forecast& forecast() const { return forecast_; }
  // Whether nothing of the job can be measured now: it is paused, or has no usable device.
  bool IsIdle(const Job& job) const {
    return job.paused || placement_.slot_index().Usable(job.lane) == 0;
  }
  // Bytes of code that is not measured yet, and whether the job's builds wait for that (artifact_room.h).
  int64_t artifact_bytes() const { return artifact_room_.bytes(); }
  bool LacksRoom(const Job& job) const {
    return artifact_room_.For(IsIdle(job)) != BuildRoom::kMany;
  }
  // Work that could run if a slot were free, as of the last Step, in the order of the policy.
  std::vector<WorkItem> ReadyWork() const;
  // Calls `look` with all work that waits for a slot, as of the last Step, and since when it waits. Work
  // that the policy holds back is included. In no order, so this is cheap.
  void ForEachWaiting(const std::function<void(const WorkItem&, absl::Time since)>& look) const {
    placement_.ready().ForEach(look);
  }
  // Whether a stage could start on that slot, as of the last Step.
  bool SlotFree(const SlotInfo& slot) const { return placement_.IsFree(slot); }
  // Whether the slot suits this work, free or not (Placement::Avoided included).
  bool Suits(const SlotInfo& slot, const WorkItem& work) const;
  // Of the slots that suit this work: whether one is free, and one of them, a usable one if there is any; null: none suits.
  // It looks at all slots only where the work avoids a worker.
  struct SuitingSlots {
    bool free = false;
    const SlotInfo* one = nullptr;
  };
  SuitingSlots SlotsFor(const WorkItem& work) const;
  // The stage that runs on the slot; null: none of this dispatcher.
  const LiveStage* StageOn(const SlotId& slot) const;
  // See placement.h.
  std::string Refusal(const SlotId& slot) const { return placement_.Refusal(slot); }
  absl::Time BacksOffUntil(const SlotId& slot) const { return placement_.BacksOffUntil(slot); }

 private:
  void On(const JobSubmitted& event);
  void On(const SlotsChanged& event);
  void On(const CandidateStarted& event);
  void On(const CandidateBuilt& event);
  void On(const CandidateProfiled& event);
  void On(const StageFinished& event);
  void On(const RecordsFound& event);
  void On(const PauseRequested& event);
  void On(const PriorityRequested& event);
  void On(const ResumeRequested& event);
  void On(const CancelRequested& event);
  void On(const FetchRequested& event);
  void On(const FetchAbandoned& event);
  void On(const StoreBlocked& event) { store_problem_ = event.reason; }
  void On(const RecordsRetracted&) {}
  void On(const JobCollected&) {}
  void On(const Tick&) {}

  // What an event is about. It is determined before the event is processed.
  struct Subject {
    std::optional<JobId> job;
    std::optional<TaskIndex> task;
    bool streamed = false;  // the event is about one candidate of a running stage
  };
  Subject SubjectOf(const Event& event) const;
  // A job that has not ended, or null.
  Job* FindUnfinished(JobId id);
  // Returns the live stage that may answer about the candidate, and counts the answer. Null if the
  // answer is late or was given before.
  LiveStage* TakeAnswer(AttemptId attempt, v1::StageKind kind, CandidateId candidate);
  // Advances every touched job, and those that this touches in turn.
  void Proceed(const Subject& subject);
  void UpdateReady(const Job& job, bool rank_again);
  void GiveOutSlots();
  void NoteRoom();
  void CloseUnusable();
  void GiveBackAttempts();
  void RankAnew();
  void Start(const Placement::Assignment& assignment);

  const Options options_;
  const std::unique_ptr<Policy> policy_;
  std::string store_problem_;
  int64_t next_attempt_ = 1;
  int ranked_for_ = 0;  // CPU slots that there were when all ready work was ranked last
  Jobs jobs_;
  std::map<JobId, Job*> unfinished_;  // those of jobs_ that have not ended
  LiveStages live_;
  std::map<SlotId, AttemptId> running_on_;  // those of live_
  Effects effects_;
  Placement placement_;
  ArtifactRoom artifact_room_{options_.max_artifact_bytes, options_.idle_code_grace};
  Forecast forecast_;
  Fetches fetches_;
  Deadlines deadlines_;
  Sharing sharing_{&jobs_, &effects_};
  CandidateFlow flow_{&jobs_, &live_, &effects_};
  Rounds rounds_{&options_, &placement_.slot_index(), &sharing_, &live_, &effects_};
  Suspicions suspicions_{&placement_.slots()};
  StageEnds stage_ends_{
      &options_, &placement_.slot_index(), &suspicions_, &rounds_, &sharing_, &flow_, &effects_};
};

}  // namespace heddle::scheduler
