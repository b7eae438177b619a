// What the dispatcher is told, and what it decides.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

// ---- events ----
struct JobSubmitted {
  JobId job;
  JobParams params;
};
// The whole list; slots that are not in it are gone. `problem` is empty, or why the tracker is not
// to be reached (the slots are then those known last, none of which may be used).
struct SlotsChanged {
  std::vector<SlotInfo> slots;
  std::string problem;
};
struct CandidateStarted {
  AttemptId attempt;
  CandidateId candidate;
};
// outcome OK: built. Anything else is final.
struct CandidateBuilt {
  AttemptId attempt;
  CandidateId candidate;
  v1::Outcome outcome;
  std::string message;
};
struct CandidateProfiled {
  AttemptId attempt;
  CandidateId candidate;
  v1::Outcome outcome;
  std::string message;
  double median_ns = 0;  // when OK
  double device_ns = 0;  // the measurement took on its slot; 0: unknown
};
// Results of the stages that have one; delivered with the end of the stage, so that each is taken
// as a whole or not at all.
struct TaskPlan {
  int known = 0;  // records of the database, for this task
  int known_valid = 0;
  double known_best_ns = 0;
  std::string key{};  // workload hash
  int weight = 1;
  double flops = 0;
};
struct Imported {
  std::vector<TaskPlan> tasks;
  std::string device_key;
};  // device_key: empty, or what the job is pinned to
struct Proposed {
  int count = 0;
  bool exhausted = false;
};
struct StageFinished {
  AttemptId attempt;
  FaultInfo fault;      // kind FAULT_NONE: it did its work
  bool started = true;  // false: no lease, or the worker did not take the call; costs no attempt
  std::variant<std::monostate, Imported, Proposed> result;
  // Stopped from outside (lease lost, worker draining), which says nothing about the work: costs no
  // attempt either.
  bool interrupted = false;
};
// The answer to FindRecords: what the database knows of the job's tasks, in their order.
struct RecordsFound {
  JobId job;
  std::string device_key;
  std::vector<TaskPlan> tasks;
};
struct PauseRequested {
  JobId job;
  std::string reason;
};
struct ResumeRequested {
  JobId job;
};
struct CancelRequested {
  JobId job;
  std::string reason;
};
struct FetchRequested {
  FetchId fetch;
  JobId job;
};
struct FetchAbandoned {
  FetchId fetch;
};
struct StoreBlocked {
  std::string reason;
};               // empty: it takes writes again
struct Tick {};  // NextWake() has come
using Event =
    std::variant<JobSubmitted, SlotsChanged, CandidateStarted, CandidateBuilt, CandidateProfiled,
                 StageFinished, RecordsFound, PauseRequested, ResumeRequested, CancelRequested,
                 FetchRequested, FetchAbandoned, StoreBlocked, Tick>;

// ---- decisions ----
// To be made durable, in order, before or together with what follows.
struct AddCandidates {
  JobId job;
  TaskIndex task;
  CandidateId first;
  int count;
};
struct SetAttempts {
  JobId job;
  CandidateId candidate;
  int attempts;
};
// The candidate's one final outcome. `attempt` counts from 1.
struct FinishCandidate {
  JobId job;
  TaskIndex task;
  CandidateId candidate;
  int attempt;
  AttemptId stage;
  v1::Outcome outcome;
  std::string message;
};
// The task's results of candidates before this one.
struct MarkLearned {
  JobId job;
  TaskIndex task;
  CandidateId before;
};
struct TaskChanged {
  JobId job;
  TaskIndex task;
};
struct JobChanged {
  JobId job;
};
// The job was imported without a device, and now there is one: it measures there once RecordsFound,
// which must follow, says what is known.
struct FindRecords {
  JobId job;
  std::string device_key;
};
// The job's deadline cannot be met as things stand (`late`), or can; said after the import or a
// restart, when it is over, and whenever the estimate changes materially.
struct DeadlineEstimate {
  JobId job;
  bool late = false;
  absl::Time finish;  // as predicted now; see Dispatcher::ExpectedEnd
};
// The task goes on with the search state of another job's, as it is now.
struct TakeSearch {
  JobId job;
  TaskIndex task;
  JobId from_job;
  TaskIndex from_task;
};
// To be performed.
struct StartStage {
  AttemptId attempt;
  JobId job;
  v1::StageKind kind;
  std::optional<TaskIndex> task;
  std::optional<FetchId> fetch;
  SlotId slot;
  std::vector<CandidateId> candidates;  // build, profile: the first of its input
  int count = 0;                        // propose: how many
  CandidateId before{};                 // update: learns what it has not yet of those before it
};
struct FeedProfile {
  AttemptId attempt;
  JobId job;
  CandidateId candidate;
};
struct CloseProfile {
  AttemptId attempt;
};
struct CancelStage {
  AttemptId attempt;
};
struct EndFetch {
  FetchId fetch;
  FaultInfo fault;
};
using Decision = std::variant<AddCandidates, SetAttempts, FinishCandidate, MarkLearned, TaskChanged,
                              JobChanged, FindRecords, DeadlineEstimate, TakeSearch, StartStage,
                              FeedProfile, CloseProfile, CancelStage, EndFetch>;

}  // namespace heddle::scheduler
