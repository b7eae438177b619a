// Many workers in one process that speak the real protocol and do no work: for load tests of tracker and
// scheduler.
//
// Each worker has a name, an address, a host and a connection to the tracker of its own, calls at the
// tracker's pace, checks every lease as a worker must, and ends stages whose lease is no longer valid.
// Its stages answer after scripted times (stage_script.h). Connections are plain, so all is on one machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/hollow/stage_script.h"

namespace heddle::hollow {

struct HollowOptions {
  std::string tracker;          // HOST:PORT
  std::string name = "hollow";  // the workers are NAME-0, NAME-1, ..
  int workers = 1;
  int cpu_slots = 1;  // of each worker, one core each
  int device_slots = 1;
  std::string target = "llvm -mcpu=x";
  std::string device_key = "hollow";
  ScriptOptions script;
};

struct HollowCounts {
  // Since the start.
  int64_t stages = 0;       // that did their work
  int64_t faults = 0;       // that ended with a scripted fault
  int64_t interrupted = 0;  // by the scheduler, or by the end of their lease
  int64_t refused = 0;      // without a valid lease, or on a busy slot
  int64_t overlapping =
      0;               // of these: on a slot whose earlier stage was not cancelled. Must stay 0
  int64_t trials = 0;  // measured candidates
  int64_t missed_beats = 0;                    // calls that the tracker did not answer
  double cpu_seconds = 0, device_seconds = 0;  // of slots, used by stages that have ended
  // Since the last call: times from the end of a stage to the begin of the next one in a device slot.
  std::vector<int64_t> gaps_us;
};

class HollowWorkers {
 public:
  // Listens, and begins to call the tracker. InvalidArgument: numbers out of range. Unavailable: it
  // cannot listen, for instance since the process may not open so many files.
  static absl::StatusOr<std::unique_ptr<HollowWorkers>> Start(const HollowOptions& options);
  virtual ~HollowWorkers() = default;

  virtual HollowCounts TakeCounts() = 0;
  // Workers that the tracker has answered.
  virtual int Registered() const = 0;
};

}  // namespace heddle::hollow
