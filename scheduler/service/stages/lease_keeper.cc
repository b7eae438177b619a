#include "scheduler/service/stages/lease_keeper.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/thread_priority.h"
#include "proto/check_message.h"
#include "proto/grpc_util.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kLongestRetry = absl::Seconds(2);
constexpr absl::Duration kLongestRpc = absl::Seconds(5);
constexpr size_t kMostRenewed = 8192;  // in one call, by its rule
constexpr absl::Duration kRememberReleased =
    absl::Seconds(10);  // the tracker's list is at most this old
// Not with each of hundreds of releases a second, since that looks at all of the last ten seconds.
constexpr absl::Duration kForgetEvery = absl::Seconds(1);

// Between an announcement and its release a stage only posts its end.
constexpr absl::Duration kAnnouncedLongAgo = absl::Seconds(1);

// The tracker may or may not have done what it was asked.
bool Unanswered(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

}  // namespace

LeaseKeeper::LeaseKeeper(TrackerInUse tracker, std::string holder, absl::Duration lease)
    : tracker_(std::move(tracker)),
      holder_(std::move(holder)),
      lease_(lease),
      renew_every_(lease / 3),  // this leaves two more tries before the lease expires
      retry_renew_(std::min(kLongestRetry, lease / 10)),
      rpc_limit_(std::min(kLongestRpc, lease / 3)),
      thread_([this] { Loop(); }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
  AskForWaiting();
  auto answered = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_ == 0; };
  absl::MutexLock lock(&mutex_, absl::Condition(&answered));
}

void LeaseKeeper::Acquire(const SlotId& slot, const std::string& purpose,
                          std::function<void()> lost,
                          std::function<void(absl::StatusOr<v1::Lease>)> done) {
  {
    absl::MutexLock lock(&mutex_);
    acquiring_.insert(slot);
    ++calls_;
    const std::string host = HostOf(slot.worker);
    if (!AllReleased(host, last_release_)) {
      waiting_.push_back({host, last_release_, MonotonicNow() + rpc_limit_,
                          [this, slot, purpose, lost = std::move(lost), done = std::move(done)] {
                            Ask(slot, purpose, lost, done);
                          }});
      return;
    }
  }
  Ask(slot, purpose, std::move(lost), done);
}

void LeaseKeeper::Ask(const SlotId& slot, const std::string& purpose, std::function<void()> lost,
                      const std::function<void(absl::StatusOr<v1::Lease>)>& done) {
  struct Call {
    grpc::ClientContext context;
    v1::AcquireRequest request;
    v1::Lease lease;
  };
  auto call = std::make_shared<Call>();
  call->request.set_worker(slot.worker);
  call->request.set_slot(slot.slot);
  call->request.set_holder(holder_);
  call->request.set_purpose(purpose);
  call->request.set_duration_ms(absl::ToInt64Milliseconds(lease_));
  SetDeadline(&call->context, rpc_limit_);
  const absl::Time asked = MonotonicNow();
  v1::AcquireRequest* const request = &call->request;
  grpc::ClientContext* const context = &call->context;
  v1::Lease* const lease = &call->lease;
  tracker_->async()->Acquire(
      context, request, lease,
      [this, call = std::move(call), slot, lost = std::move(lost), done,
       asked](const grpc::Status& status) mutable {
        RunCallbacksBeforeOthers();
        absl::StatusOr<v1::Lease> answer =
            TakeAnswer(slot, status, call->lease, asked, std::move(lost));
        call.reset();  // a thread of gRPC must not destroy the channel, so this lets go of it before EndCall
        done(std::move(answer));
        EndCall();
      });
}

absl::StatusOr<v1::Lease> LeaseKeeper::TakeAnswer(const SlotId& slot, const grpc::Status& status,
                                                  const v1::Lease& lease, absl::Time asked,
                                                  std::function<void()> lost) {
  absl::Status refused = FromGrpc(status);
  if (refused.ok()) refused = CheckMessage(lease);
  const bool granted = status.ok();
  if (refused.ok() && MonotonicNow() >= asked + lease_)
    refused = absl::DeadlineExceededError("the tracker's answer came after the end of the lease");
  absl::MutexLock lock(&mutex_);
  acquiring_.erase(slot);
  if (!refused.ok()) {
    ++counts_.refused;
    if (granted || Unanswered(status)) strays_.insert(slot);
    return refused;
  }
  ++counts_.granted;
  held_[lease.id()] = {slot.worker, asked + renew_every_, asked + lease_, std::move(lost)};
  return lease;
}

bool LeaseKeeper::AllReleased(const std::string& host, int64_t before) const {
  const auto there = releases_.find(host);
  return there == releases_.end() || *there->second.begin() > before;
}

