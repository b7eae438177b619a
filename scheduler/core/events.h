// What the dispatcher is told (events) and what it decides (changes and orders).
//
// An event owns everything that came with it. The dispatcher does not read the members under "For
// the ledger"; whoever keeps the durable state takes them from the event.
#pragma once

#include <cstdint>
#include <map>
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
  // For the ledger: the job as users see it, with id, spec, model digest and creation time.
  v1::Job description{};
  std::string submit_key{};  // SubmitRequest.submit_key
};
// The whole list of slots. A slot that is not in it is gone.
struct SlotsChanged {
  std::vector<SlotInfo> slots;
  // Why the tracker cannot be reached; empty: it can. If it cannot, the slots are the last known
  // ones, and none of them may be used.
  std::string problem;
};
// The worker has begun to work on the candidate.
struct CandidateStarted {
  AttemptId attempt;
  CandidateId candidate;
};
// A worker's answer about one candidate, as its record keeps it.
struct Measured {
  v1::Measurement measurement;
  uint64_t fencing_token = 0;  // of the lease under which it was made
};
// The candidate is built if the outcome is OK. Any other outcome is final.
struct CandidateBuilt {
  AttemptId attempt;
  CandidateId candidate;
  v1::Outcome outcome;
  std::string message;
  // For the ledger.
  std::shared_ptr<const v1::Artifact> artifact{};  // when OK
  int64_t build_ns = 0;
  std::shared_ptr<const Measured> measured{};  // when not OK
  // For the dispatcher again: the size of the artifact (machines/artifact_room.h).
  int64_t artifact_bytes = 0;
};
struct CandidateProfiled {
  AttemptId attempt;
  CandidateId candidate;
  v1::Outcome outcome;
  std::string message;
  double median_ns = 0;  // when OK
  double device_ns = 0;  // time the measurement held its slot; 0: unknown
  // For the ledger.
  std::shared_ptr<const Measured> measured{};
};
// A model of other tasks that a stage fitted, and the searches that may begin with it.
struct FittedModel {
  TransferModelId id;
  v1::TransferModel model;
};

// Results of stages. A result comes with the end of its stage, so it is taken as a whole or not at
// all.
struct Imported {
  v1::ImportResult model;
  std::vector<KnownRecords> known{};  // of its tasks, in their order; it may be shorter or empty
  std::string device_key{};           // pins the job to it; empty: changes nothing

  KnownRecords KnownOf(int task) const {
    const auto i = static_cast<size_t>(task);
    return i < known.size() ? known[i] : KnownRecords();
  }
};
struct Proposed {
  int count = 0;
  bool exhausted = false;  // the search has nothing more to propose
  // For the ledger.
  std::vector<v1::Candidate> candidates{};
  std::string search_state{};
  std::optional<FittedModel> fitted{};
};
// All for the ledger: the dispatcher only needs to know that the update has ended.
struct Updated {
  std::string search_state;
  v1::SearchReport report{};
  v1::TransferSamples transfer_samples{};
  std::optional<FittedModel> fitted{};
};
struct Compiled {
  // For the ledger.
  std::string module_digest;
  std::string default_digest{};  // of the module with default schedules, if it was asked for
  // The same two for another plan, if they were asked for.
  std::string other_digest{}, other_default_digest{};
  std::vector<v1::Claim> claims{};  // of imported records by which the modules were made
  // Median of the record, imported or not, by which each task's kernel was made, by workload. The
  // dispatcher reads those of tasks whose imported record did not hold.
  std::map<std::string, double> chosen_ns{};
};
struct Planned {
  // The tasks of the chosen plan and those to survey. Tasks that the job has keep their place, and get
  // this weight; the others are new, unless they are to be surveyed and there is no further survey. What
  // is not named gets weight 0. Tasks that come a second time are of the plan that contends with the chosen
  // one, with their weights there.
  v1::PlanResult plan;
  std::vector<KnownRecords> known{};  // of plan.tasks, in their order; it may be shorter or empty

