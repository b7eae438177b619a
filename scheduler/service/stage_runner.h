// Performs one started stage: lease, stream to the worker, events back. One thread per running
// stage (as many as there are slots), a second one while it writes.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.grpc.pb.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/service/lease_keeper.h"
#include "scheduler/store/blob_store.h"

namespace heddle::scheduler {

// All that a stage needs, gathered when it is decided.
struct StageOrder {
  AttemptId attempt;
  SlotId slot;
  std::string purpose;       // for the tracker's list: "j12 profile"
  v1::StageStart start;      // lease and token are filled in by the runner
  std::string model_digest;  // import, compile: streamed from the blob store
  std::string search_state;  // propose, update
  std::vector<v1::StageInput> inputs;
  // Where a model of other tasks that comes back belongs, and what it is of; nullopt: nowhere.
  std::optional<PutOthersModel> others_model;
  bool input_open = false;            // profile: more may be fed
  std::vector<std::string> warnings;  // of what could not be gathered; the job gets them at the end
};

class StageRunner {
 public:
  struct Environment {
    LeaseKeeper* leases;
    BlobStore* blobs;
    // Called from the runner's thread; must not block for long.
    // An error: the lease must not be worked with (its token is stale); it is given back.
    std::function<absl::Status(AttemptId, const v1::Lease&)> leased;
    std::function<void(Event)> post;
    // Called last, after StageFinished was posted.
    std::function<void(AttemptId)> ended;
  };
  StageRunner(StageOrder order, Environment environment);
  // Waits for the stage's end; Cancel first.
  ~StageRunner();

  void Feed(v1::StageInput input);
  void CloseInput();
  void Cancel();

 private:
  struct Results;
  void Run();
  FaultInfo Perform(const v1::Lease& lease, Results* results, bool* started);
  // A stage that calls itself done must have brought what it is for; empty, or what is missing.
  std::string MissingResult(const Results& results) const;
  void WriteAll(grpc::ClientReaderWriterInterface<v1::StageInput, v1::StageEvent>* stream);
  bool WriteModel(grpc::ClientReaderWriterInterface<v1::StageInput, v1::StageEvent>* stream);
  void Take(const v1::StageEvent& event, Results* results);
  void TakeChunk(const v1::Chunk& chunk, Results* results);

  StageOrder order_;
  const Environment environment_;
  uint64_t fencing_token_ = 0;
  absl::Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::deque<v1::StageInput> queue_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;    // the stream has ended; nothing more to write
  std::string cancelled_ ABSL_GUARDED_BY(mutex_);  // why; empty: it is not
  bool lease_lost_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
