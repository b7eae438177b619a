// One RunStage call: a gRPC reactor on one side, and the StageCaller of the performing thread on
// the other.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/supervisor/stage_session.h"
#include "worker/supervisor/worker_service.h"

namespace heddle::worker {

// Deletes itself when gRPC is done with it. That is after Finish, the last access by the performing
// thread.
class StageCall final : public grpc::ServerBidiReactor<v1::StageInput, v1::StageEvent>,
                        public StageCaller {
 public:
  StageCall(WorkerServiceImpl* service, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  bool Read(v1::StageInput* input) override;
  bool InputEnded() override;
  bool Gone() override;
  bool Write(const v1::StageEvent& event, const std::function<void()>& meanwhile) override;

  StageSession& session() { return session_; }

 private:
  // Whether the event that is being written is gone within this time.
  bool AwaitWritten(absl::Duration patience);

  WorkerServiceImpl* const service_;
  grpc::CallbackServerContext* const context_;
  StageSession session_;
  v1::StageInput incoming_;  // owned by gRPC until OnReadDone
  bool started_ = false;     // OnReadDone only

  absl::Mutex mutex_;
  std::deque<v1::StageInput> queue_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool write_ok_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::worker