  KnownRecords KnownOf(int task) const {
    const auto i = static_cast<size_t>(task);
    return i < known.size() ? known[i] : KnownRecords();
  }
};
// An imported record whose kernel the comparison found slower than the record says (claims.h).
struct BrokenRecord {
  v1::BrokenClaim claim;
  std::string reason;  // of its retraction
};
struct Compared {
  v1::CompareResult result;
  // Their tasks take the next best schedule, and the records are retracted with this step.
  std::vector<BrokenRecord> broken{};
};
// Whether a compared job keeps a plan that is not that of its import: the module by this plan is surely faster than the
// one by the other plan, and no slower than with default schedules.
inline bool KeepsPlan(const v1::CompareResult& result) {
  return result.has_other_gain() && IsFaster(result.other_gain()) && !IsSlower(result.gain());
}
struct StageFinished {
  AttemptId attempt;
  FaultInfo fault;      // kind FAULT_NONE: the stage did its work
  bool started = true;  // false: it got no lease, or the worker refused it; costs no attempt
  std::variant<std::monostate, Imported, Planned, Proposed, Updated, Compiled, Compared> result;
  // The stage was stopped from outside: its lease was lost, or the worker drains. That says nothing
  // about the work and costs no attempt either.
  bool interrupted = false;
  // For the ledger.
  std::vector<std::string> warnings{};  // shown with the job
  Fence fence{};                        // of the lease under which the result was made
  // For the dispatcher again: it was interrupted, and the worker did not say so. The worker may be stopped, cut
  // off or gone (machines/suspicions.h).
  bool silent = false;
};
// The answer to FindRecords.
struct RecordsFound {
  JobId job;
  std::string device_key;
  std::vector<KnownRecords> known;  // of the job's tasks, in their order; it may be empty
};
// These records do not hold any more. For the ledger: decisions go on from what was counted.
struct RecordsRetracted {
  struct Record {
    int64_t id = 0;  // in the store
    JobId job;       // that it was measured for; an imported one: none of this process's
    CandidateId candidate;
    std::string workload_key, target, device_key;
  };
  std::vector<Record> records;
  v1::Retraction retraction;
};
// The rows and blobs of a finished job are gone (RecordStore::CollectionOf). For the ledger.
struct JobCollected {
  JobId job;
  int64_t unix_ns = 0;
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
// The job has this priority (JobParams) from now on. Stages that run go on.
struct PriorityRequested {
  JobId job;
  int priority = 0;
};
struct FetchRequested {
  FetchId fetch;
  JobId job;
};
struct FetchAbandoned {
  FetchId fetch;
};
// The store takes no writes, for this reason. Empty: it takes them again.
struct StoreBlocked {
  std::string reason;
};
// The time that NextWake named has come.
struct Tick {};
using Event = std::variant<JobSubmitted, SlotsChanged, CandidateStarted, CandidateBuilt,
                           CandidateProfiled, StageFinished, RecordsFound, RecordsRetracted,
                           JobCollected, PauseRequested, ResumeRequested, CancelRequested,
                           PriorityRequested, FetchRequested, FetchAbandoned, StoreBlocked, Tick>;

// ---- changes ----
// A change says what is different now. It must be durable before the orders of the same step take
// effect.
struct AddCandidates {
  JobId job;
  TaskIndex task;
  CandidateId first;
  int count;
};
struct SetAttempts {
  JobId job;
  CandidateId candidate;
  int attempts;  // infrastructure faults that struck it
};
// The candidate has its one final outcome.
struct FinishCandidate {
  JobId job;
  TaskIndex task;
  CandidateId candidate;
  int attempt;      // counts from 1
  AttemptId stage;  // the stage that gave the outcome
  v1::Outcome outcome;
  std::string message;
};
// The code of these candidates is dropped; they are built again (machines/artifact_room.h). Nothing of it is
// durable: a restart drops all code.
struct DropArtifacts {
  JobId job;
  std::vector<CandidateId> candidates;
};
// The search has learned the task's final results of candidates before this one.
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
// The job was imported before there was a device, and now there is one. RecordsFound must follow;
// until then the job does not measure there.
struct FindRecords {
  JobId job;
  std::string device_key;
};
// Whether the job can meet its deadline as things stand. Emitted after the import or a restart,
// when the deadline has passed, and whenever the estimate changes materially.
struct DeadlineEstimate {
  JobId job;
  bool late = false;
  absl::Time finish;  // the predicted end (Dispatcher::ExpectedEnd)
};
// The task goes on with the current search state of another job's task.
struct TakeSearch {
  JobId job;
  TaskIndex task;
  JobId from_job;
  TaskIndex from_task;
};
using Change = std::variant<AddCandidates, SetAttempts, FinishCandidate, DropArtifacts, MarkLearned,
                            TaskChanged, JobChanged, FindRecords, DeadlineEstimate, TakeSearch>;

// ---- orders ----
struct StartStage : StageWork {
  AttemptId attempt;
  SlotId slot;
  std::vector<CandidateId> candidates{};  // build, profile: the first of its input
  int count = 0;                          // propose: how many
  // Profile: candidates from this one on are fed to other stages. Update: it learns the unlearned
  // results of candidates before this one.
  CandidateId before{};
  absl::Time ready_since{};  // when the work began to wait for a slot
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

// What one step decided. First the changes are made, in order; then the orders are performed, in
// order.
struct Decisions {
  std::vector<Change> changes;
  std::vector<Order> orders;
};

template <typename T, typename Variant>
inline constexpr bool kIsOneOf = false;
template <typename T, typename... Ts>
inline constexpr bool kIsOneOf<T, std::variant<Ts...>> = (std::is_same_v<T, Ts> || ...);

}  // namespace heddle::scheduler
