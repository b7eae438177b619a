// What a worker is sent for one stage.
//
// An order is made in three steps. MakeOrder takes what the stage needs from dispatcher and ledger
// and says what the store has to add; FetchInputs reads that, on any thread; CompleteOrder joins
// the two. MakeOrder and CompleteOrder are pure, so that whoever drives the dispatcher never waits
// for the store. The simulator makes its orders by the same functions
// (scheduler/sim/world/scheduler_process.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/worker.pb.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// What a search that begins may learn from other tasks, as far as the ledger knows.
struct TransferPlan {
  WorkloadId search;
  std::string label;                      // of the task, for people
  std::vector<TransferSamples> recent;    // the latest, which the store may not have yet
  std::optional<v1::TransferModel> kept;  // the model that is kept for such searches
  PutTransferModel made;                  // where a model that the stage fits belongs
};

// What the store has to add to an order.
struct OrderReads {
  std::optional<WorkloadId> related;    // reads the transfer samples that are related to it
  std::optional<v1::RecordQuery> warm;  // known records that the update learns
  std::vector<v1::RecordQuery> best;    // the best record of each task of a module
};

// What the store had. A read that failed is left out: the search starts afresh, the task falls back
// to this job's own best.
struct OrderInputs {
  absl::StatusOr<std::vector<TransferSamples>> related = std::vector<TransferSamples>();
  std::vector<v1::Record> warm;
  std::vector<std::vector<v1::Record>> best;  // as OrderReads.best
};

struct StageOrder {
  AttemptId attempt;
  SlotId slot;
  std::string purpose;       // for the tracker's list: "j12 profile"
  v1::StageStart start;      // lease and token are filled in by the runner
  std::string model_digest;  // import, compile: streamed from the blob store
  std::string search_state;  // propose, update
  std::vector<v1::StageInput> inputs;
  // Where a model of other tasks that comes back belongs, and what it is of; nullopt: nowhere.
  std::optional<PutTransferModel> transfer_model;
  bool input_open = false;            // profile: more may be fed
  std::vector<std::string> warnings;  // of what could not be gathered; the job gets them at the end
  // Until CompleteOrder.
  OrderReads reads;
  std::optional<TransferPlan> transfer;
};

// `choice` matters for compile stages only.
StageOrder MakeOrder(const Dispatcher& dispatcher, const JobLedger& ledger, const StartStage& start,
                     v1::ScheduleChoice choice);
OrderInputs FetchInputs(RecordStore* store, const OrderReads& reads);
void CompleteOrder(const OrderInputs& inputs, StageOrder* order);

// What a profile stage is fed for one built candidate.
v1::StageInput MakeProfileInput(const JobLedger& ledger, JobId job, CandidateId candidate);

// The results of the task that an update learns: those of candidates before `before` which no
// update has learned, oldest first.
std::vector<CandidateId> ResultsToLearn(const JobLedger::JobData& job, TaskIndex task,
                                        CandidateId before);

}  // namespace heddle::scheduler
