// Simulated workers: they take stages, work on them for their time, and answer.
//
// A stage runs as a sequence of pieces of work. Builds and profiles go candidate by candidate,
// except builds that are timed by the batch, which are one piece; every other stage is one piece.
// Where stages may overlap on cores (`share_cores`), each piece goes on at the rate that is left to
// it, and its end is planned anew whenever a neighbour starts or ends one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "scheduler/core/events.h"
#include "scheduler/sim/chance.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/machines.h"
#include "scheduler/sim/world/promises.h"
#include "scheduler/sim/world/running_stage.h"
#include "scheduler/sim/world/searches.h"
#include "scheduler/sim/world/world_result.h"

namespace heddle::sim {

class Workers {
 public:
  struct Options {
    bool share_cores = false;  // stages may overlap on cores
    bool durable = false;      // answers carry what ledger and store keep
    bool spans = false;        // keep every stage in the result
  };
  struct Hooks {
    // An answer to the scheduler's process that started the stage. Before that handles the end of a
    // stage, it calls Release.
    std::function<void(int process, Event event)> tell;
    // The same from a worker whose lease is over.
    std::function<void(int process, const StartStage& start, Event event)> tell_late;
    // A device measured far too little time.
    std::function<void(const SlotId& slot)> lied;
  };
  // Adds what the work needs that is read only when the worker takes the stage.
  using Fetch = std::function<void(StageWork* work)>;

  // All outlive this; hooks must be callable once a stage has begun. Figures of the stages (busy
  // and held slots, service, measurements, faults, spans) are added to `result`.
  Workers(const Scenario& scenario, Options options, Agenda* agenda, Dice* dice,
          const Machines& machines, Searches* searches,
          std::function<Promises&(int process)> promises, WorldResult* result, Hooks hooks)
      : scenario_(scenario),
        options_(options),
        agenda_(*agenda),
        dice_(*dice),
        machines_(machines),
        searches_(*searches),
        promises_of_(std::move(promises)),
        result_(*result),
        hooks_(std::move(hooks)) {}

  // ---- orders ----
  // The slot is leased from now on; the worker takes the stage, or refuses it, a moment later.
  void Begin(int process, const StartStage& start, StageWork work, Fetch fetch);
  // False: there is no such stage, or its input is closed.
  bool Feed(AttemptId id, CandidateWork candidate);
  void CloseInput(AttemptId id);
  void Cancel(AttemptId id);

  // ---- what happens to stages ----
  // What the scheduler hears of the end of a stage. kFault: its work may be to blame. kInterrupted: the worker says that
  // it is not. kSilent: the worker says nothing. kCrashed: nor does it, since its process has died.
  enum class Ending { kFault, kInterrupted, kSilent, kCrashed };
  // Ends the stage with an infrastructure fault.
  void Break(AttemptId id, const std::string& message, Ending ending);
  // The worker of this stage goes on under its old lease, and later answers for each of its
  // candidates with the old attempt and fencing token. Nothing may come of that.
  void LeaveGhost(AttemptId id);
  // The scheduler hears that the stage has ended, and its slot is free.
  void Release(AttemptId id);
  // The scheduler's process dies: its stages end, some leave ghosts.
  void EndLife(int process);
  void JobOver(JobId job);

  const RunningStages& running() const { return stages_; }
  bool Holds(const SlotId& slot) const;

 private:
  using Result = decltype(StageFinished::result);

  bool Chance(double p) { return p > 0 && dice_.Likely(p); }
  absl::Duration Between(double low, double high) {
    return absl::Seconds(dice_.Between(low, high));
  }
  absl::Time now() const { return agenda_.now(); }
  const SimJob& JobOf(const StartStage& start) const {
    return scenario_.jobs[static_cast<size_t>(start.job.value - 1)];
  }
  const StageTime& TimeOf(const StartStage& start) const;
  uint64_t KeyOf(const StartStage& start, uint64_t what) const;

  // The stage, unless the worker has ended it or there is none.
  RunningStage* Find(AttemptId id);
  // Does it at the worker, which hears of it when orders of this stage arrive.
  void Order(AttemptId id, Agenda::Action action);
  // Tells the scheduler, which hears of it when answers of this stage arrive.
  void Tell(RunningStage* stage, Event event);
  void Later(AttemptId id, absl::Duration after, Agenda::Action action);
  void Take(AttemptId id, bool refused, bool hung, const Fetch& fetch);
  void Refuse(AttemptId id);
  void Work(AttemptId id);
  void WorkOnCandidates(AttemptId id);
  void StartPiece(AttemptId id, double seconds);
  void PlanEndOfPiece(AttemptId id);
  void Rebalance(int slot);
  void EndPiece(AttemptId id);
  void EndSimple(AttemptId id);
  void EndCandidates(AttemptId id);
  void Answer(AttemptId id, const CandidateWork& candidate);
  Event BuildAnswer(AttemptId id, const CandidateWork& candidate) const;
  Event ProfileAnswer(AttemptId id, const CandidateWork& candidate);
  void Finish(AttemptId id, FaultInfo fault, Result result = {}, Ending ending = Ending::kFault);
  void Forget(const StartStage& start);  // a stage that is no longer in stages_

  const Scenario& scenario_;
  const Options options_;
  Agenda& agenda_;
  Dice& dice_;
  const Machines& machines_;
  Searches& searches_;
  const std::function<Promises&(int process)> promises_of_;
  WorldResult& result_;
  const Hooks hooks_;
  RunningStages stages_;
  std::map<JobId, std::set<AttemptId>> of_job_;  // stages, in durable worlds
  uint64_t last_token_ = 0, messages_ = 0;
  std::map<std::pair<int64_t, int>, int64_t> started_;  // stages by task and kind
};

}  // namespace heddle::sim
