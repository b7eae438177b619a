// What the scheduler promises. Every promise must hold after every event, whatever goes wrong. This
// counts for itself what it compares the scheduler with.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "scheduler/core/dispatcher.h"
#include "scheduler/ledger/stage_order.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world/agenda.h"
#include "scheduler/sim/world/budget_check.h"
#include "scheduler/sim/world/machines.h"
#include "scheduler/sim/world/order_check.h"
#include "scheduler/sim/world/running_stage.h"
#include "scheduler/store/record_store.h"

namespace heddle::sim {

class Promises {
 public:
  using Report = std::function<void(const std::string& violation)>;
  // Of one scheduler's process. References outlive this. `report` is called with each violation.
  Promises(const Scenario& scenario, std::string policy, const Agenda& agenda,
           const Machines& machines, const RunningStages& stages, Report report,
           std::shared_ptr<Taught> taught = std::make_shared<Taught>())
      : scenario_(scenario),
        policy_(std::move(policy)),
        agenda_(agenda),
        machines_(machines),
        stages_(stages),
        report_(std::move(report)),
        orders_(std::move(taught)) {}

  // ---- what happens ----
  // A scheduler's process begins its life; then, what the store has.
  void BeginLife();
  void Loaded(const StoredJob& job);
  // The user was told that the job is accepted.
  void Acknowledged(JobId job) { acknowledged_.insert(job.value); }
  // The keys of the tasks that an import found.
  void HasTasks(JobId job, std::vector<std::string> keys) {
    budgets_.Imported(job, std::move(keys));
  }
  // A stage did not run on the slot, which the dispatcher may avoid for a while now.
  void Refused(const SlotId& slot);
  // The worker has told the end of a stage.
  void Ended(const StartStage& stage, v1::FaultKind fault);
  // The worker's process died with the attempt, whose end the scheduler does not know yet.
  void Crashed(AttemptId attempt) { crashed_.insert(attempt); }
  // An update of the job failed by a fault, and the dispatcher may give it up.
  void UpdateFailed(JobId job) { unlucky_.insert(job); }

  // ---- what must hold ----
  void BeforeStep(const Dispatcher& dispatcher) { budgets_.Before(dispatcher); }
  void AfterStep(const Dispatcher& dispatcher, const std::vector<Change>& changes,
                 const Event& event);
  // After the orders of a step were performed.
  void CheckStep(const Dispatcher& dispatcher);
  // A stage, before it begins on its slot.
  void CheckStart(const Dispatcher& dispatcher, const StartStage& start);
  void CheckRecord(const FinishCandidate& done, const Event& event);
  // An order when it is made, and when it is complete (order_check.h).
  void CheckOrder(const Dispatcher& dispatcher, const StartStage& start, const StageOrder& order);
  void CheckCompleted(const StageOrder& made, const StageOrder& completed, RecordStore* store);
  void CheckFed(const FeedProfile& feed, const v1::StageInput& input);
  // When nothing is left to happen.
  void CheckEnd(const Dispatcher& dispatcher, RecordStore* store);

  // Whether a stage could begin on the slot, as far as the dispatcher can know.
  bool Free(const Dispatcher& dispatcher, const SlotInfo& slot) const;

 private:
  absl::Time now() const { return agenda_.now(); }
  void Violation(const std::string& what) { report_(what); }
  void ViolationIf(const std::string& what) {
    if (!what.empty()) report_(what);
  }
  bool Held(const SlotId& id) const;
  void CountPassedOver(const Dispatcher& dispatcher, const StartStage& start, const SlotInfo& slot);
  static bool GoesOnWithRound(const Dispatcher& dispatcher, const StartStage& start);
  void CheckLearned(const Dispatcher& dispatcher, const StartStage& start, int learned);
  // `ready`: dispatcher.ReadyWork().
  void CheckNoIdleSlot(const Dispatcher& dispatcher, const std::vector<WorkItem>& ready);
  bool MayGiveWay(const Dispatcher& dispatcher, const Job& job) const;
  void CheckHeldBack(const Dispatcher& dispatcher, const std::vector<WorkItem>& ready);
  bool BacksOff(const Dispatcher& dispatcher, const SlotInfo& slot);
  bool CoresFree(const Dispatcher& dispatcher, const SlotInfo& slot) const;
  void CheckNobodyStarves(const Dispatcher& dispatcher, const std::vector<WorkItem>& ready);
  void CheckIdleCode(const Dispatcher& dispatcher);
  void CheckConfirmed(const Dispatcher& dispatcher, const Job& job);
  void CheckCharges(const std::vector<Change>& changes, const Event& event);

  const Scenario& scenario_;
  const std::string policy_;
  const Agenda& agenda_;
  const Machines& machines_;
  const RunningStages& stages_;
  const Report report_;
  BudgetCheck budgets_;
  OrderCheck orders_;
  std::set<int64_t> acknowledged_;
  absl::flat_hash_set<std::pair<int64_t, int64_t>>
      recorded_;                          // (job, candidate) with a final record
  std::map<SlotId, absl::Time> blocked_;  // until when a slot may be avoided
  std::set<JobId> unlucky_;               // with an update that failed
  // Workers that told a user fault of a stage in this life, since it last succeeded, in order.
  std::map<JobId, std::map<std::pair<v1::StageKind, int>, std::vector<std::string>>> accusers_;
  std::set<AttemptId> crashed_;  // their workers' processes died; the scheduler has not heard of it
  struct Charges {
    int attempts = 0;  // as the scheduler counts
    int crashes = 0;   // those of them whose process died
  };
  std::map<std::pair<int64_t, int64_t>, Charges> charges_;  // by (job, candidate), in this life
  // Idle jobs with code while others wait for room, and since when.
  std::map<JobId, absl::Time> idle_code_;
  // Stages of other jobs that began while ready work of this job, for a device or not, waited. Under
  // round_robin, all builds of a round are one.
  std::map<std::pair<JobId, bool>, int> passed_over_;
};

}  // namespace heddle::sim
