// The default for one machine: a tracker and a worker run as separate processes beside the
// scheduler and end with it. The worker offers the machine's cores and its GPUs, if there are any.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/daemon/log.h"

namespace heddle::scheduler {

// The cores of the worker's slots. With more than two cores, the last one measures and the others
// work. With two cores, one works, one measures, and both together measure kernels of two threads.
// With one core, both kinds of slot use it. Slots that share a core take turns.
struct SlotPlan {
  std::vector<std::string> cpu_slots;     // "0"
  std::vector<std::string> device_slots;  // "1", "0-1"
};
SlotPlan PlanSlots(const std::vector<int>& cores);
// Confines the calling thread, and all threads and processes that it starts later, to the cores of
// the CPU slots of PlanSlots(cores).
void ConfineToCpuSlots(const std::vector<int>& cores);
// The cores this process may run on.
std::vector<int> AvailableCores();

class EmbeddedCluster {
 public:
  struct Options {
    std::string binary_directory;  // of heddle-tracker and heddle-worker
    std::string data_directory;
    std::vector<int> cores;  // to plan slots on; the calling process may be confined to fewer
    bool unguarded = false;  // the worker trusts every measurement
    bool require_confinement = false;  // InvalidArgument where stages cannot be confined
    LogOptions log{};                  // of this process; the children log alike
  };
  // Returns when the tracker listens. NotFound names a missing binary; DeadlineExceeded means that
  // the tracker does not come up.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(Options options);
  // Ends both processes: first with SIGTERM, after a while with SIGKILL.
  ~EmbeddedCluster();

  // That of a UNIX socket in a folder which only this user can enter, as is the worker's.
  const std::string& tracker_address() const { return tracker_address_; }

 private:
  struct Child {
    std::string name;
    std::vector<std::string> command;
    std::vector<int> cores;  // where it may run; empty: where this process may
    pid_t pid = 0;
    absl::Time started;
    absl::Time not_before;
    int failures = 0;
  };
  explicit EmbeddedCluster(Options options) : options_(std::move(options)) {}
  absl::Status CheckConfinement() const;
  absl::Status StartTracker();  // sets tracker_address_
  void StartWorker();
  void Supervise();
  void EndChildren();
  void Restart(Child* child, absl::Time now);

  const Options options_;
  std::string socket_folder_;
  std::string tracker_address_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Child> children_;  // used only by the supervising thread once it runs
  std::thread thread_;
};

}  // namespace heddle::scheduler
