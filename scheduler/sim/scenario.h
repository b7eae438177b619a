// What heddle-sim simulates: machines, jobs, how long stages take, faults. Read from JSON
// (docs/simulator.md has every field), made at random for fault seeds (fuzz.h), or taken from a
// recorded run (recorded.h). Seconds are doubles here; the world turns them into absl::Duration.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/core/job_state.h"

namespace heddle::sim {

using scheduler::SlotInfo;

// A distribution of positive numbers.
struct Distribution {
  enum Kind { kConstant, kUniform, kLognormal, kRecorded };
  Kind kind = kConstant;
  double a = 0, b = 0;           // constant: a; uniform: a..b; lognormal: mean a, coefficient b
  std::vector<double> recorded;  // in turn, from the beginning again when they are used up

  // The draw number `index` of the stream named by `key`.
  double Draw(uint64_t key, uint64_t index) const;
  double Mean() const;
};

// How long one stage takes on a worker of speed 1.
struct StageTime {
  Distribution seconds;
  bool per_candidate = false;  // else of a whole batch; candidates of it come together at its end
  double load = 1;  // share of its slot it keeps busy: what others may use without stretching it
};
inline constexpr int kStageKinds = 7;  // v1::StageKind
using StageTimes = std::array<StageTime, kStageKinds>;

// What the candidates of a task measure: the n-th has median
// (floor + (start - floor) * exp(-n / trials)) * lognormal(1, noise) nanoseconds.
struct Curve {
  double start_ns = 1e6;
  double floor_ns = 3e5;
  double trials = 100;
  double noise = 0.2;
};

struct SimTask {
  int weight = 1;
  double flops = 1e9;
  Curve curve;
  StageTimes times;
  int candidates = 0;  // how many the search finds; 0: as many as are asked for
  std::string key;     // workload hash; tasks with the same are the same workload
};

struct SimJob {
  std::string name;
  double arrival = 0;
  std::string user;
  int priority = 0;
  double deadline = 0;  // from the arrival; 0: none
  double time_limit = 0;
  int plateau = 0;
  bool gradient = true;
  bool force = false;
  bool transfer = true;  // searches learn from other tasks; matters only to durable worlds' records
  int trials = 64;       // per task
  int batch = 16;
  int pipeline_depth = 2;
  int max_devices = 0;
  int threads = 1;
  std::string target;
  std::string device_key;
  StageTimes times;  // of import and compile
  std::vector<SimTask> tasks;
  double failures = 0;      // share of candidates that are at fault
  bool user_error = false;  // the import refuses the model
};

struct SimSlot {
  SlotInfo info;
  double speed = 1;
};

// Faults as data. Probabilities are per occasion; the weights of `chaos` say what happens at
// moments `every[0]`..`every[1]` seconds apart until `until`, when the world heals.
struct Faults {
  double until = 0;
  std::array<double, 2> every = {1, 90};
  std::map<std::string, int> chaos;  // see ChaosKinds()
  double refused = 0;                // a lease
  double broken = 0;                 // a stage, at its end or at a candidate
  double hung = 0;                   // a stage: it ends by its time limit
  double duplicated = 0;             // a message comes again, up to 10 s later
  double lost = 0;                   // a message about one candidate
  int poison = 0;                    // every so many candidates one breaks its worker; 0: none
  bool slow_messages = false;        // starts and ends take time
  bool any() const {
    return until > 0 || refused > 0 || broken > 0 || hung > 0 || duplicated > 0 || lost > 0 ||
           poison > 0;
  }
};
// Names a scenario may use in `chaos`.
const std::vector<std::string>& ChaosKinds();

struct Scenario {
  std::string name;
  uint64_t seed = 1;
  std::string policy = "round_robin";
  std::vector<SimSlot> slots;
  std::vector<SimJob> jobs;
  Faults faults;
  // By slot: whether any stage of any job may ever run there.
  std::vector<bool> Useful() const;
};

// InvalidArgument and NotFound say "FILE: FIELD: what is wrong; what to write instead".
absl::StatusOr<Scenario> ReadScenario(const std::string& path);
// `directory` is where `base` is looked for.
absl::StatusOr<Scenario> ParseScenario(const std::string& text, const std::string& file,
                                       const std::string& directory);

}  // namespace heddle::sim