void LeaseKeeper::AskForWaiting() {
  std::list<Waiting> ready;
  {
    const absl::Time now = MonotonicNow();
    absl::MutexLock lock(&mutex_);
    for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
      const auto next = std::next(waiting);
      if (stop_ || waiting->until <= now || AllReleased(waiting->host, waiting->before))
        ready.splice(ready.end(), waiting_, waiting);
      waiting = next;
    }
  }
  for (const Waiting& waiting : ready) waiting.ask();
}

void LeaseKeeper::EndCall() {
  absl::MutexLock lock(&mutex_);
  --calls_;
}

void LeaseKeeper::AnnounceRelease(const std::string& lease_id) {
  absl::MutexLock lock(&mutex_);
  const auto held = held_.find(lease_id);
  if (held == held_.end() || announced_.count(lease_id) > 0) return;  // lost: nobody holds the slot
  const Announced release{HostOf(held->second.worker), ++last_release_, MonotonicNow()};
  announced_[lease_id] = release;
  releases_[release.host].insert(release.number);
}

std::string LeaseKeeper::HostOf(const std::string& worker) const {
  const auto known = hosts_.find(worker);
  return known == hosts_.end() ? worker : known->second;
}

void LeaseKeeper::SetHosts(const v1::ListWorkersResponse& list, bool whole) {
  absl::MutexLock lock(&mutex_);
  if (whole) hosts_.clear();
  for (const std::string& gone : list.gone()) hosts_.erase(gone);
  for (const v1::WorkerStatus& worker : list.workers()) hosts_[worker.worker()] = worker.host();
}

void LeaseKeeper::Release(const std::string& lease_id) {
  struct Call {
    grpc::ClientContext context;
    v1::ReleaseRequest request;
    v1::ReleaseResponse response;
  };
  BeginRelease({lease_id});
  {
    absl::MutexLock lock(&mutex_);
    ++calls_;
  }
  auto call = std::make_shared<Call>();
  call->request.set_lease_id(lease_id);
  SetDeadline(&call->context, rpc_limit_);
  v1::ReleaseRequest* const request = &call->request;
  grpc::ClientContext* const context = &call->context;
  v1::ReleaseResponse* const response = &call->response;
  tracker_->async()->Release(context, request, response,
                             [this, call = std::move(call), lease_id,
                              begun = MonotonicNow()](const grpc::Status& status) mutable {
                               RunCallbacksBeforeOthers();
                               call.reset();
                               EndRelease(lease_id, !Unanswered(status), begun);
                               EndCall();
                             });
}

void LeaseKeeper::ReleaseAll(const std::vector<std::string>& lease_ids) {
  const absl::Time begun = MonotonicNow();
  BeginRelease(lease_ids);
  bool answers = true;
  for (const std::string& id : lease_ids) {
    answers = answers && MonotonicNow() < begun + rpc_limit_ && SendRelease(id);
    EndRelease(id, answers, begun);
  }
}

// From now on they are not held, whatever the tracker says.
void LeaseKeeper::BeginRelease(const std::vector<std::string>& lease_ids) {
  const absl::Time now = MonotonicNow();
  absl::MutexLock lock(&mutex_);
  if (forget_at_ <= now) {
    forget_at_ = now + kForgetEvery;
    std::erase_if(released_,
                  [&](const auto& entry) { return entry.second < now - kRememberReleased; });
  }
  for (const std::string& id : lease_ids) {
    held_.erase(id);
    released_[id] = now;
  }
}

void LeaseKeeper::EndRelease(const std::string& lease_id, bool answered, absl::Time begun) {
  {
    absl::MutexLock lock(&mutex_);
    if (!answered) unreleased_[lease_id] = begun + lease_;
    const auto announced = announced_.find(lease_id);
    if (announced == announced_.end()) return;
    const auto there = releases_.find(announced->second.host);
    there->second.erase(announced->second.number);
    if (there->second.empty()) releases_.erase(there);
    announced_.erase(announced);
  }
  AskForWaiting();
}

void LeaseKeeper::ReleaseLater(const std::vector<std::string>& lease_ids) {
  const absl::Time now = MonotonicNow();
  absl::MutexLock lock(&mutex_);
  for (const std::string& id : lease_ids) {
    released_[id] = now;
    unreleased_[id] = now + lease_;
  }
}

bool LeaseKeeper::SendRelease(const std::string& lease_id) {
  grpc::ClientContext context;
  SetDeadline(&context, rpc_limit_);
  v1::ReleaseRequest request;
  request.set_lease_id(lease_id);
  v1::ReleaseResponse response;
  return !Unanswered(tracker_->Release(&context, request, &response));
}

void LeaseKeeper::ReleaseAnnounced() {
  std::vector<std::string> ids;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time long_ago = MonotonicNow() - kAnnouncedLongAgo;
    for (const auto& [id, release] : announced_) {
      if (release.at <= long_ago) ids.push_back(id);
    }
  }
  ReleaseAll(ids);
}

