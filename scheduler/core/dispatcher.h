// The decision core of the scheduler: Step(event, now) -> decisions. No clock, thread, I/O or
// randomness inside: the same events give the same decisions, so the class that runs in production
// is the one the simulation tests drive.
//
// Read job_state.h and events.h first. The caller performs the decisions in order and feeds back
// what happens. What the environment may do: deliver events late, twice or not at all for stages
// that have ended (ignored), end any stage at any time, make slots come and go. What it must do:
// end every started stage with exactly one StageFinished.
//
// Flow of a job: import -> per task, rounds of propose, build, profile, update -> compile. Build
// and profile of a round overlap: each built candidate is fed to a running profile stage. A task
// may have several, each on a device slot of its own: a built candidate goes to a stage with a
// short queue, else a further slot may start a stage with it, else it goes to the shortest queue. A
// profile stage's input is closed as soon as no candidate of its task is being built, so no running
// stage ever waits for one that has not started; that is why slots that share cores cannot
// deadlock.
//
// JobParams.pipeline_depth bounds the job's rounds in flight, those of different tasks first. Where
// no other task may begin one and the depth is set (0: by the devices) and over 1, a task that is
// being measured may begin a further one: proposing goes on, by a model that lacks the results of
// rounds in flight, that is at most depth - 1 of them. Propose and update of a task still run one
// at a time, on one chain of search states. An update learns the oldest rounds as soon as they are
// measured as a whole, and comes first, unless nothing of the task would be left to measure
// meanwhile; so each is learned once, in order. (One that was given up after faults is made up for
// by the next.) A profile stage takes no candidates of rounds that
// were proposed after it had started.
//
// Tasks of different live jobs with the same workload, target and device key are partners: they are
// tuned once. One of them at a time has a round in flight (a paused job's does not count), and each
// of its trials is a known record to the others, so that it is a trial less to all of them. Whoever
// begins the next round takes over the search state of a partner that has learned it all, or learns
// the known records. Nobody owns the task: when one job ends, stops or is paused, the others go on.
// A job that builds before there is a device (for GPUs) has no device key yet, and may become a
// partner of any that has the same workload and target: of these, too, one at a time has a round in
// flight. Once there is a device it asks what is known of its key (FindRecords); until that is
// answered it has none, and begins no round. Jobs with `force` share nothing.
//
// Under uniform allocation a task may measure trials_per_task less what is known. Under gradient
// the job may measure trials_per_task x tasks less what is known (GradientBudget), and each round
// is granted to the task ChooseTask names; a task whose partner is in flight keeps its uniform
// share in reserve. Tuning ends when nothing may be measured any more, or by a stop (Job.stop):
// rounds that are being measured are finished, nothing new begins.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler/core/events.h"
#include "scheduler/core/forecast.h"
#include "scheduler/core/job_state.h"
#include "scheduler/core/policy.h"
#include "scheduler/core/ready_index.h"
#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {

// Numbers that hold for every job.
struct DispatcherOptions {
  int max_attempts = 3;  // infrastructure faults before a candidate is LOST, a fetch fails, or an
                         // update is left out; import, propose and compile are tried for ever
  int hopeless_after = 16;  // a task whose first so many trials all fail is given up
  absl::Duration retry_backoff = absl::Milliseconds(500);  // doubles with every fault in a row
  absl::Duration slot_backoff =
      absl::Milliseconds(250);  // doubles with every refused lease in a row
  absl::Duration max_backoff =
      absl::Seconds(10);  // as long as a tracker takes to notice a dead worker
};

class Dispatcher {
 public:
  using Options = DispatcherOptions;
  explicit Dispatcher(std::unique_ptr<Policy> policy, Options options = {});

  Decisions Step(const Event& event, absl::Time now);

  // Before the first Step: a job as the store remembers it. No stage of it is live; tasks have
  // their rounds (what is open Unbuilt) and phase Measuring, WantsUpdate, Waiting or Finished.
  void Restore(Job job);
  void SetNextAttempt(AttemptId next) { next_attempt_ = next.value; }

  // Time the job has been tuning, pauses left out.
  static absl::Duration Tuned(const Job& job, absl::Time now);
  // Trials the job may measure in all, as things stand.
  static int TrialBudget(const Job& job);
  // The same of a job whose tasks have so many known records.
  static int TrialBudget(const JobParams& params, absl::Span<const int> known);

  // When the job should be done as things stand: InfiniteFuture while it is paused, or there is no
  // device for it.
  absl::Time ExpectedEnd(const Job& job, absl::Time now) const;
  // What that was when it was last looked at for the deadline, at most every 10 s or 1 % of what
  // was left: costs no look at other jobs. InfiniteFuture without a deadline.
  absl::Time EstimatedEnd(JobId job) const;

