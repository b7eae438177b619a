// The worker's heartbeat: tells the tracker what is here, and the stage table what is granted.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/tracker.grpc.pb.h"
#include "worker/slot_guard.h"
#include "worker/stage_table.h"

namespace heddle::worker {

class TrackerLink {
 public:
  // `report` is what does not change: worker, boot id, host, slots, version. The table and the
  // guard must outlive the link.
  TrackerLink(const std::string& tracker, const v1::SynchronizeRequest& report, StageTable* table,
              const SlotGuard* guard);
  ~TrackerLink();

  // Begins to call at the tracker's pace; where it cannot be reached, again and again with growing
  // pauses, without end. `address` is where the worker serves, host:port.
  void Start(const std::string& address);
  // One call now, bounded to a few seconds; the grants are in the table when it returns.
  // Unavailable before Start.
  absl::Status SynchronizeNow();
  // Tells the tracker at the next call that no new leases are wanted.
  void SetDraining();
  bool connected() const;

 private:
  void Loop();

  const std::string tracker_;
  StageTable* const table_;
  const SlotGuard* const guard_;
  const std::unique_ptr<v1::TrackerService::Stub> stub_;

  absl::Mutex
      calling_;  // held during a call, so that answers are applied in the order they were given
  v1::SynchronizeRequest report_ ABSL_GUARDED_BY(calling_);
  absl::Duration next_ ABSL_GUARDED_BY(calling_) = absl::Seconds(1);

  mutable absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;  // the log knows of the first call
  std::thread thread_;
  std::mt19937_64 rng_;  // the loop's thread only
};

}  // namespace heddle::worker
