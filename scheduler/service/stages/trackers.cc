#include "scheduler/service/stages/trackers.h"

#include <algorithm>

#include "base/clock.h"
#include "base/daemon/log.h"
#include "proto/access/channel.h"
#include "proto/check_message.h"
#include "proto/grpc_util.h"
#include "proto/leader_calls.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kCallLimit = absl::Milliseconds(1500);
constexpr absl::Duration kBeforeChoice =
    absl::Milliseconds(100);  // between calls while none is in use

}  // namespace

Trackers::Trackers(Options options) : options_(std::move(options)) {
  const Pings pings = options_.addresses.size() > 1 ? LeaderPings() : Pings();
  for (const std::string& address : options_.addresses) {
    stubs_.push_back(v1::TrackerService::NewStub(
        MakeChannel(address, PeerName(Role::kTracker), options_.credentials, pings)));
  }
  problems_.resize(stubs_.size());
}

Trackers::~Trackers() { End(); }

void Trackers::Begin(std::function<void()> changed) {
  if (stubs_.size() < 2) return;
  changed_ = std::move(changed);
  {
    absl::MutexLock lock(&mutex_);
    choice_ = std::make_unique<TrackerChoice>(stubs_.size(), MonotonicNow(), options_.choice);
  }
  for (size_t i = 0; i < stubs_.size(); ++i) threads_.emplace_back([this, i] { Loop(i); });
}

void Trackers::End() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Trackers::SawToken(uint64_t token) {
  absl::MutexLock lock(&mutex_);
  token_ = std::max(token_, token);
}

size_t Trackers::Current() const {
  absl::MutexLock lock(&mutex_);
  return current_;
}

void Trackers::Loop(size_t tracker) {
  while (true) {
    // In this order: it led at that time, even if this thread is held up before it calls.
    const absl::Time now = MonotonicNow();
    if (options_.leads()) Call(tracker, now);
    absl::MutexLock lock(&mutex_);
    const absl::Duration pause =
        choice_->used() ? options_.choice.appointed_for / 6 : kBeforeChoice;
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), pause)) return;
  }
}

void Trackers::Call(size_t tracker, absl::Time now) {
  v1::AppointRequest request;
  request.set_holder(options_.holder);
  request.set_epoch(options_.epoch);
  request.set_duration_ms(absl::ToInt64Milliseconds(options_.choice.appointed_for));
  bool moved = false;
  {
    absl::MutexLock lock(&mutex_);
    const TrackerChoice::Call call = choice_->CallTo(tracker, now);
    request.set_echo_ns(call.echo_ns);
    request.set_forget(call.forget);
    request.set_above_token(token_);
    moved = choice_->used() && choice_->used() != told_;
    if (moved) told_ = current_ = *choice_->used();
  }
  if (moved) {
    Log(LogLevel::kInfo, "this tracker is in use now", {{"tracker", address()}});
    changed_();
  }
  grpc::ClientContext context;
  SetDeadline(&context, kCallLimit);
  v1::AppointResponse response;
  absl::Status answered = FromGrpc(stubs_[tracker]->Appoint(&context, request, &response));
  if (answered.ok()) answered = CheckMessage(response);
  const absl::Time received = MonotonicNow();
  const std::string problem(answered.message());
  bool news = false;
  {
    absl::MutexLock lock(&mutex_);
    news = std::exchange(problems_[tracker], problem) != problem && !answered.ok();
    if (answered.ok()) {
      choice_->TakeAnswer(tracker,
                          {.clock_ns = response.clock_ns(),
                           .remaining = absl::Milliseconds(response.remaining_ms()),
                           .idle = response.has_idle_ms() ? absl::Milliseconds(response.idle_ms())
                                                          : absl::InfiniteDuration()},
                          received);
    }
  }
  if (news) {
    Log(LogLevel::kWarning, "a tracker cannot be appointed",
        {{"tracker", options_.addresses[tracker]}, {"problem", problem}});
  }
}

}  // namespace heddle::scheduler
