// Gets leases from the tracker, renews them, gives them back. Remembers the leases of this process,
// so that a slot it holds itself is not mistaken for one held by somebody else.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/tracker.grpc.pb.h"
#include "scheduler/core/ids.h"

namespace heddle::scheduler {

class LeaseKeeper {
 public:
  // `holder` names this scheduler at the tracker, the same over restarts and nobody else's.
  LeaseKeeper(std::shared_ptr<v1::TrackerService::StubInterface> tracker, std::string holder);
  ~LeaseKeeper();

  // `lost` is called at most once, from another thread, when the lease can no longer be kept; never
  // after Release returned.
  absl::StatusOr<v1::Lease> Acquire(const SlotId& slot, const std::string& purpose,
                                    std::function<void()> lost);
  void Release(const std::string& lease_id);
  // Whether this process holds the lease, or gave it back so recently that the tracker's list may
  // not show it yet.
  bool IsOurs(const std::string& lease_id) const;
  // Gives back what the process before this one held; a kill may fall between a grant and its note
  // in the record store. Only before the first Acquire.
  void ReleaseFormer(const v1::ListWorkersResponse& list);

 private:
  struct Held {
    absl::Time renew_at;
    absl::Time expires_at;
    std::function<void()> lost;
  };
  void Loop();
  bool SendRelease(const std::string& lease_id);
  void ReleaseAgain();
  void ReleaseStrays();
  void Renew(const std::string& lease_id);

  const std::shared_ptr<v1::TrackerService::StubInterface> tracker_;
  const std::string holder_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Held> held_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Time> released_ ABSL_GUARDED_BY(mutex_);
  // Releases that had no answer, and until when they are tried again: then they have expired.
  std::map<std::string, absl::Time> unreleased_ ABSL_GUARDED_BY(mutex_);
  // Slots whose Acquire had no answer: the tracker may have granted a lease that nobody knows.
  std::set<SlotId> strays_ ABSL_GUARDED_BY(mutex_);
  std::set<SlotId> acquiring_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
