// Bugs put into the scheduler on purpose, to show that the promises detect them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/dispatcher.h"
#include "scheduler/core/policy.h"
#include "scheduler/sim/world/running_stage.h"

namespace heddle::sim {

enum class Planted {
  kNone,
  // In decisions.
  kDropClose,
  kDropFeed,
  kRecordTwice,
  kWrongSlot,
  kStartTwice,
  kForgetLease,   // the dispatcher believes that a slot is free while its stage still holds it
  kSkipFencing,   // an answer under an old lease counts as one of the present lease
  kStarve,        // one job's work is passed over
  kSkipUpdate,    // an update counts as done, and nothing was learned
  kForgetFind,    // records of a device that came later are ignored
  kOverrun,       // tasks lose their keys, so jobs that share one each spend its whole budget
  kBelieve,       // a user fault fails its job at once, although nobody has confirmed it
  kForgive,       // a worker that comes back counts as the same process
  kChargeLosers,  // the plan that won a contest pays for all trials of those that lost
  kTuneBeaten,    // a plan that is clearly beaten in a contest goes on getting trials
  kLateWrite,     // the store takes writes of a scheduler that no longer leads
  // In orders.
  kLearnEarly,      // an update learns results of rounds that it does not mark as learned
  kLearnTwice,      // an update learns a result that an earlier one has learned
  kForgetArtifact,  // a candidate is to be profiled, and its artifact is missing
  kSwapTrace,       // a candidate is to be built from the trace of another
  kForgetWarm,      // an update learns one known record less than there are
  kForgetBest,      // a module is compiled without the best record of a task
  kForgetDefault,   // the module to compare with is lost
  kForgetPlanned,   // a plan lacks one of its tasks
};

// Every bug there is to plant, and its name.
std::vector<Planted> AllPlanted();
std::string PlantedName(Planted planted);
// Whether there are occasions for the bug only in worlds with faults.
bool NeedsFaults(Planted planted);
// Whether there are occasions for the bug only where schedulers take over from each other.
bool NeedsFailOver(Planted planted);

// Planted::kStarve: the first job comes last, for ever.
std::unique_ptr<Policy> Starve(std::unique_ptr<Policy> policy);

// Plants one bug. Each function changes its argument if it is an occasion for that bug, which is
// the case for every n-th of a kind.
class Plant {
 public:
  explicit Plant(Planted planted) : planted_(planted) {}
  bool Is(Planted planted) const { return planted_ == planted; }

  // `end_early` ends a stage that still runs, a moment later.
  void Mutate(const RunningStages& running, const std::function<void(AttemptId)>& end_early,
              Decisions* decisions);
  void Mutate(Event* event);
  // An answer for a candidate under an old lease: `attempt` becomes that of the present one.
  void MutateLate(const Dispatcher& dispatcher, const RunningStages& running,
                  const StartStage& start, Event* event) const;
  // `start` before its order is made, the order when it is made, and when it is complete with what
  // `reads` gave.
  void MutateStart(StartStage* start) const;
  void MutateOrder(const StartStage& start, StageOrder* order);
  void MutateCompleted(const OrderReads& reads, StageOrder* order) const;
  void MutateInput(v1::StageInput* input);

 private:
  // Whether this is the n-th occasion of the bug.
  bool Nth(int n) { return ++count_ == n; }

  const Planted planted_;
  int count_ = 0;
  std::map<std::pair<JobId, TaskIndex>, v1::SearchResult> taught_;  // the latest of each task
};

}  // namespace heddle::sim
