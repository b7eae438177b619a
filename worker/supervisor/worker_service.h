// RunStage over gRPC: admission by lease, then one thread per stage that runs StageRunner.
#pragma once

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/access/credentials.h"
#include "proto/worker.grpc.pb.h"
#include "worker/supervisor/metrics.h"
#include "worker/supervisor/stage_runner.h"
#include "worker/supervisor/stage_table.h"
#include "worker/supervisor/tracker_link.h"

namespace heddle::worker {

class StageCall;

class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  // `runner` has the options of every stage. The service fills in `cores` and `gpu`, which differ from slot to
  // slot. What the pointers point to must outlive the service.
  WorkerServiceImpl(const RunnerOptions& runner, const Credentials* credentials, StageTable* table,
                    TrackerLink* link, WorkerMetrics* metrics);
  // Waits for the threads of all calls.
  ~WorkerServiceImpl() override;

  grpc::ServerBidiReactor<v1::StageInput, v1::StageEvent>* RunStage(
      grpc::CallbackServerContext* context) override;

 private:
  friend class StageCall;
  // Starts the thread that performs the call, once `start` has arrived. Where there are far more calls than slots, it
  // refuses the call with ResourceExhausted instead.
  void Launch(StageCall* call, const v1::StageStart& start);
  absl::Status Admit(const v1::StageStart& start, StageSession* session);
  void Perform(StageCall* call, const v1::StageStart& start);

  const RunnerOptions runner_;
  const Credentials* const credentials_;
  StageTable* const table_;
  TrackerLink* const link_;
  WorkerMetrics* const metrics_;
  absl::Mutex mutex_;
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;  // at most most_threads_
  const int most_threads_;
};

}  // namespace heddle::worker
