// The one-machine default: a tracker and a worker as processes of their own, next to the scheduler
// and ended with it.
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

namespace heddle::scheduler {

// Which cores the worker's slots get. Two cores: one for CPU stages, one to measure on, and both
// together for kernels of two threads (in turn with the others). One core: both kinds on it, in
// turn. More: the last one measures, the rest work.
struct SlotPlan {
  std::vector<std::string> cpu_slots;     // "0"
  std::vector<std::string> device_slots;  // "1", "0-1"
};
SlotPlan PlanSlots(const std::vector<int>& cores);
// Keeps the calling thread, and all that it starts, on the cores of the CPU slots of
// PlanSlots(cores).
void ConfineToCpuSlots(const std::vector<int>& cores);
// The cores this process may run on.
std::vector<int> AvailableCores();

class EmbeddedCluster {
 public:
  struct Options {
    std::string binary_directory;  // of heddle-tracker and heddle-worker
    std::string data_directory;
    bool verbose = false;
    std::vector<int> cores;  // to plan slots on; the calling process may be confined to fewer
    bool unguarded = false;  // the worker trusts every measurement
  };
  // Returns when the tracker listens. NotFound names a binary that is missing; DeadlineExceeded if
  // the tracker does not come up.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(Options options);
  // Ends both (SIGTERM, after a while SIGKILL).
  ~EmbeddedCluster();

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
  absl::Status StartTracker();
  void StartWorker();
  void Supervise();
  void EndChildren();
  void Restart(Child* child, absl::Time now);

  const Options options_;
  std::string tracker_address_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Child> children_;  // of the supervising thread once it runs
  std::thread thread_;
};

}  // namespace heddle::scheduler
