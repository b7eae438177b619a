// A tracker and a worker that speak the protos and do nothing real, inside the test's process.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/tracker.grpc.pb.h"
#include "proto/worker.grpc.pb.h"

namespace heddle::scheduler {

// Grants every slot that is not held.
class FakeTracker final : public v1::TrackerService::Service {
 public:
  void SetWorkers(v1::ListWorkersResponse workers);
  bool Held(const std::string& slot) const;
  int grants() const;
  // The next lease gets this token, as if the tracker had lost its state.
  void SetNextToken(uint64_t token);
  // So many calls to Acquire, or to Release, end without an answer: a granted lease stays granted,
  // a release is not heard.
  std::atomic<int> lose_grants{0}, lose_releases{0};
  // As with a real tracker, leases that are not renewed end after their time, and watchers are told of
  // leases. Otherwise they never end, and are in lists only that are asked for.
  std::atomic<bool> real_leases{false};
  std::atomic<int> renewals{0};  // calls to RenewAll
  // Ends the lease of the slot.
  void Revoke(const std::string& slot);
  // Changes every answer before it is sent, under a lock; empty: none is changed.
  void SetMutator(std::function<void(google::protobuf::Message*)> mutate);

  grpc::Status Acquire(grpc::ServerContext*, const v1::AcquireRequest* request,
                       v1::Lease* lease) override;
  grpc::Status RenewAll(grpc::ServerContext*, const v1::RenewAllRequest* request,
                        v1::RenewAllResponse* response) override;
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse*) override;
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse* response) override;
  grpc::Status WatchWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest*,
                            grpc::ServerWriter<v1::ListWorkersResponse>* writer) override;

 private:
  void Mutate(google::protobuf::Message* answer);

  absl::Mutex mutating_;
  std::function<void(google::protobuf::Message*)> mutate_ ABSL_GUARDED_BY(mutating_);
  mutable absl::Mutex mutex_;
  v1::ListWorkersResponse workers_ ABSL_GUARDED_BY(mutex_);
  struct Grant {
    std::string slot, holder;
    absl::Duration duration;
    absl::Time expires;
  };
  void DropExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::ListWorkersResponse WithLeases() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<std::string, Grant> leases_ ABSL_GUARDED_BY(mutex_);  // by id
  uint64_t token_ ABSL_GUARDED_BY(mutex_) = 100;
  int grants_ ABSL_GUARDED_BY(mutex_) = 0;
  int version_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What the fake worker does; change it while it runs.
struct FakeBehaviour {
  std::atomic<int> tasks{2};
  std::atomic<int> candidate_ms{2};          // of a build and of a measurement
  std::atomic<bool> bad_model{false};        // import: user fault
  std::atomic<bool> candidates_fail{false};  // every measurement crashes
  std::atomic<int> break_profiles{0};        // so many profile streams break in the middle
  std::atomic<bool> one_task_slower{false};  // the first comparison takes its kernel back
  std::atomic<bool> plan_slower{false};      // the module of the chosen plan loses as a whole
  std::atomic<bool> bad_plan{false};         // plan: an answer without tasks
  std::atomic<bool> rival{false};     // plan: the plan of the import contends with the chosen one
  std::atomic<int> refuse_stages{0};  // so many stages are not taken
  // So many stages of candidates are refused late, as by a worker that was stopped until their leases had ended; of every
  // second one the connection breaks instead.
  std::atomic<int> refuse_late{0};
};

// The toolchain of a measurement names the fencing token of its lease: "token 101".
class FakeWorker final : public v1::WorkerService::Service {
 public:
  explicit FakeWorker(FakeBehaviour* behaviour) : behaviour_(behaviour) {}
  grpc::Status RunStage(grpc::ServerContext* context,
                        grpc::ServerReaderWriter<v1::StageEvent, v1::StageInput>* stream) override;

  // Changes every event before it is sent; empty: none is changed.
  void SetMutator(std::function<void(v1::StageEvent*)> mutate);

  std::atomic<int> stages{0};
  std::atomic<int> overlapping{0};   // stages that ran while another one had their slot
  std::atomic<int> warm_results{0};  // results that updates brought
  std::atomic<int> comparisons{0};
  std::atomic<int> plans{0};
  std::atomic<int> fits_to_all{0};  // propose stages that learned from pages of all tasks
  std::atomic<int> plan_times{0};   // times of kernels that the latest plan stage was told
  // Stages that came with another machine than the import of their job.
  std::atomic<int> other_machines{0};
  std::atomic<int64_t> blob_bytes{0};  // of all blobs that were sent
  std::atomic<int64_t> trials{0};      // measured candidates
  // What compile stages were asked for, those of fetches included.
  std::vector<v1::CompileSpec> Compiles();
  // Times in nanoseconds from the end of a stage to the begin of the next one in the same slot, since
  // the last call.
  std::vector<int64_t> TakeGaps();
  // Connections by which stages came, since the last call.
  std::set<std::string> TakePeers();

 private:
  using Stream = grpc::ServerReaderWriter<v1::StageEvent, v1::StageInput>;
  grpc::Status Build(Stream* stream);
  grpc::Status Profile(grpc::ServerContext* context, const v1::StageStart& start, Stream* stream);
  void Write(Stream* stream, v1::StageEvent event);
  // Hands on a model of as many tasks as the stage's pages have.
  void LearnFromPages(Stream* stream, const v1::StageStart& start);
  void SendBlob(Stream* stream, const std::string& name, const std::string& bytes);
  void Finish(Stream* stream, v1::FaultKind kind = v1::FAULT_NONE, const std::string& message = "");

  FakeBehaviour* const behaviour_;
  absl::Mutex mutating_;
  std::function<void(v1::StageEvent*)> mutate_ ABSL_GUARDED_BY(mutating_);
  absl::Mutex mutex_;
  std::set<std::string> busy_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Time> ended_ ABSL_GUARDED_BY(mutex_);  // the latest stage, by slot
  std::vector<int64_t> gaps_ns_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::CompileSpec> compiles_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> peers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> machines_ ABSL_GUARDED_BY(mutex_);  // of imports, by job
  std::map<std::string, std::string> blobs_ ABSL_GUARDED_BY(mutex_);     // it keeps them all
  std::atomic<int> traces_{0};
};

// Both, served on loopback: one CPU slot, one device slot for "llvm -mcpu=x".
class FakeCluster {
 public:
  FakeCluster();
  ~FakeCluster();
  const std::string& tracker_address() const { return tracker_address_; }
  v1::ListWorkersResponse DefaultWorkers() const;

  FakeBehaviour behaviour;
  FakeTracker tracker;
  FakeWorker worker{&behaviour};

 private:
  std::unique_ptr<grpc::Server> tracker_server_, worker_server_;
  std::string tracker_address_, worker_address_;
};

}  // namespace heddle::scheduler