  // When to send a Tick, not before `now`; InfiniteFuture if nothing waits for time alone.
  absl::Time NextWake(absl::Time now) const;

  const Job* FindJob(JobId id) const;
  const std::map<JobId, Job>& jobs() const { return jobs_; }
  const std::map<AttemptId, LiveStage>& live() const { return live_; }
  const std::vector<SlotInfo>& slots() const { return slots_; }
  const std::string& tracker_problem() const { return tracker_problem_; }
  const std::string& store_problem() const { return store_problem_; }
  // What could run if a slot were free, as of the last Step, in the order of the policy.
  std::vector<WorkItem> ReadyWork() const;
  // Whether a stage could start on that slot, as of the last Step.
  bool SlotFree(const SlotInfo& slot) const;
  const Forecast& forecast() const { return forecast_; }
  // Why the latest stage sent to the slot did not run there; empty: it did.
  std::string Refusal(const SlotId& slot) const;
  // Until when it is left alone after refusals.
  absl::Time BacksOffUntil(const SlotId& slot) const {
    auto it = trouble_.find(slot);
    return it == trouble_.end() ? absl::InfinitePast() : it->second.not_before;
  }
  // Whether this slot suits this work at all, free or not.
  bool Suits(const SlotInfo& slot, const WorkItem& work) const;

 private:
  void On(const JobSubmitted& event);
  void On(const SlotsChanged& event);
  void On(const CandidateStarted& event);
  void On(const CandidateBuilt& event);
  void On(const CandidateProfiled& event);
  void On(const StageFinished& event);
  void On(const RecordsFound& event);
  void On(const PauseRequested& event);
  void On(const ResumeRequested& event);
  void On(const CancelRequested& event);
  void On(const FetchRequested& event);
  void On(const FetchAbandoned& event);
  void On(const StoreBlocked& event);
  void On(const Tick&) {}

  // Ends of stages, one function a kind.
  void EndImport(Job& job, const StageFinished& event);
  void EndPropose(Job& job, TaskIndex index, const StageFinished& event);
  void EndMeasuring(Job& job, const LiveStage& stage, const StageFinished& event);
  void EndUpdate(Job& job, const LiveStage& stage, const StageFinished& event);
  void EndCompile(Job& job, const StageFinished& event);
  void EndFetchStage(const LiveStage& stage, const StageFinished& event);

  // The course of a task (task_course.cc).
  void FinishTrial(Job& job, TaskIndex index, CandidateId id, AttemptId stage, v1::Outcome outcome,
                   const std::string& message, double median_ns);
  void EndRounds(Job& job, TaskIndex index);
  bool Over(const Job& job, const Task& task) const;  // nothing more is proposed
  void Drain(Job& job, TaskIndex index);  // what is measured goes on; the task ends with that
  static void DropRounds(Task* task, CandidateId before);
  void FinishTask(Job& job, TaskIndex index);
  void FinishTuningIfDone(Job& job);
  void Requeue(Job& job, TaskIndex index);
  void Activate(Job& job);
  void BeginRounds(Job& job);
  void FinishIdle(Job& job);  // waiting tasks that may not measure any more
  bool MayBegin(const Job& job, TaskIndex index, bool ahead) const;
  std::optional<TaskIndex> NextTask(const Job& job, bool ahead) const;
  void BeginRound(Job& job, TaskIndex index);
  int Grant(const Job& job, TaskIndex index) const;
  void CheckStops(Job& job);
  void StopTuning(Job& job, std::string reason);
  void RestoreTask(Job& job, TaskIndex index);
  // What Task.budget is now: see the head of this file.
  static int Allowance(const Job& job, const Task& task);
  static bool NothingLeft(const Job& job, const Task& task);
  static int PoolLeft(const Job& job);  // gradient: trials not granted yet
  bool MoreDepth(const Job& job) const;

