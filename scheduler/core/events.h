// What the dispatcher is told (events), and what it decides (changes and orders).
//
// An event owns everything that came with it. The members under "for the ledger" are not looked at
// by the dispatcher; whoever keeps the durable state takes them from the event.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "proto/jobs.pb.h"
#include "proto/worker.pb.h"
#include "scheduler/core/ids.h"
#include "scheduler/core/job_state.h"

namespace heddle::scheduler {

// ---- events ----
struct JobSubmitted {
  JobId job;
  JobParams params;
  // For the ledger: the job as users see it, with id, spec, model digest and time of creation.
  v1::Job description{};
};
// The whole list of slots; slots that are not in it are gone. `problem` is empty, or why the
// tracker cannot be reached; the slots are then the ones known last, and none of them may be used.
struct SlotsChanged {
  std::vector<SlotInfo> slots;
  std::string problem;
};
// The worker began to work on the candidate.
struct CandidateStarted {
  AttemptId attempt;
  CandidateId candidate;
};
// A worker's answer about one candidate, as its record keeps it.
struct Measured {
  v1::Measurement measurement;
  uint64_t fencing_token = 0;  // of the lease under which it was made
};
// outcome OK: built. Any other outcome is final.
struct CandidateBuilt {
  AttemptId attempt;
  CandidateId candidate;
  v1::Outcome outcome;
  std::string message;
  // For the ledger.
  std::shared_ptr<const v1::Artifact> artifact{};  // when OK
  int64_t build_ns = 0;
  std::shared_ptr<const Measured> measured{};  // when not OK
};
struct CandidateProfiled {
  AttemptId attempt;
  CandidateId candidate;
  v1::Outcome outcome;
  std::string message;
  double median_ns = 0;  // when OK
  double device_ns = 0;  // how long the measurement took on its slot; 0: unknown
  // For the ledger.
  std::shared_ptr<const Measured> measured{};
};
// A task as the import found it, with what the database knows of it.
struct TaskPlan {
  int known = 0;  // records
  int known_valid = 0;
  double known_best_ns = 0;
  std::string key{};  // workload hash
  int weight = 1;
  double flops = 0;
  // For the ledger.
  double known_untuned_ns = 0;  // of the default schedule
};
// A model of other tasks that a stage fitted, and the searches that may begin with it.
struct FittedModel {
  TransferModelId id;
  v1::TransferModel model;
};

// Results of stages. They come with the end of the stage, so that each is taken as a whole or not
// at all.
struct Imported {
  std::vector<TaskPlan> tasks;
  std::string device_key;  // empty, or what the job is pinned to
  // For the ledger.
  v1::ImportResult model{};
};
struct Proposed {
  int count = 0;
  bool exhausted = false;
  // For the ledger.
  std::vector<v1::Candidate> candidates{};
  std::string search_state{};
  std::optional<FittedModel> fitted{};
};
// For the ledger as a whole: that the update has ended is all the dispatcher needs.
struct Updated {
  std::string search_state;
  v1::SearchReport report{};
  v1::TransferSamples transfer_samples{};
  std::optional<FittedModel> fitted{};
};
struct Compiled {
  std::string module_digest;  // for the ledger
};
struct StageFinished {
  AttemptId attempt;
  FaultInfo fault;      // kind FAULT_NONE: it did its work
  bool started = true;  // false: no lease, or the worker did not take the call; costs no attempt
  std::variant<std::monostate, Imported, Proposed, Updated, Compiled> result;
  // Stopped from outside (lease lost, worker draining), which says nothing about the work; costs no
  // attempt either.
  bool interrupted = false;
  // For the ledger.
  std::vector<std::string> warnings{};  // shown with the job
  Fence fence{};                        // of the lease under which the result was made
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
// Empty reason: the store takes writes again.
struct StoreBlocked {
  std::string reason;
};
// The time that NextWake named has come.
struct Tick {};
using Event =
    std::variant<JobSubmitted, SlotsChanged, CandidateStarted, CandidateBuilt, CandidateProfiled,
                 StageFinished, RecordsFound, PauseRequested, ResumeRequested, CancelRequested,
                 FetchRequested, FetchAbandoned, StoreBlocked, Tick>;

// ---- changes ----
// What is different now, and has to be durable before the orders of the same step take effect.
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
using Change = std::variant<AddCandidates, SetAttempts, FinishCandidate, MarkLearned, TaskChanged,
                            JobChanged, FindRecords, DeadlineEstimate, TakeSearch>;

// ---- orders ----
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
using Order = std::variant<StartStage, FeedProfile, CloseProfile, CancelStage, EndFetch>;

// What one step decided. The changes come first, in order; then the orders are performed, in order.
struct Decisions {
  std::vector<Change> changes;
  std::vector<Order> orders;
};

template <typename T, typename Variant>
inline constexpr bool kIsOneOf = false;
template <typename T, typename... Ts>
inline constexpr bool kIsOneOf<T, std::variant<Ts...>> = (std::is_same_v<T, Ts> || ...);

}  // namespace heddle::scheduler
