#include "worker/supervisor/stage_call.h"

#include <algorithm>

#include "base/clock.h"

namespace heddle::worker {
namespace {

// Inputs that are read ahead. With artifacts of about 100 KB and chunks of 1 MiB they take little
// memory; gRPC's flow control holds back the rest.
constexpr size_t kReadAhead = 8;
// A caller that takes nothing for this long counts as gone. After a stop the limit is shorter, so
// that the caller cannot keep the slot.
constexpr absl::Duration kWriteLimit = absl::Seconds(60);
constexpr absl::Duration kStoppedWriteLimit = absl::Seconds(2);
// How often a performing thread that waits for the caller does something else.
constexpr absl::Duration kMeanwhile = absl::Milliseconds(50);

}  // namespace

StageCall::StageCall(WorkerServiceImpl* service, grpc::CallbackServerContext* context)
    : service_(service), context_(context) {
  StartRead(&incoming_);
}

void StageCall::OnReadDone(bool ok) {
  if (!started_) {
    started_ = true;
    if (!ok || !incoming_.has_start()) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the first message must be `start`"));
      return;
    }
    const v1::StageStart start = incoming_.start();
    StartRead(&incoming_);
    service_->Launch(this, start);
    return;
  }
  absl::MutexLock lock(&mutex_);
  reading_ = false;
  if (ok) {
    queue_.push_back(std::move(incoming_));
  } else {
    ended_ = true;
  }
  if (ok && queue_.size() < kReadAhead) {
    reading_ = true;
    StartRead(&incoming_);
  }
  session_.Notify();
}

void StageCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  write_ok_ = ok;
  writing_ = false;
}

void StageCall::OnCancel() {
  absl::MutexLock lock(&mutex_);
  gone_ = true;
  session_.Notify();
}

void StageCall::OnDone() { delete this; }

bool StageCall::Read(v1::StageInput* input) {
  absl::MutexLock lock(&mutex_);
  if (queue_.empty()) return false;
  *input = std::move(queue_.front());
  queue_.pop_front();
  if (!reading_ && !ended_) {
    reading_ = true;
    StartRead(&incoming_);
  }
  return true;
}

bool StageCall::InputEnded() {
  absl::MutexLock lock(&mutex_);
  return ended_ && queue_.empty();
}

bool StageCall::Gone() {
  absl::MutexLock lock(&mutex_);
  return gone_;
}

bool StageCall::Write(const v1::StageEvent& event, const std::function<void()>& meanwhile) {
  {
    absl::MutexLock lock(&mutex_);
    if (gone_) return false;
    writing_ = true;
    StartWrite(&event);
  }
  const absl::Time give_up = MonotonicNow() + kWriteLimit;
  absl::Time stopped_at = absl::InfiniteFuture();
  // gRPC uses the event until the write is done, so this waits for that even after giving up.
  while (!AwaitWritten(kMeanwhile)) {
    const absl::Time now = MonotonicNow();
    if (session_.stopped()) stopped_at = std::min(stopped_at, now);
    if (now > give_up || now > stopped_at + kStoppedWriteLimit) context_->TryCancel();
    meanwhile();
  }
  absl::MutexLock lock(&mutex_);
  return write_ok_;
}

bool StageCall::AwaitWritten(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  const auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !writing_; };
  return mutex_.AwaitWithTimeout(absl::Condition(&written), patience);
}

}  // namespace heddle::worker
