// When workers of a batch system are started and which ones leave: the rule of deploy/autoscaler/rules.py,
// without what it does about starts that fail, since none fails here. Pure. Both are tested with the same
// cases (tests/scheduler/sim/autoscaler_cases.json).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "scheduler/sim/scenario.h"

namespace heddle::sim {

class AutoscalerRule {
 public:
  // kPending: waits for a machine; kLeaving: was told to leave.
  enum class State { kPending, kRunning, kLeaving };
  struct Instance {
    State state = State::kPending;
    bool idle = false;  // runs, and nothing runs on it
    // Slots of the class that are not in quarantine, where some are; -1: none is.
    int fit = -1;
    uint64_t start = 0;  // for the caller: which start it is of
  };
  struct Seen {
    int waiting = 0;                    // stages that wait for a slot of the class
    double oldest = 0;                  // seconds that the first of them has waited
    int busy = 0;                       // slots in use
    std::map<int, Instance> instances;  // by number
  };
  // Numbers of workers.
  struct Decision {
    std::vector<int> start, drain;
  };

  // `now`: seconds, never less than before.
  Decision Decide(const BatchClass& rules, const Seen& seen, double now);

 private:
  std::map<int, double> idle_;  // since when it has been idle in every observation
  std::set<int> told_;          // to leave, and still there
};

}  // namespace heddle::sim
