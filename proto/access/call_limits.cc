#include "proto/access/call_limits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace heddle {
namespace {

constexpr std::array<const char*, CallLimits::kKinds> kNames = {
    "uploads", "watches",         "downloads",
    "queries", "long queries",    "backups",
    "checks",  "calls of upkeep", "watches of schedulers"};

// The peer without its port: "ipv4:10.0.0.7:5123" becomes "ipv4:10.0.0.7". A peer with many
// connections is one peer.
std::string HostOf(const std::string& peer) {
  if (!peer.starts_with("ipv4:") && !peer.starts_with("ipv6:")) return peer;
  return peer.substr(0, peer.rfind(':'));
}

// Whose calls count together.
std::string PeerOf(const grpc::ServerContext& context, const Identity& caller) {
  return caller.role == Role::kLocal ? HostOf(context.peer()) : ToText(caller);
}

}  // namespace

CallLimits::Call::Call(CallLimits* limits, Kind kind, grpc::ServerContext* context,
                       const Identity& caller)
    : limits_(limits), kind_(kind), context_(context), peer_(PeerOf(*context, caller)) {
  limits_->Admit(this);
}

CallLimits::Call::~Call() { limits_->Leave(this); }

CallLimits::CallLimits(const Options& options) : options_(options), thread_([this] { Watch(); }) {}

CallLimits::~CallLimits() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void CallLimits::Admit(Call* call) {
  const int most = options_.most[call->kind_];
  // All callers of this host are one peer here, so for them there is only the limit in all.
  const bool local = call->peer_.starts_with("ipv4:127.") || call->peer_ == "ipv6:[::1]" ||
                     call->peer_ == "ipv6:%5B::1%5D" || call->peer_.starts_with("unix:");
  const int most_of_peer = local ? most : std::max(1, static_cast<int>(most * options_.share));
  const std::pair key(call->kind_, call->peer_);
  absl::MutexLock lock(&mutex_);
  const auto of_peer = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = of_peer_.find(key);
    return found == of_peer_.end() ? 0 : found->second;
  };
  const auto room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_ || (count_[call->kind_] < most && of_peer() < most_of_peer);
  };
  if (!room()) {
    MakeRoom(*call);
    mutex_.AwaitWithTimeout(absl::Condition(&room), options_.queueing);
  }
  if (!room() || stop_) {
    const bool theirs = count_[call->kind_] < most;
    if (options_.refused) options_.refused(theirs ? Refusal::kCallerFull : Refusal::kServiceFull);
    const int64_t wait_ms = absl::ToInt64Milliseconds(options_.retry_after);
    call->context_->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(wait_ms));
    call->status_ = {
        grpc::StatusCode::RESOURCE_EXHAUSTED,
        absl::StrCat(theirs ? "you have " : "the service has ", theirs ? most_of_peer : most, " ",
                     kNames[call->kind_], " at a time already; try again after ", wait_ms, " ms")};
    return;
  }
  ++count_[call->kind_];
  ++of_peer_[key];
  call->place_ = calls_.insert(calls_.end(), call);
}

void CallLimits::Leave(Call* call) {
  if (!call->ok()) return;
  absl::MutexLock lock(&mutex_);
  calls_.erase(call->place_);
  --count_[call->kind_];
  const auto of_peer = of_peer_.find({call->kind_, call->peer_});
  if (--of_peer->second == 0) of_peer_.erase(of_peer);
}

void CallLimits::NoteWait(Call* call, bool waits) {
  const absl::Time since = waits ? MonotonicNow() : absl::InfiniteFuture();
  absl::MutexLock lock(&mutex_);
  call->waits_since_ = since;
}

void CallLimits::Cancel(Call* call) {
  call->cancelled_ = true;
  if (options_.refused) options_.refused(Refusal::kSlowPeer);
  call->context_->TryCancel();
}

void CallLimits::MakeRoom(const Call& wanted) {
  // Whoever has used up its own share makes room for itself only.
  const bool all_full = count_[wanted.kind_] >= options_.most[wanted.kind_];
  Call* slowest = nullptr;
  for (Call* call : calls_) {
    if (call->cancelled_ || call->kind_ != wanted.kind_ ||
        (!all_full && call->peer_ != wanted.peer_))
      continue;
    if (slowest == nullptr || call->waits_since_ < slowest->waits_since_) slowest = call;
  }
  if (slowest != nullptr && slowest->waits_since_ <= MonotonicNow() - options_.crowded_patience)
    Cancel(slowest);
}

void CallLimits::Watch() {
  const absl::Duration pause = std::min(absl::Seconds(1), options_.patience / 4);
  absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&stop_), pause)) {
    const absl::Time latest = MonotonicNow() - options_.patience;
    for (Call* call : calls_) {
      if (!call->cancelled_ && call->waits_since_ <= latest) Cancel(call);
    }
  }
}

}  // namespace heddle
