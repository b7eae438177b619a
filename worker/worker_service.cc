#include "worker/worker_service.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/access/module_seal.h"
#include "proto/grpc_util.h"
#include "proto/message_rules.h"
#include "worker/sealed_caller.h"
#include "worker/stage_call.h"

namespace heddle::worker {
namespace {

// How long a new stage waits until a stopped one on its cores is gone. Killing and reaping takes
// milliseconds.
constexpr absl::Duration kSlotPatience = absl::Seconds(5);

}  // namespace

WorkerServiceImpl::~WorkerServiceImpl() {
  absl::MutexLock lock(&mutex_);
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return threads_ == 0; };
  mutex_.Await(absl::Condition(&none));
}

grpc::ServerBidiReactor<v1::StageInput, v1::StageEvent>* WorkerServiceImpl::RunStage(
    grpc::CallbackServerContext* context) {
  return new StageCall(this, context);
}

void WorkerServiceImpl::Launch(StageCall* call, const v1::StageStart& start) {
  {
    absl::MutexLock lock(&mutex_);
    ++threads_;
  }
  // Each call has its own thread, because a child dies when the thread that started it ends.
  std::thread([this, call, start] {
    Perform(call, start);
    absl::MutexLock lock(&mutex_);
    --threads_;
  }).detach();
}

absl::Status WorkerServiceImpl::Admit(const v1::StageStart& start, StageSession* session) {
  HEDDLE_RETURN_IF_ERROR(CheckStart(start));
  // The lease may be newer than the last heartbeat.
  if (!table_->Granted(start.lease_id(), start.slot(), start.fencing_token(), MonotonicNow())) {
    if (absl::Status status = link_->SynchronizeNow(); !status.ok()) {
      spdlog::debug("checking lease {}: {}", start.lease_id(), std::string(status.message()));
    }
  }
  return table_->Enter(start, session, kSlotPatience);
}

void WorkerServiceImpl::Perform(StageCall* call, const v1::StageStart& start) {
  const absl::Status admitted = Admit(start, &call->session());
  if (!admitted.ok()) {
    spdlog::info("refused {} of {}: {}", v1::StageKind_Name(start.kind()), start.job(),
                 std::string(admitted.message()));
    call->Finish(ToGrpc(admitted));
    return;
  }
  RunnerOptions options = runner_;
  const SlotConfig& slot = *table_->FindSlot(start.slot());
  options.cores = slot.cores;
  options.gpu = slot.gpu;
  spdlog::debug("{} of {} begins on {}", v1::StageKind_Name(start.kind()), start.job(),
                start.slot());
  v1::StageEvent last;
  // In a lab, what comes from other workers and goes to them is sealed.
  std::optional<SealedCaller> sealed;
  StageCaller* caller = call;
  if (credentials_->tls) {
    caller = &sealed.emplace(&*credentials_->tls, &start, call, &call->session());
    options.check_module = [this, &start](std::string_view file) {
      return CheckMaker(*credentials_->tls, file, start.job(), absl::Now());
    };
  }
  *last.mutable_finished() = StageRunner(start, options, *caller, call->session()).Run();
  // The slot is free before the caller learns of the end and sends the next stage.
  table_->Leave(start.slot());
  const v1::StageFinished& finished = last.finished();
  spdlog::debug("{} of {} ended on {} after {} ms: {}", v1::StageKind_Name(start.kind()),
                start.job(), start.slot(), finished.wall_ns() / 1000000,
                finished.fault().message().empty() ? "ok" : finished.fault().message());
  call->Write(last);
  // ABORTED: the lease or the worker ended, not the work; the caller counts no attempt.
  const bool interrupted =
      call->session().stopped() && finished.fault().kind() == v1::FAULT_INFRASTRUCTURE;
  call->Finish(interrupted ? grpc::Status(grpc::StatusCode::ABORTED, finished.fault().message())
                           : grpc::Status::OK);
}

}  // namespace heddle::worker
