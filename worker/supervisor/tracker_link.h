// The worker's heartbeat: reports slots to the tracker, and grants to the stage table.
//
// Of several trackers only one serves (tracker/appointment.h); the others refuse the call. So the worker keeps to the one that
// answered last, and goes round the others when that does not. Leases of the one before are void with the first answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/access/credentials.h"
#include "proto/tracker.grpc.pb.h"
#include "worker/supervisor/slot_guard.h"
#include "worker/supervisor/stage_table.h"

namespace heddle::worker {

class TrackerLink {
 public:
  // `report` has the fields that do not change: worker, boot id, host, slots, version. The table
  // and the guard must outlive the link.
  TrackerLink(const std::vector<std::string>& trackers, const Credentials& credentials,
              const v1::SynchronizeRequest& report, StageTable* table, const SlotGuard* guard);
  ~TrackerLink();

  // Begins to call at the tracker's pace. While the tracker cannot be reached, it retries without
  // end, with growing pauses. `address` is the host:port at which the worker serves.
  void Start(const std::string& address);
  // One call now, bounded to a few seconds, and where that fails one to each other tracker; the grants are in the table when it
  // returns.
  // Unavailable before Start.
  absl::Status SynchronizeNow();
  // Tells the tracker, with the next call, that this worker ends within this time and takes no new
  // leases.
  void SetLeaving(absl::Duration notice);
  bool connected() const;
  // How often the tracker stopped answering.
  int64_t disconnects() const;
  // When the latest call began; InfiniteFuture: none has.
  absl::Time last_call() const;

 private:
  struct Tracker {
    std::string address;
    std::unique_ptr<v1::TrackerService::Stub> stub;
  };
  void Loop();
  absl::Status CallCurrent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(calling_);

  StageTable* const table_;
  const SlotGuard* const guard_;
  std::vector<Tracker> trackers_;

  absl::Mutex
      calling_;  // held during a call, so that answers are applied in the order they were given
  v1::SynchronizeRequest report_ ABSL_GUARDED_BY(calling_);
  size_t current_ ABSL_GUARDED_BY(calling_) = 0;  // of trackers_
  absl::Duration next_ ABSL_GUARDED_BY(calling_) = absl::Seconds(1);

  mutable absl::Mutex mutex_;
  absl::Time leaves_ ABSL_GUARDED_BY(mutex_) =
      absl::InfiniteFuture();  // if it drains: when it ends
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;  // the first call has been logged
  int64_t disconnects_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_call_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::thread thread_;
  std::mt19937_64 rng_;  // used only by the loop's thread
};

}  // namespace heddle::worker