void LeaseKeeper::ReleaseAgain() {
  std::vector<std::string> ids;
  const absl::Time now = MonotonicNow();
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(unreleased_, [&](const auto& entry) { return entry.second < now; });
    for (const auto& [id, until] : unreleased_) ids.push_back(id);
  }
  for (const std::string& id : ids) {
    // Renewals wait for this. What is left comes with the next round.
    if (MonotonicNow() >= now + rpc_limit_) return;
    if (!SendRelease(id)) return;  // the tracker does not answer, so the others would fail too
    absl::MutexLock lock(&mutex_);
    unreleased_.erase(id);
  }
}

void LeaseKeeper::ReleaseStrays() {
  {
    absl::MutexLock lock(&mutex_);
    if (strays_.empty()) return;
  }
  grpc::ClientContext context;
  SetDeadline(&context, rpc_limit_);
  v1::ListWorkersResponse list;
  if (!tracker_->ListWorkers(&context, {}, &list).ok()) return;
  std::vector<std::string> ids;
  {
    absl::MutexLock lock(&mutex_);
    for (const v1::WorkerStatus& worker : list.workers()) {
      for (const v1::SlotStatus& status : worker.slots()) {
        const SlotId slot{worker.worker(), status.slot().name()};
        const bool stray = strays_.count(slot) > 0 && acquiring_.count(slot) == 0 &&
                           status.state() == v1::SLOT_HELD && status.holder() == holder_ &&
                           held_.count(status.lease_id()) == 0;
        if (stray) ids.push_back(status.lease_id());
      }
    }
    std::erase_if(strays_, [this](const SlotId& slot) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return acquiring_.count(slot) == 0;
    });
  }
  ReleaseAll(ids);
}

bool LeaseKeeper::IsOurs(const SlotId& slot, const v1::SlotStatus& status) const {
  absl::MutexLock lock(&mutex_);
  return held_.count(status.lease_id()) > 0 || released_.count(status.lease_id()) > 0 ||
         // The list may come before the answer to Acquire.
         (status.holder() == holder_ && acquiring_.count(slot) > 0);
}

LeaseKeeper::Counts LeaseKeeper::counts() const {
  absl::MutexLock lock(&mutex_);
  Counts counts = counts_;
  counts.held = static_cast<int64_t>(held_.size());
  return counts;
}

void LeaseKeeper::ReleaseFormer(const v1::ListWorkersResponse& list) {
  std::vector<std::string> ids;
  for (const v1::WorkerStatus& worker : list.workers()) {
    for (const v1::SlotStatus& slot : worker.slots()) {
      if (slot.state() == v1::SLOT_HELD && slot.holder() == holder_) ids.push_back(slot.lease_id());
    }
  }
  ReleaseAll(ids);
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
    for (size_t begin = 0; begin < due.size(); begin += kMostRenewed) {
      const size_t end = std::min(due.size(), begin + kMostRenewed);
      Renew({due.begin() + static_cast<std::ptrdiff_t>(begin),
             due.begin() + static_cast<std::ptrdiff_t>(end)});
    }
    // Each of these steps may wait for the tracker. So between them the calls that have waited long enough are sent.
    AskForWaiting();
    ReleaseAnnounced();
    AskForWaiting();
    ReleaseAgain();
    AskForWaiting();
    ReleaseStrays();
  }
}

void LeaseKeeper::Renew(const std::vector<std::string>& lease_ids) {
  grpc::ClientContext context;
  SetDeadline(&context, rpc_limit_);
  v1::RenewAllRequest request;
  request.mutable_lease_ids()->Assign(lease_ids.begin(), lease_ids.end());
  request.set_duration_ms(absl::ToInt64Milliseconds(lease_));
  v1::RenewAllResponse response;
  const absl::Time asked = MonotonicNow();
  const grpc::Status status = tracker_->RenewAll(&context, request, &response);
  std::set<std::string> renewed, ended;
  if (status.ok() && CheckMessage(response).ok()) {
    for (const v1::Lease& lease : response.renewed()) renewed.insert(lease.id());
    ended.insert(response.ended().begin(), response.ended().end());
  }
  absl::MutexLock lock(&mutex_);
  const absl::Time now = MonotonicNow();
  for (const std::string& id : lease_ids) {
    const auto it = held_.find(id);
    if (it == held_.end()) continue;
    if (renewed.count(id) > 0) {
      it->second.renew_at = asked + renew_every_;
      it->second.expires_at = asked + lease_;
    } else if (ended.count(id) > 0 || it->second.expires_at <= now) {
      // Called under the lock, so that the holder still exists. It only asks for a cancellation.
      ++counts_.lost;
      if (it->second.lost) it->second.lost();
      held_.erase(it);
    } else {
      it->second.renew_at = asked + retry_renew_;
    }
  }
}

}  // namespace heddle::scheduler
