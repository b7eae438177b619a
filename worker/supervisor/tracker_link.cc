#include "worker/supervisor/tracker_link.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <algorithm>

#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/access/channel.h"
#include "proto/check_message.h"

namespace heddle::worker {
namespace {

// A tracker answers within milliseconds. After this time it counts as unreachable.
constexpr absl::Duration kCallLimit = absl::Seconds(3);
// Pauses while the tracker is unreachable: short at first, since it restarts within a second, and
// bounded so that the worker soon reconnects.
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
constexpr absl::Duration kLongestOfSeveral = absl::Seconds(1);  // after a round of several trackers
constexpr absl::Duration kShortestInterval = absl::Milliseconds(50);

std::shared_ptr<grpc::Channel> MakeTrackerChannel(const std::string& address,
                                                  const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  // gRPC's own backoff must not be longer than this one.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Time for one attempt: a handshake over TLS takes a while on a busy host.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  const std::shared_ptr<grpc::ChannelCredentials> connection =
      ChannelCredentialsFor(address, PeerName(Role::kTracker), credentials, &arguments);
  return grpc::CreateCustomChannel(address, connection, arguments);
}

}  // namespace

TrackerLink::TrackerLink(const std::vector<std::string>& trackers, const Credentials& credentials,
                         const v1::SynchronizeRequest& report, StageTable* table,
                         const SlotGuard* guard)
    : table_(table), guard_(guard), report_(report), rng_(std::random_device()()) {
  for (const std::string& address : trackers) {
    trackers_.push_back(
        {address, v1::TrackerService::NewStub(MakeTrackerChannel(address, credentials))});
  }
}

TrackerLink::~TrackerLink() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void TrackerLink::Start(const std::string& address) {
  {
    absl::MutexLock calling(&calling_);
    report_.set_address(address);
  }
  thread_ = std::thread([this] { Loop(); });
}

void TrackerLink::SetLeaving(absl::Duration notice) {
  absl::MutexLock lock(&mutex_);
  leaves_ = MonotonicNow() + notice;
}

bool TrackerLink::connected() const {
  absl::MutexLock lock(&mutex_);
  return connected_;
}

int64_t TrackerLink::disconnects() const {
  absl::MutexLock lock(&mutex_);
  return disconnects_;
}

absl::Time TrackerLink::last_call() const {
  absl::MutexLock lock(&mutex_);
  return last_call_;
}

absl::Status TrackerLink::SynchronizeNow() {
  absl::MutexLock calling(&calling_);
  if (report_.address().empty()) return absl::UnavailableError("the worker is starting");
  absl::Status called;
  for (size_t i = 0; i < trackers_.size(); ++i) {
    called = CallCurrent();
    if (called.ok()) break;
    current_ = (current_ + 1) % trackers_.size();
  }
  return called;
}

absl::Status TrackerLink::CallCurrent() {
  v1::SynchronizeRequest request = report_;
  {
    absl::MutexLock lock(&mutex_);
    last_call_ = MonotonicNow();
    if (leaves_ != absl::InfiniteFuture()) {
      request.set_draining(true);
      request.set_leaving_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(leaves_ - last_call_)));
    }
  }
  for (const std::string& lease : table_->RunningLeases()) request.add_running_leases(lease);
  for (const auto& [slot, reason] : guard_->Troubles()) {
    v1::SlotTrouble* trouble = request.add_troubles();
    trouble->set_slot(slot);
    trouble->set_reason(reason);
  }
  double load = 0;
  if (getloadavg(&load, 1) == 1) request.set_load_average(load);
  TrimLines(&request);  // a long reason for people must not keep the worker out
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kCallLimit));
  v1::SynchronizeResponse response;
  const absl::Time sent = MonotonicNow();
  const Tracker& tracker = trackers_[current_];
  const grpc::Status status = tracker.stub->Synchronize(&context, request, &response);
  {
    absl::MutexLock lock(&mutex_);
    if (!told_ || connected_ != status.ok()) {
      if (status.ok()) {
        spdlog::info("tracker {}: connected", tracker.address);
      } else {
        spdlog::warn("tracker {}: {}", tracker.address, status.error_message());
      }
    }
    if (connected_ && !status.ok()) ++disconnects_;
    connected_ = status.ok();
    told_ = true;
  }
  if (!status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  HEDDLE_RETURN_IF_ERROR(CheckMessage(response));
  std::vector<Grant> grants;
  for (const v1::LeaseGrant& grant : response.grants()) {
    // Counted from before the call, so that a lease never lives longer here than at the tracker.
    grants.push_back({.lease_id = grant.lease_id(),
                      .slot = grant.slot(),
                      .fencing_token = grant.fencing_token(),
                      .expires = sent + absl::Milliseconds(grant.remaining_ms())});
  }
  table_->SetGrants(std::move(grants), MonotonicNow());
  next_ = std::max(kShortestInterval, absl::Milliseconds(response.next_sync_ms()));
  return absl::OkStatus();
}

void TrackerLink::Loop() {
  const bool several = trackers_.size() > 1;
  absl::Duration pause = kFirstPause;
  std::uniform_real_distribution<double> half(0.5, 1);
  std::uniform_real_distribution<double> full(0, 1);
  while (true) {
    absl::Duration wait;
    if (SynchronizeNow().ok()) {
      pause = kFirstPause;
      absl::MutexLock calling(&calling_);
      wait = half(rng_) * next_;
    } else {
      wait = full(rng_) * pause;
      pause = std::min(several ? kLongestOfSeveral : kLongestPause, 2 * pause);
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), wait)) return;
  }
}

}  // namespace heddle::worker
