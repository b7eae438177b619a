// Follows the tracker's list of workers and turns it into SlotsChanged events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/tracker.grpc.pb.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/service/stages/lease_keeper.h"
#include "scheduler/service/stages/trackers.h"

namespace heddle::scheduler {

// The slots as the messages of a watch tell them. What this process does with its own leases changes
// none of them, so a busy scheduler has nothing to do for most messages.
class WatchedSlots {
 public:
  // Whether a slot that is held is held by this process.
  using Ours = std::function<bool(const SlotId&, const v1::SlotStatus&)>;

  // Takes the whole list, with which a watch begins, or the changes of a later message. Returns whether
  // a slot is now other than before.
  bool TakeList(const v1::ListWorkersResponse& list, const Ours& ours);
  bool TakeChanges(const v1::ListWorkersResponse& changes, const Ours& ours);
  std::vector<SlotInfo> List() const;

 private:
  std::map<std::string, std::vector<SlotInfo>> workers_;
};

class TrackerWatch {
 public:
  // `name` says which tracker is in use: "the tracker at HOST:PORT".
  TrackerWatch(TrackerInUse tracker, std::function<std::string()> name, LeaseKeeper* leases,
               std::function<void(SlotsChanged)> changed);
  ~TrackerWatch();
  // Another tracker is in use: watches that one instead.
  void Restart();

 private:
  void Loop();

  const TrackerInUse tracker_;
  const std::function<std::string()> name_;
  LeaseKeeper* const leases_;
  const std::function<void(SlotsChanged)> changed_;
  absl::Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool restart_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
