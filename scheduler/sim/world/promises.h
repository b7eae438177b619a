// What the scheduler promises: must hold after every event, whatever goes wrong. Counts for itself
// what it compares the dispatcher with.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/budget_check.h"
#include "scheduler/sim/world/machines.h"
#include "scheduler/sim/world/running_stage.h"
#include "scheduler/store/record_store.h"

namespace heddle::sim {

class Promises {
 public:
  using Report = std::function<void(const std::string& violation)>;
  // All outlive this.
  Promises(const Scenario& scenario, std::string policy, const Agenda& agenda,
           const Machines& machines, const RunningStages& stages, Report report)
      : scenario_(scenario),
        policy_(std::move(policy)),
        agenda_(agenda),
        machines_(machines),
        stages_(stages),
        report_(std::move(report)) {}

  // ---- what happens ----
  // A scheduler's process begins its life. What the store has of a candidate is final.
  void BeginLife();
  void HasRecord(int64_t job, int64_t candidate) { recorded_.insert({job, candidate}); }
  // The user was told that the job is taken.
  void Acknowledged(int64_t job) { acknowledged_.insert(job); }
  // What the job's tasks truly are.
  void HasTasks(JobId job, std::vector<std::string> keys) {
    budgets_.Imported(job, std::move(keys));
  }
  // A stage did not run on the slot: the dispatcher may leave it alone for a while.
  void Refused(const SlotId& slot);
  // An update of the job was struck by a fault, and may be left out.
  void UpdateFailed(JobId job) { unlucky_.insert(job); }

  // ---- what must hold ----
  void BeforeStep(const Dispatcher& dispatcher) { budgets_.Before(dispatcher); }
  void AfterStep(const Dispatcher& dispatcher, const std::vector<Change>& changes,
                 const Event& event);
  // After its orders were performed.
  void CheckStep(const Dispatcher& dispatcher);
  void CheckStart(const Dispatcher& dispatcher, const JobLedger& book, const StartStage& start);
  void CountPassedOver(const Dispatcher& dispatcher, const StartStage& start, const SlotInfo& slot);
  void CheckArtifact(const JobLedger& book, JobId job, CandidateId candidate);
  void CheckRecord(const FinishCandidate& done, const Event& event);
  // `learned`: results that the search has been told of when it proposes.
  void CheckLearned(const Dispatcher& dispatcher, const StartStage& start, int learned);
  // Once nothing is left to happen.
  void CheckEnd(const Dispatcher& dispatcher, RecordStore* store);

  // Whether a stage could begin on the slot as far as the dispatcher may know.
  bool Free(const Dispatcher& dispatcher, const SlotInfo& slot) const;
  bool Held(const SlotId& id) const;

 private:
  absl::Time now() const { return agenda_.now(); }
  void Violation(const std::string& what) { report_(what); }
  void CheckNoIdleSlot(const Dispatcher& dispatcher);
  bool MayGiveWay(const Dispatcher& dispatcher, const Job& job) const;
  void CheckHeldBack(const Dispatcher& dispatcher);
  bool BacksOff(const Dispatcher& dispatcher, const SlotInfo& slot);
  bool CoresFree(const Dispatcher& dispatcher, const SlotInfo& slot) const;
  void CheckNobodyStarves(const Dispatcher& dispatcher);

  const Scenario& scenario_;
  const std::string policy_;
  const Agenda& agenda_;
  const Machines& machines_;
  const RunningStages& stages_;
  const Report report_;
  BudgetCheck budgets_;
  std::set<int64_t> acknowledged_;
  std::set<std::pair<int64_t, int64_t>> recorded_;  // (job, candidate) with a final record
  std::map<SlotId, absl::Time> blocked_;            // may be left alone until then
  std::set<JobId> unlucky_;
  std::map<std::pair<JobId, bool>, int> passed_over_;  // (job, device) -> stages of others since
};

}  // namespace heddle::sim
