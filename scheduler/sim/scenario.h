// What heddle-sim simulates: machines, jobs, durations of stages, and faults. A scenario is read
// from JSON (docs/simulator.md has every field), generated from a fuzz seed (fuzz.h), or taken from
// a recorded run (recorded.h). Seconds are doubles here; the world converts them to absl::Duration.
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
  std::vector<double> recorded;  // used in turn, again and again

  // Draw number `index` of the stream named by `key`.
  double Draw(uint64_t key, uint64_t index) const;
  double Mean() const;
};

// How long one stage takes on a worker of speed 1.
struct StageTime {
  Distribution seconds;
  // False: `seconds` is for the whole batch, whose answers come together at the end.
  bool per_candidate = false;
  double load = 1;  // share of its slot that it uses; the rest can serve others without slowing it
};
inline constexpr int64_t kCodeBytes = int64_t{128} << 10;  // of a candidate (Scenario::code_room)
inline constexpr int kStageKinds = 9;                      // v1::StageKind
using StageTimes = std::array<StageTime, kStageKinds>;

// Measured times of a task's candidates. The median of the n-th is
// (floor + (start - floor) * exp(-n / trials)) * lognormal(1, noise) nanoseconds.
struct Curve {
  double start_ns = 1e6;
  double floor_ns = 3e5;
  double trials = 100;
  double noise = 0.2;
};

struct SimTask {
  int weight = 1;     // 0: of another plan
  bool late = false;  // a plan stage adds it; such tasks come last
  double flops = 1e9;
  Curve curve;
  StageTimes times;
  int candidates = 0;  // candidates that the search finds; 0: as many as it is asked for
  std::string key;     // workload hash; tasks with the same one share a workload
};

struct SimJob {
  std::string name;
  double arrival = 0;
  std::string user;
  int priority = 0;
  double deadline = 0;  // seconds from the arrival; 0: none
  double time_limit = 0;
  int plateau = 0;
  bool gradient = true;
  bool force = false;
  bool transfer = true;  // searches learn from other tasks; matters only to durable worlds' records
  int trials = 64;       // per task
  int batch = 16;
  int pipeline_depth = 2;
  int max_devices = 0;
  // Comparisons of the module with the default schedules: none, one, or two, because the first takes a
  // kernel back; kAsFound: tasks are found to be slower at random.
  static constexpr int kAsFound = -1;
  int comparisons = 0;
  bool plan = false;         // the plan is chosen after a survey
  bool random_plan = false;  // by chance; otherwise the weights are those of the tasks
  int threads = 1;
  std::string target;
  std::string device_key;
  StageTimes times;  // of import, plan, compile and compare
  std::vector<SimTask> tasks;
  double failures = 0;      // share of candidates that are faulty
  bool user_error = false;  // the import refuses the model
};

struct SimSlot {
  SlotInfo info;
  double speed = 1;
};

// Faults as data. Probabilities are per occasion. Until the time `until`, a random event happens
// every `every[0]`..`every[1]` seconds; its kind is drawn by the weights in `chaos`. After that the
// world heals.
struct Faults {
  double until = 0;
  std::array<double, 2> every = {1, 90};
  std::map<std::string, int> chaos;  // see ChaosKinds()
  double refused = 0;                // that a lease is refused
  double broken = 0;                 // that a stage breaks, at its end or at a candidate
  double hung = 0;                   // that a stage hangs and ends by its time limit
  double duplicated = 0;             // that a message comes twice, up to 10 s apart
  double lost = 0;                   // that a message about one candidate is lost
  int poison = 0;                    // one candidate in so many breaks its worker; 0: none
  std::string liar;                  // a worker that often blames the user for no reason
  bool slow_messages = false;        // messages about starts and ends take time
  // Seconds without a scheduler at a `fail_over`, until another leads.
  std::array<double, 2> take_over = {0.5, 15};
  bool any() const {
    return until > 0 || refused > 0 || broken > 0 || hung > 0 || duplicated > 0 || lost > 0 ||
           poison > 0 || !liar.empty();
  }
};
// Names a scenario may use in `chaos`.
const std::vector<std::string>& ChaosKinds();

// Several schedulers over the same machines and jobs.
struct Schedulers {
  int count = 1;
  // True: each leads a pool, which has its part of the workers and a dispatcher of its own. False: one
  // leads all, and the others stand by.
  bool pools = false;
  // At each of these times a scheduler that leads dies for good. Fewer than `count`.
  std::vector<double> fail_at;
  double gap = 10;      // until another leads what a dead one has led
  double decision = 0;  // how long one event keeps its scheduler busy; other events wait meanwhile
};

// How long messages take between schedulers and workers. The order of messages about one stage is kept.
struct Network {
  Distribution orders, answers;
  bool any() const { return orders.Mean() > 0 || answers.Mean() > 0; }
};

// Workers that are taken away, as a batch system and a cloud do.
struct Preemption {
  double rate = 0;  // an hour, of each worker that is there
  double notice = 30;
  Distribution back = {
      Distribution::kConstant, 600, 0, {}};  // until it returns; not in a batch system
};

// Workers that a batch system runs: started when work waits, ended when they are idle, by the rule of
// deploy/autoscaler/rules.py.
struct BatchClass {
  std::vector<std::string> workers;  // by number; at most these are there
  int min = 0;
  int slots = 1;         // of one worker
  bool cpu = false;      // has CPU slots
  bool devices = false;  // has device slots, of this target and key:
  std::string target, key;
  Distribution queue = {
      Distribution::kConstant, 60, 0, {}};  // from the order to start until it works
  double wait = 10;       // work has waited so long before workers are started for it
  double idle = 300;      // a worker has been idle for so long before it leaves
  double every = 10;      // between two decisions
  int most_at_once = 16;  // starts of one decision
};

struct Scenario {
  std::string name;
  uint64_t seed = 1;
  std::string policy = "round_robin";
  std::vector<SimSlot> slots;
  std::vector<SimJob> jobs;
  // Built candidates whose code fits a scheduler's memory (DispatcherOptions.max_artifact_bytes); 0: all of them.
  // Only random worlds have it.
  int code_room = 0;
  Faults faults;
  Schedulers schedulers;
  Network network;
  Preemption preemption;
  std::vector<BatchClass> batches;
  // Whether schedulers may die, so that the world has to be durable.
  bool NeedsStore() const { return faults.any() || !schedulers.fail_at.empty(); }
  // Whether anything can go wrong with a stage.
  bool disturbed() const {
    return faults.any() || preemption.rate > 0 || !schedulers.fail_at.empty();
  }
  // For each slot, whether any stage of any job could ever run there.
  std::vector<bool> Useful() const;
  // Gives every CPU slot the compilers for all jobs' targets.
  void BuildEverywhere();
};

// InvalidArgument and NotFound say "FILE: FIELD: what is wrong; what to write instead".
absl::StatusOr<Scenario> ReadScenario(const std::string& path);
// `base` files are looked for in `directory`.
absl::StatusOr<Scenario> ParseScenario(const std::string& text, const std::string& file,
                                       const std::string& directory);

}  // namespace heddle::sim
