#include "scheduler/lease_keeper.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/grpc_util.h"
#include "scheduler/monotonic.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kLease = absl::Seconds(60);
constexpr absl::Duration kRenewEvery = absl::Seconds(20);  // two more tries before it expires
constexpr absl::Duration kRetryRenew = absl::Seconds(2);
constexpr absl::Duration kRpcLimit = absl::Seconds(5);
constexpr absl::Duration kRememberReleased =
    absl::Seconds(10);  // the tracker's list is at most this old

}  // namespace

LeaseKeeper::LeaseKeeper(std::shared_ptr<v1::TrackerService::StubInterface> tracker,
                         std::string holder)
    : tracker_(std::move(tracker)), holder_(std::move(holder)), thread_([this] { Loop(); }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

absl::StatusOr<v1::Lease> LeaseKeeper::Acquire(const SlotId& slot, const std::string& purpose,
                                               std::function<void()> lost) {
  grpc::ClientContext context;
  SetDeadline(&context, kRpcLimit);
  v1::AcquireRequest request;
  request.set_worker(slot.worker);
  request.set_slot(slot.slot);
  request.set_holder(holder_);
  request.set_purpose(purpose);
  request.set_duration_ms(absl::ToInt64Milliseconds(kLease));
  v1::Lease lease;
  const absl::Time asked = MonotonicNow();
  if (grpc::Status status = tracker_->Acquire(&context, request, &lease); !status.ok())
    return FromGrpc(status);
  absl::MutexLock lock(&mutex_);
  held_[lease.id()] = {asked + kRenewEvery, asked + kLease, std::move(lost)};
  return lease;
}

void LeaseKeeper::Release(const std::string& lease_id) {
  {
    absl::MutexLock lock(&mutex_);
    held_.erase(lease_id);
    const absl::Time now = MonotonicNow();
    released_[lease_id] = now;
    std::erase_if(released_,
                  [&](const auto& entry) { return entry.second < now - kRememberReleased; });
  }
  grpc::ClientContext context;
  SetDeadline(&context, kRpcLimit);
  v1::ReleaseRequest request;
  request.set_lease_id(lease_id);
  v1::ReleaseResponse response;
  // Should the call fail, the lease expires by itself.
  (void)tracker_->Release(&context, request, &response);
}

bool LeaseKeeper::IsOurs(const std::string& lease_id) const {
  absl::MutexLock lock(&mutex_);
  return held_.count(lease_id) > 0 || released_.count(lease_id) > 0;
}

void LeaseKeeper::ReleaseFormer(const v1::ListWorkersResponse& list) {
  for (const v1::WorkerStatus& worker : list.workers()) {
    for (const v1::SlotStatus& slot : worker.slots()) {
      if (slot.state() == v1::SLOT_HELD && slot.holder() == holder_) Release(slot.lease_id());
    }
  }
}

void LeaseKeeper::Loop() {
  while (true) {
    std::vector<std::string> due;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&stop_), absl::Seconds(1));
      if (stop_) return;
      const absl::Time now = MonotonicNow();
      for (const auto& [id, held] : held_) {
        if (held.renew_at <= now) due.push_back(id);
      }
    }
    for (const std::string& id : due) Renew(id);
  }
}

void LeaseKeeper::Renew(const std::string& lease_id) {
  grpc::ClientContext context;
  SetDeadline(&context, kRpcLimit);
  v1::RenewRequest request;
  request.set_lease_id(lease_id);
  request.set_duration_ms(absl::ToInt64Milliseconds(kLease));
  v1::Lease lease;
  const absl::Time asked = MonotonicNow();
  const grpc::Status status = tracker_->Renew(&context, request, &lease);
  absl::MutexLock lock(&mutex_);
  auto it = held_.find(lease_id);
  if (it == held_.end()) return;
  if (status.ok()) {
    it->second.renew_at = asked + kRenewEvery;
    it->second.expires_at = asked + kLease;
  } else if (status.error_code() == grpc::StatusCode::NOT_FOUND ||
             it->second.expires_at <= MonotonicNow()) {
    // Under the lock, so that the holder is still there; it only asks for a cancellation.
    if (it->second.lost) it->second.lost();
    held_.erase(it);
  } else {
    it->second.renew_at = asked + kRetryRenew;
  }
}

}  // namespace heddle::scheduler
