#include "scheduler/ledger/known_records.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {

std::optional<std::string> DeviceKeyFor(const Dispatcher& dispatcher, JobId job) {
  const std::string& pinned = dispatcher.FindJob(job)->params.device_key;
  if (!pinned.empty()) return pinned;
  const WorkItem profile{job, v1::STAGE_PROFILE, TaskIndex{0}, std::nullopt, true};
  for (const bool usable : {true, false}) {
    for (const SlotInfo& slot : dispatcher.slots()) {
      if (slot.usable == usable && dispatcher.Suits(slot, profile)) return slot.device_key;
    }
  }
  return std::nullopt;
}

absl::Status FindKnown(RecordStore* store, absl::Span<const WorkloadId> tasks,
                       std::vector<KnownRecords>* known) {
  for (const WorkloadId& task : tasks) {
    HEDDLE_ASSIGN_OR_RETURN(known->emplace_back(), store->Known(task));
  }
  return absl::OkStatus();
}

void PlanPlanned(RecordStore* store, const JobParams& params, StageFinished* end) {
  Planned& planned = std::get<Planned>(end->result);
  planned.known.clear();
  if (params.force || params.device_key.empty()) return;
  std::vector<WorkloadId> tasks;
  for (const v1::TaskInfo& task : planned.plan.tasks())
    tasks.push_back({task.key(), params.record_target, params.device_key});
  const absl::Status found = FindKnown(store, tasks, &planned.known);
  if (!found.ok()) end->warnings.push_back(absl::StrCat(kUnreadRecords, found.message()));
}

void PlanImport(RecordStore* store, const JobParams& params,
                const std::optional<std::string>& device_key, StageFinished* end) {
  Imported& imported = std::get<Imported>(end->result);
  imported.known.clear();
  if (device_key) {
    imported.device_key = *device_key;
  } else {
    const auto keys = store->DeviceKeys(params.record_target);
    if (keys.ok() && !keys->empty()) imported.device_key = keys->front();
  }
  std::vector<WorkloadId> tasks;
  for (const v1::TaskInfo& task : imported.model.tasks())
    tasks.push_back({task.key(), params.record_target, imported.device_key});
  const absl::Status found = FindKnown(store, tasks, &imported.known);
  if (!found.ok()) end->warnings.push_back(absl::StrCat(kUnreadRecords, found.message()));
  std::vector<int> totals;
  for (int i = 0; i < imported.model.tasks_size(); ++i)
    totals.push_back(params.force ? 0 : imported.KnownOf(i).total);
  const bool wait = !device_key && TrialBudget(params, totals) > 0;
  if (wait) imported.device_key.clear();
  if (wait || params.force) imported.known.clear();  // force: nothing known counts
}

}  // namespace heddle::scheduler
