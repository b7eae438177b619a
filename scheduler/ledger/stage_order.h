// The order that a worker is sent for one stage. It is made in three steps:
//   MakeOrder      takes what the stage needs from dispatcher and ledger, and lists what the store
//                  has to add
//   FetchInputs    reads that from the store, on any thread
//   CompleteOrder  joins the two
// MakeOrder and CompleteOrder are pure, so whoever drives the dispatcher never waits for the store.
// The simulator makes its orders by the same functions (scheduler/sim/world/scheduler_process.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/worker.pb.h"
#include "scheduler/ledger/claims.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/store/record_store.h"

namespace heddle::scheduler {

// What a new search may learn from other tasks, as far as the ledger knows.
struct TransferPlan {
  WorkloadId search;
  std::string label;     // the task's name for people
  bool hurried = false;  // the job's time is limited: it does not fit a model for all
  std::vector<TransferSamples> recent;    // the latest samples; the store may not have them yet
  std::optional<v1::TransferModel> kept;  // the stored model for such searches
  PutTransferModel made;                  // where to store a model that the stage fits
};

// What an order needs from the store.
struct OrderReads {
  struct Device {
    std::string target, device_key;
  };
  // The best record of a task of a module.
  struct Best {
    WorkloadId workload;
    bool measured_here = false;  // the best of those that were not imported
  };
  std::optional<WorkloadId> related;    // transfer samples that are related to this workload
  std::optional<v1::RecordQuery> warm;  // the known records that the update learns
  std::vector<Best> best;               // of each task of a module
  std::optional<Device> experience;     // of other jobs there, and on other devices
};

// What the store had. A failed read of `related` or `experience` becomes a warning. The others count as
// empty, and what the job itself has measured must do.
struct OrderInputs {
  absl::StatusOr<std::vector<TransferSamples>> related = std::vector<TransferSamples>();
  bool measured = false;  // with `related`: the workload itself has known records there
  // Another stage fits a model to all tasks for such searches, or failed to not long ago. FetchInputs
  // leaves it false.
  bool fit_under_way = false;
  std::vector<v1::Record> warm;
  std::vector<std::vector<v1::Record>> best;  // one answer for each of OrderReads.best
  absl::StatusOr<Experience> experience = Experience();
};

// The weight of one transfer sample in a search; samples from elsewhere count less.
double WeightOf(Relatedness relatedness);

struct StageOrder {
  AttemptId attempt;
  SlotId slot;
  std::string purpose;   // shown in the tracker's list: "j12 profile"
  v1::StageStart start;  // the runner fills in lease, token and blobs
  // import, plan, compile: the runner reads these from the blob store and streams what the worker lacks.
  std::string model_digest;          // the small ONNX file
  std::string parts_digest;          // the BlobList of the model's parts; empty: it has none
  std::vector<std::string> modules;  // compare: digests of blobs, which the runner streams likewise
  // Compile: the claims of imported records among the best, and the medians of all of them by workload.
  std::vector<v1::Claim> claims;
  std::map<std::string, double> chosen_ns;
  std::vector<ClaimedKernel> claimed;  // compare: kernels of the module that the result is to judge
  std::string search_state;            // propose, update
  std::vector<v1::StageInput> inputs;
  // Where to store the transfer model that the stage fits, and its teachers; nullopt: it is dropped.
  std::optional<PutTransferModel> transfer_model;
  // The search is to learn from all tasks, more than fit into the message: the runner makes their pages
  // (scheduler/service/stages/sample_pages.h). nullopt: the others in the message are all.
  std::optional<WorkloadId> learns_from_all;
  bool input_open = false;            // profile: more candidates may be fed
  std::vector<std::string> warnings;  // about failed reads; the job gets them when the stage ends
  // Only between MakeOrder and CompleteOrder.
  OrderReads reads;
  std::optional<TransferPlan> transfer;
};

// Only compile stages use `choice`.
StageOrder MakeOrder(const Dispatcher& dispatcher, const JobLedger& ledger, const StartStage& start,
                     v1::ScheduleChoice choice);
OrderInputs FetchInputs(RecordStore* store, const OrderReads& reads);
void CompleteOrder(const OrderInputs& inputs, StageOrder* order);

// The input by which a profile stage is fed one built candidate.
v1::StageInput MakeProfileInput(const JobLedger& ledger, JobId job, CandidateId candidate);

// The candidates whose results an update of the task learns, oldest first: those before `before`
// that have a final record which no update has learned.
std::vector<CandidateId> ResultsToLearn(const JobLedger::JobData& job, TaskIndex task,
                                        CandidateId before);

}  // namespace heddle::scheduler
