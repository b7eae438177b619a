#include "worker/supervisor/worker_service.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/daemon/log.h"
#include "base/status_macros.h"
#include "proto/access/module_seal.h"
#include "proto/grpc_util.h"
#include "proto/message_rules.h"
#include "worker/supervisor/sealed_caller.h"
#include "worker/supervisor/stage_call.h"

namespace heddle::worker {
namespace {

// How long a new stage waits until a stopped one on its cores is gone. Killing and reaping takes
// milliseconds.
constexpr absl::Duration kSlotPatience = absl::Seconds(5);
// A slot has one stage, and while that ends, perhaps the next one. The others are of callers without a
// lease, which is found out on the call's own thread.
constexpr int kCallsOfSlot = 2;
constexpr int kOtherCalls = 16;

std::vector<LogField> FieldsOf(const v1::StageStart& start) {
  return {{"job", start.job()},
          {"stage",
           absl::AsciiStrToLower(absl::StripPrefix(v1::StageKind_Name(start.kind()), "STAGE_"))},
          {"attempt", start.attempt_id()},
          {"slot", start.slot()}};
}

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(const RunnerOptions& runner, const Credentials* credentials,
                                     StageTable* table, TrackerLink* link, WorkerMetrics* metrics)
    : runner_(runner),
      credentials_(credentials),
      table_(table),
      link_(link),
      metrics_(metrics),
      most_threads_(kCallsOfSlot * static_cast<int>(table->slots().size()) + kOtherCalls) {}

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
    if (threads_ >= most_threads_) {
      const absl::Status full = absl::ResourceExhaustedError(
          absl::StrCat("this worker has ", most_threads_, " calls at a time already"));
      metrics_->StageRefused(full);
      call->Finish(ToGrpc(full));
      return;
    }
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
    metrics_->StageRefused(admitted);
    std::vector<LogField> fields = FieldsOf(start);
    fields.push_back({"reason", std::string(admitted.message())});
    Log(LogLevel::kInfo, "stage refused", fields);
    call->Finish(ToGrpc(admitted));
    return;
  }
  RunnerOptions options = runner_;
  const SlotConfig& slot = *table_->FindSlot(start.slot());
  options.cores = slot.cores;
  options.gpu = slot.gpu;
  Log(LogLevel::kDebug, "stage begins", FieldsOf(start));
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
  const v1::StageFinished& finished = last.finished();
  const bool well = finished.fault().kind() == v1::FAULT_NONE;
  std::vector<LogField> fields = FieldsOf(start);
  fields.push_back({"seconds", static_cast<double>(finished.wall_ns()) * 1e-9});
  if (!well) fields.push_back({"reason", finished.fault().message()});
  Log(well ? LogLevel::kDebug : LogLevel::kInfo, well ? "stage ended" : "stage failed", fields);
  // The slot is free before the caller learns of the end and sends the next stage. The line above is logged before that, so
  // in the log no two stages of a slot overlap.
  table_->Leave(start.slot());
  call->Write(last, [] {});
  // ABORTED: the lease or the worker ended, not the work; the caller counts no attempt.
  const bool interrupted =
      call->session().stopped() && finished.fault().kind() == v1::FAULT_INFRASTRUCTURE;
  metrics_->StageEnded(start.kind(), finished, interrupted);
  call->Finish(interrupted ? grpc::Status(grpc::StatusCode::ABORTED, finished.fault().message())
                           : grpc::Status::OK);
}

}  // namespace heddle::worker
