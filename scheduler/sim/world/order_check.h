// Whether orders tell workers what they have to know, whatever happened before.
//
// Follows events and changes by itself and compares orders with what it saw:
// - each input to build or profile has the trace that was proposed for that candidate, and each
//   input to profile has the artifact built from that trace;
// - an update learns exactly the results that no update has learned, oldest first, without those
//   that faults lost; the first update of a task that has known records learns all of these;
// - a module is compiled from the best valid trace of each task that store and job know;
// - a search that begins is told only of samples and models that workers made; one that goes on is
//   told of none.
//
// Functions that check return what is wrong, or nothing.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/store/record_store.h"

namespace heddle::sim {

using namespace heddle::scheduler;  // NOLINT: the simulator is the scheduler's own

// What workers made for the searches of other tasks, in every life of every scheduler.
struct Taught {
  std::set<std::string> samples, models;
};

class OrderCheck {
 public:
  // Schedulers of one store share what was taught.
  explicit OrderCheck(std::shared_ptr<Taught> taught = std::make_shared<Taught>())
      : taught_(std::move(taught)) {}

  // ---- what happens ----
  // A scheduler's process begins its life; then, what the store has.
  void BeginLife() { seen_.clear(); }
  void Loaded(const StoredJob& job);
  void AfterStep(const Event& event, const std::vector<Change>& changes);

  // ---- what must hold ----
  // An order as MakeOrder made it, in the same step.
  std::string Made(const Dispatcher& dispatcher, const StartStage& start,
                   const StageOrder& order) const;
  // What a running profile stage is fed.
  std::string Fed(JobId job, CandidateId candidate, const v1::StageInput& input) const;
  // The same order before and after what the store had was added.
  std::string Completed(const StageOrder& made, const StageOrder& completed,
                        RecordStore* store) const;
  // How many results the task's search has to have learned when it proposes: all but those that
  // faults lost and those of rounds in flight.
  int Learnable(const Job& job, TaskIndex task) const;

 private:
  struct Seen {
    TaskIndex task;
    std::string trace;
    std::optional<v1::Outcome> outcome;
    double median_ns = 0;
    bool learned = false;
    // Whether a search may learn from it.
    bool measured() const { return outcome && *outcome != v1::OUTCOME_LOST; }
  };
  using Candidates = std::map<CandidateId, Seen>;
  const Candidates& Of(JobId job) const;
  std::string BadCandidate(JobId job, CandidateId id, const v1::Candidate& candidate) const;
  std::string BadUpdate(const Job& job, const StartStage& start, const StageOrder& order) const;
  std::string BadCompile(const Job& job, const v1::CompileSpec& compile) const;
  std::string BadTransfer(const StageOrder& order) const;

  std::map<JobId, Candidates> seen_;
  const std::shared_ptr<Taught> taught_;
};

}  // namespace heddle::sim
