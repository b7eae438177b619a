// Acquires, renews and releases leases of the tracker. It remembers the leases of this process, so
// that a slot held by this process is not mistaken for one held by somebody else.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/tracker.grpc.pb.h"
#include "scheduler/core/ids.h"
#include "scheduler/service/stages/trackers.h"

namespace heddle::scheduler {

class LeaseKeeper {
 public:
  // `holder` names the service at the tracker. It is unique, and the same after a restart or take-over. A lease
  // lasts for `lease` and is renewed after a third of that.
  LeaseKeeper(TrackerInUse tracker, std::string holder, absl::Duration lease);
  // Waits until the tracker has answered all calls. Acquire and Release must not be called after the destructor has begun.
  ~LeaseKeeper();

  // Asks the tracker once the releases on the same host that were announced before are over, or have taken as long as a
  // call to the tracker may. `done` is called once, by another thread, and must not wait for long. `lost` is called at most
  // once, by another thread, when the lease can no longer be kept. It is never called after Release has returned.
  void Acquire(const SlotId& slot, const std::string& purpose, std::function<void()> lost,
               std::function<void(absl::StatusOr<v1::Lease>)> done);
  // Says that the lease is released next. So others may be told at once that the slot is free: whoever acquires it, or a
  // slot that shares a core with it, waits for the release. If Release does not come within a second, the lease is
  // released all the same.
  void AnnounceRelease(const std::string& lease_id);
  // Does not wait for the tracker. What it does not answer is released by and by.
  void Release(const std::string& lease_id);
  // As Release, for several leases, but waits for the tracker: little longer than one call to it may take. A release that has
  // no answer by then is repeated later.
  void ReleaseAll(const std::vector<std::string>& lease_ids);
  // The same, within a second, by another thread: whoever takes over does not wait for the tracker.
  void ReleaseLater(const std::vector<std::string>& lease_ids);
  // Whether this process holds the slot that the tracker's list shows as held, is just being granted
  // it, or released it so recently that the list may not show the release yet.
  bool IsOurs(const SlotId& slot, const v1::SlotStatus& status) const;
  struct Counts {
    int64_t held = 0;     // now
    int64_t granted = 0;  // ever
    int64_t refused = 0;  // requests for a lease that ended without one
    int64_t lost = 0;     // leases that could no longer be kept
  };
  Counts counts() const;
  // Releases leases of the previous process. That process may have been killed after a lease was
  // granted and before the record store knew of it. Call only before the first Acquire.
  void ReleaseFormer(const v1::ListWorkersResponse& list);
  // Which hosts the workers are on, as the tracker lists them; `whole`: these are all workers.
  void SetHosts(const v1::ListWorkersResponse& list, bool whole);

 private:
  struct Held {
    std::string worker;
    absl::Time renew_at;
    absl::Time expires_at;
    std::function<void()> lost;
  };
  struct Announced {
    std::string host;
    int64_t number = 0;
    absl::Time at;
  };
  // A call of Acquire that waits for announced releases on its host.
  struct Waiting {
    std::string host;
    int64_t before = 0;  // these and earlier releases
    absl::Time until;
    std::function<void()> ask;
  };
  void Loop();
  void Ask(const SlotId& slot, const std::string& purpose, std::function<void()> lost,
           const std::function<void(absl::StatusOr<v1::Lease>)>& done);
  absl::StatusOr<v1::Lease> TakeAnswer(const SlotId& slot, const grpc::Status& status,
                                       const v1::Lease& lease, absl::Time asked,
                                       std::function<void()> lost);
  // Whether no announced release up to this one is under way on the host.
  bool AllReleased(const std::string& host, int64_t before) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the waiting calls whose wait is over.
  void AskForWaiting();
  void BeginRelease(const std::vector<std::string>& lease_ids);
  void EndRelease(const std::string& lease_id, bool answered, absl::Time begun);
  void EndCall();
  std::string HostOf(const std::string& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those that were announced long ago.
  void ReleaseAnnounced();
  bool SendRelease(const std::string& lease_id);
  void ReleaseAgain();
  void ReleaseStrays();
  // In one call; at most as many as a message takes.
  void Renew(const std::vector<std::string>& lease_ids);

  const TrackerInUse tracker_;
  const std::string holder_;
  const absl::Duration lease_;
  const absl::Duration renew_every_;
  const absl::Duration retry_renew_;
  const absl::Duration rpc_limit_;  // of a call to the tracker
  mutable absl::Mutex mutex_;
  std::map<std::string, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Time> released_ ABSL_GUARDED_BY(mutex_);
  absl::Time forget_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // old ones of these
  // Releases that had no answer, with the time until which they are repeated; after that the lease
  // has expired anyway.
  std::map<std::string, absl::Time> unreleased_ ABSL_GUARDED_BY(mutex_);
  // Slots whose Acquire had no answer: the tracker may have granted a lease that this process does
  // not know.
  std::set<SlotId> strays_ ABSL_GUARDED_BY(mutex_);
  std::set<SlotId> acquiring_ ABSL_GUARDED_BY(mutex_);
  // Announced releases under way, numbered in their order.
  std::map<std::string, Announced> announced_ ABSL_GUARDED_BY(mutex_);  // by lease
  std::map<std::string, std::set<int64_t>> releases_
      ABSL_GUARDED_BY(mutex_);                                        // these numbers, by host
  std::map<std::string, std::string> hosts_ ABSL_GUARDED_BY(mutex_);  // by worker
  int64_t last_release_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;  // to the tracker, without an answer yet
  Counts counts_ ABSL_GUARDED_BY(mutex_);  // `held` is filled in when it is asked for
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
