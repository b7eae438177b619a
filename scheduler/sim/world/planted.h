// Bugs put between dispatcher and world on purpose, to see that the checks see them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/core/events.h"
#include "scheduler/core/policy.h"
#include "scheduler/sim/world/running_stage.h"

namespace heddle::sim {

enum class Planted {
  kNone,
  kDropClose,
  kDropFeed,
  kRecordTwice,
  kWrongSlot,
  kStartTwice,
  kForgetLease,  // the dispatcher takes a slot for free that its stage still holds
  kSkipFencing,  // an answer under an old lease counts as one of the present lease
  kStarve,       // one job's work is passed over
  kSkipUpdate,   // an update counts as done, and nothing was learned
  kLearnEarly,   // an update takes in results of rounds that it does not mark as learned
  kForgetFind,   // what is on record of a device that came later is taken for nothing
  kOverrun,      // a job's tasks are not known to be those of others: each spends the whole budget
};

// Every bug there is to plant, and its name.
std::vector<Planted> AllPlanted();
std::string PlantedName(Planted planted);

// Planted::kStarve: the first job comes last, for ever.
std::unique_ptr<Policy> Starve(std::unique_ptr<Policy> policy);

// Plants the bugs that are in the decisions, and counts occasions of the others.
class Plant {
 public:
  explicit Plant(Planted planted) : planted_(planted) {}
  bool Is(Planted planted) const { return planted_ == planted; }
  // Whether this is the n-th occasion of the bug.
  bool Nth(int n) { return ++count_ == n; }
  // `end_early` ends a stage that still runs, a moment later.
  void Mutate(const RunningStages& stages, const std::function<void(AttemptId)>& end_early,
              Decisions* decisions);

 private:
  const Planted planted_;
  int count_ = 0;
};

}  // namespace heddle::sim
