// Performs one started stage: reads what its order lacks, acquires the lease, streams to the worker
// and turns the answers into events. Each running stage has one thread, and a second one while it
// writes.
//
// A worker is not trusted. An event that it must not send (proto/message_rules.h) ends the stage with an infrastructure fault that names
// the worker.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/files/blob_store.h"
#include "proto/access/credentials.h"
#include "proto/worker.grpc.pb.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/service/stages/lease_keeper.h"
#include "scheduler/service/stages/sample_pages.h"
#include "scheduler/service/stages/worker_channels.h"

namespace heddle::scheduler {

class StageRunner {
 public:
  struct Environment {
    LeaseKeeper* leases;
    RecordStore* store;
    BlobStore* blobs;
    const Credentials* credentials;  // of the scheduler, for the worker
    WorkerChannels* channels;
    FitsToAll* fits;
    // Waits until all that was decided before is on disk, but not for long.
    std::function<void()> flush;
    // Called from the runner's thread; must not block for long. An error means that the lease must
    // not be used, because its token is stale; it is then released.
    std::function<absl::Status(AttemptId, const v1::Lease&)> leased;
    std::function<void(Event)> post;
    // Called last, after StageFinished was posted.
    std::function<void(AttemptId)> ended;
  };
  StageRunner(StageOrder order, Environment environment);
  // Waits for the end of the stage; call Cancel first.
  ~StageRunner();

  void Feed(v1::StageInput input);
  void CloseInput();
  void Cancel();

 private:
  struct Results;
  void Run();
  FaultInfo Perform(const v1::Lease& lease, Results* results, bool* started);
  // Says what is missing from the result of a stage that ended without a fault; empty if nothing
  // is.
  std::string MissingResult(const Results& results) const;
  // In a lab: why a module that the stage sent is not of its worker and this attempt; empty: all are.
  std::string FalseModule(const Results& results) const;
  static std::string BadPlan(const Results& results);
  void WriteAll(grpc::ClientReaderWriterInterface<v1::StageInput, v1::StageEvent>* stream);
  // Adds the model's parts, or the modules to compare, to the order.
  absl::Status AddParts();
  // Adds the pages of all tasks' samples to the order; if that fails, the search learns from the others in
  // the message.
  void AddSamplePages();
  // These end the stage if a blob is missing or damaged, and return false then, or if the stream ends.
  bool WriteBlob(grpc::ClientReaderWriterInterface<v1::StageInput, v1::StageEvent>* stream,
                 const std::string& name, const std::string& digest);
  bool WriteWanted(grpc::ClientReaderWriterInterface<v1::StageInput, v1::StageEvent>* stream);
  // InvalidArgument: the worker must not send this, or not now. Nothing of such an event is used.
  absl::Status CheckTaken(const v1::StageEvent& event, const Results& results);
  void Take(const v1::StageEvent& event, Results* results);
  void TakeChunk(const v1::Chunk& chunk, Results* results);

  StageOrder order_;
  const Environment environment_;
  uint64_t fencing_token_ = 0;
  std::unique_ptr<FitsToAll::Claim> fit_;  // while the search learns from all tasks
  int64_t all_measured_ = 0;               // SamplePages.measured of what it was sent; 0: nothing
  absl::Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::deque<v1::StageInput> queue_ ABSL_GUARDED_BY(mutex_);
  // Candidates that the stage was given and has not answered, with how often the worker began them.
  std::map<int64_t, int> unanswered_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;    // the stream has ended; nothing more to write
  std::string cancelled_ ABSL_GUARDED_BY(mutex_);  // the reason; empty: not cancelled
  bool lease_lost_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::BlobList> wanted_ ABSL_GUARDED_BY(mutex_);  // as the worker said
  std::string lost_ ABSL_GUARDED_BY(mutex_);  // which blob is missing or damaged; empty: none
  std::thread thread_;
};

}  // namespace heddle::scheduler
