// Takes machines out of use for people who ask on the page, as `heddle device drain` and `resume` do:
// holds all slots of a worker with leases of the tracker, each as soon as its stage has ended.
#pragma once

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/tracker.grpc.pb.h"
#include "scheduler/service/stages/trackers.h"

namespace heddle::scheduler {

// Thread-safe.
class MachineDrains {
 public:
  struct Options {
    absl::Duration poll = absl::Milliseconds(500);  // below the tracker's PoolOptions::person_waits
    // Time for stages to end; what is not free by then goes on being used.
    absl::Duration patience = absl::Minutes(10);
    size_t most = 16;  // machines whose slots are waited for at a time
  };
  // What `tracker` calls outlives this.
  MachineDrains(TrackerInUse tracker, Options options);
  ~MachineDrains();

  // Holds what is free at once, and the rest as it becomes free; after an error, nothing more than before. `who` is the person's name, for others
  // to see. All leases end after `duration`, 1 s to 1 hour.
  // NotFound lists the workers. ResourceExhausted: too many drains are under way. Unavailable: the
  // tracker does not answer. FailedPrecondition or PermissionDenied: as the tracker says.
  absl::Status Begin(const std::string& worker, const std::string& who, absl::Duration duration);
  // Ends the drain, and gives back all slots of the worker that people hold. NotFound: as Begin.
  // FailedPrecondition: no person holds one. PermissionDenied: a lease belongs to somebody else's
  // certificate; the others are given back all the same.
  absl::Status End(const std::string& worker);

 private:
  struct Drain {
    std::string holder;
    absl::Time until;    // when the leases end
    absl::Time give_up;  // when no more slots are waited for
  };
  absl::StatusOr<v1::WorkerStatus> Find(const std::string& worker);
  // Acquires what can be had, and adds the leases to `leases`, also before an error. True: slots are still
  // in use.
  absl::StatusOr<bool> Pass(const std::string& worker, const Drain& drain,
                            std::vector<std::string>* leases);
  absl::Status Release(const std::string& lease);
  void Run();

  const TrackerInUse tracker_;
  const Options options_;
  // Held during calls to the tracker, so that a slot that is given back is not taken again by a pass that
  // was under way.
  absl::Mutex mutex_;
  std::map<std::string, Drain> drains_ ABSL_GUARDED_BY(mutex_);  // that wait for slots, by worker
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::scheduler