  // Sharing (sharing.cc). A group: tasks of one workload and target. Partners: those of it whose
  // jobs have the same device key.
  void EnterGroups(const Job& job);
  void JoinGroups(Job& job);
  void LeaveGroups(Job& job);
  void LeaveGroup(Job& job, TaskIndex index);
  void ShareTrial(Job& job, TaskIndex index, bool valid, double median_ns);
  // Others' records of the task that it did not count yet.
  void TakeKnown(Job& job, TaskIndex index, const TaskPlan& known);
  // A partner, or what may become one, has a round in flight in an unpaused job.
  bool PartnerInFlight(const Job& job, TaskIndex index) const;
  void TouchGroup(const Job& job, TaskIndex index);  // jobs that may wait for a round of the task
  void TouchGroups(const Job& job);  // the same of all tasks, with those that are no partners now
  void CatchUp(Job& job, TaskIndex index);  // takes over a search state, or learns again
  template <typename F>
  void ForPartners(const Job& job, TaskIndex index, F f);
  // Built candidates to the open profile stages whose queue is shorter than `depth`.
  void FeedProfiles(Job& job, TaskIndex index, size_t depth);
  // After slots were given out: what found none is fed, and inputs that nothing will follow close.
  void CloseProfiles();
  void EndJob(Job& job, JobPhase phase);
  void Fail(Job& job, FaultInfo fault);
  absl::Duration Backoff(absl::Duration first, int failures) const;
  // Whether the slot, not the work, is why a stage ended.
  static bool Blameless(const StageFinished& event) { return !event.started || event.interrupted; }
  // Counts an infrastructure fault of a stage that is not about candidates, and sets when to try
  // again. False: max_attempts are used up.
  bool Retry(const StageFinished& event, int* failures, absl::Time* not_before) const;

  // Lets the job go on at the end of this Step: looks for the end of its tuning, begins rounds,
  // finds out anew which of its stages are ready. Called by Step for the job of the event; whatever
  // changes another job calls it for that job, too.
  void Touch(JobId job) { touched_.insert(job); }
  // Touches the job at `time` (NextWake comes no later than that).
  void WakeAt(JobId job, absl::Time time) { wakes_.emplace(time, job); }

  // What the event is about, before it is taken in (dispatcher.cc).
  void TouchSubject(const Event& event);
  void AfterStage(const LiveStage& stage, const StageFinished& event);
  void Proceed();
  void CheckDeadline(const Job& job);

  // Placement (placement.cc).
  void Schedule();
  void UpdateReady(const Job& job, bool rank_again);
  void AddTuningWork(const Job& job, std::vector<ReadyIndex::Item>* work);
  void Start(const WorkItem& work, const SlotInfo& slot);
  std::vector<CandidateId> TakeUnbuilt(Task& task, AttemptId attempt, int lane);
  std::vector<CandidateId> TakeBuilt(Task& task, AttemptId attempt, int lane);
  size_t ShareOf(int candidates, int lane) const;
  bool MayTakeDevice(const Job& job) const;  // by its key and max_devices
  void TakeSlots(const SlotsChanged& event);

  template <typename T>
  void Emit(T decision) {
    if constexpr (std::is_same_v<T, TaskChanged> || std::is_same_v<T, JobChanged>)
      Touch(decision.job);
    if constexpr (kIsOneOf<T, Change>) {
      decisions_.changes.emplace_back(std::in_place_type<T>, std::move(decision));
    } else {
      decisions_.orders.emplace_back(std::in_place_type<T>, std::move(decision));
    }
  }

  Options options_;
  std::unique_ptr<Policy> policy_;
  std::map<JobId, Job> jobs_;
  std::map<FetchId, Fetch> fetches_;
  std::map<AttemptId, LiveStage> live_;
  std::vector<SlotInfo> slots_;
  std::string tracker_problem_ = "no answer from the tracker yet";
  std::string store_problem_;
  struct SlotTrouble {
    int failures = 0;
    absl::Time not_before;
    std::string refusal;  // what the latest stage sent there was told; empty: it ran
  };
  std::map<SlotId, SlotTrouble> trouble_;
  struct Group {
    std::set<std::pair<JobId, TaskIndex>> tasks;
    std::pair<JobId, TaskIndex> latest;  // the last to begin a round: in flight, most likely
  };
  // Unfinished tasks of jobs in phase Tuning by workload and target.
  std::map<std::string, Group> groups_;
  int64_t next_attempt_ = 1;
  std::set<std::pair<absl::Time, JobId>> wakes_;
  SlotIndex slot_index_;
  ReadyIndex ready_;
  Forecast forecast_;
  struct Estimate {
    bool told = false, late = false;
    absl::Time finish;                           // as told
    absl::Time latest = absl::InfiniteFuture();  // as of the latest look
    absl::Time look = absl::InfinitePast();      // the next time to look though nothing happens
    absl::Time next = absl::InfinitePast();      // not to be made again before
  };
  std::map<JobId, Estimate> estimates_;  // of unfinished jobs with a deadline
  // Of the running Step.
  std::set<std::pair<JobId, TaskIndex>> feeding_;  // whose builds or profile stages changed
  absl::Time now_;
  std::set<JobId> touched_;           // to be looked at anew
  std::set<JobId> told_;              // of others' trials, which may end their tuning
  std::optional<JobId> streamed_;     // the event was a candidate's of this job
  std::optional<JobId> subject_;      // the job the event is about
  std::optional<TaskIndex> of_task_;  // and its task
  Decisions decisions_;
};

}  // namespace heddle::scheduler
