// Performs one started stage: reads what its order lacks, acquires the lease, streams to the worker
// and turns the answers into events.
//
// No thread waits for a stage, so thousands may run. The threads of gRPC pass small messages on. Work that reads or writes
// the store or a file runs on a pool (Environment).
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
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/files/blob_store.h"
#include "proto/access/credentials.h"
#include "proto/chunks.h"
#include "proto/worker.grpc.pb.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/service/stages/lease_keeper.h"
#include "scheduler/service/stages/sample_pages.h"
#include "scheduler/service/stages/thread_pool.h"
#include "scheduler/service/stages/worker_channels.h"

namespace heddle::scheduler {

class StageRunner {
 public:
  struct Environment {
    ThreadPool* starters;  // for what a stage reads before it begins: that may wait for the store
    ThreadPool* pool;      // for the rest
    LeaseKeeper* leases;
    RecordStore* store;
    BlobStore* blobs;
    const Credentials* credentials;  // of the scheduler, for the worker
    WorkerChannels* channels;
    FitsToAll* fits;
    // Waits until all that was decided before is on disk, but not for long.
    std::function<void()> flush;
    // Called from the pool; must not block for long. An error means that the lease must
    // not be used, because its token is stale; it is then released.
    std::function<absl::Status(AttemptId, const v1::Lease&)> leased;
    // Takes any event, and does not wait. False: there is no room for more. Then the stage reads nothing until `await_room`
    // has called `resume`.
    std::function<bool(Event)> post;
    std::function<void(std::function<void()> resume)> await_room;
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
  class Call;
  enum class Writer { kBusy, kIdle, kOver };
  // What is sent in chunks; a digest of a blob, or none for the state of the search.
  struct Value {
    std::string name, digest;
  };

  // The steps of a stage. Each is called once.
  void Prepare();
  void Begin(absl::StatusOr<v1::Lease> lease);
  std::optional<FaultInfo> Open();  // why the call was not begun
  void Close(const grpc::Status& status);
  void Conclude();                                // posts the end
  FaultInfo FaultOf(const grpc::Status& status);  // how the call ended

  // Sends the next message: the order, then values, then candidates as they come. Called by whoever made the writer busy;
  // on the pool while it reads files.
  void WriteNext();
  bool WritesCandidates() const;
  // False: the worker has yet to say which parts it lacks, so the writer is idle.
  bool ListValues();
  absl::StatusOr<std::unique_ptr<ChunkCutter>> OpenValue(const Value& value) const;
  void WriteLater();                   // on the pool
  void Lose(const absl::Status& why);  // a blob of the model
  // Whoever ends last lets gRPC end the call.
  void EndWriting();
  void EndReading();

  // One event of the worker.
  void Receive(const v1::StageEvent& event);
  void Post(Event event);
  // InvalidArgument: the worker must not send this, or not now. Nothing of such an event is used.
  absl::Status CheckTaken(const v1::StageEvent& event);
  void Take(const v1::StageEvent& event);
  void TakeChunk(const v1::Chunk& chunk);

  // Says what is missing from the result of a stage that ended without a fault; empty if nothing
  // is.
  std::string MissingResult() const;
  // In a lab: why a module that the stage sent is not of its worker and this attempt; empty: all are.
  std::string FalseModule() const;
  std::string BadPlan() const;
  // Adds the model's parts, or the modules to compare, to the order.
  absl::Status AddParts();
  // Adds the pages of all tasks' samples to the order; if that fails, the search learns from the others in
  // the message.
  void AddSamplePages();

  StageOrder order_;
  const Environment environment_;
  StageFinished end_;
  std::string lease_;    // its id; empty: none
  std::string address_;  // of the worker, as its lease tells
  // These two are the reader's while the call goes on.
  std::unique_ptr<Results> results_;
  bool room_ = true;  // for more events
  uint64_t fencing_token_ = 0;
  std::unique_ptr<FitsToAll::Claim> fit_;  // while the search learns from all tasks
  int64_t all_measured_ = 0;               // SamplePages.measured of what it was sent; 0: nothing
  std::unique_ptr<Call> call_;
  absl::Time began_;       // the call
  absl::Duration took_;    // until nothing more came
  bool connected_ = true;  // false: the worker was not to be reached
  // These are the writer's.
  bool started_ = false;
  bool knows_values_ = false;
  std::deque<Value> values_;            // that are still to be sent
  std::unique_ptr<ChunkCutter> value_;  // that is being sent

  absl::Mutex mutex_;
  Writer writer_ ABSL_GUARDED_BY(mutex_) = Writer::kBusy;
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
  absl::Notification over_;                   // nothing of this is used any more
};

}  // namespace heddle::scheduler
