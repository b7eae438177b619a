// The simulated world: machines, workers, tracker, users and a scheduler's process under a virtual
// clock. It drives the production dispatcher, and in durable worlds also the production ledger,
// stage orders and store interface. heddle-sim compares policies in it. With faults it is where the
// scheduler's promises are checked, after every event. Everything follows from scenario and seed.
//
// The parts, each in its own header:
//   agenda.h             the virtual clock
//   machines.h           hosts and slots, and what is wrong with them
//   scheduler_process.h  the scheduler's process: dispatcher, ledger, batches not durable yet
//   stage_work.h         what a worker has to do for one stage, taken from the stage's order
//   workers.h            how stages run and what workers answer
//   pools.h              how several schedulers divide machines and jobs
//   searches.h           what simulated searches find
//   supply.h             machines that come and go
//   autoscaler_rule.h    when a batch system starts and ends workers
//   chaos.h              what goes wrong, and when
//   promises.h           what must hold; budget_check.h and order_check.h are parts of it
//   planted.h            bugs that are put in on purpose, to show that the promises detect them
//   fuzz.h               random worlds
// world.cc wires them, submits the jobs and gathers the result.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/planted.h"
#include "scheduler/sim/world/world_result.h"

namespace heddle::sim {

struct WorldOptions {
  Planted planted = Planted::kNone;
  bool durable = false;  // keep ledger and store: for restarts, orders and records
  bool checks = false;   // check the promises after every event; needs `durable`
  bool waiting = false;  // count what jobs wait for
  bool spans = false;    // keep every stage, for charts
  // Measure how long decisions take on this machine. Leaves out the fingerprint, which takes longer.
  bool clock = false;
  int64_t max_steps =
      0;  // a world that takes more is given up; 0: as many as only a stuck world takes
};

// The baseline policy without coordination: every job has its own dispatcher, which believes that
// it is alone.
inline constexpr char kUncoordinated[] = "uncoordinated";

// `policy` is one of MakePolicy, or kUncoordinated. InvalidArgument: there is no such policy,
// `checks` without `durable`, schedulers that die (Schedulers::fail_at) without `durable`, or several schedulers
// for kUncoordinated. FailedPrecondition: a job never ended, in a world without checks.
absl::StatusOr<WorldResult> RunWorld(const Scenario& scenario, const std::string& policy,
                                     const WorldOptions& options);

}  // namespace heddle::sim
