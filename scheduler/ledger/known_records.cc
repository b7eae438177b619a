#include "scheduler/ledger/known_records.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/core/machines/trial_budget.h"

namespace heddle::scheduler {

TaskPlan PlanOf(const v1::TaskInfo& task) {
  TaskPlan plan;
  plan.key = task.key();
  plan.weight = std::max(1, task.weight());
  plan.flops = task.flops();
  return plan;
}

absl::Status AddKnown(RecordStore* store, const std::string& target, const std::string& device_key,
                      absl::Span<TaskPlan> tasks) {
  for (TaskPlan& task : tasks) {
    HEDDLE_ASSIGN_OR_RETURN(const KnownRecords found, store->Known({task.key, target, device_key}));
    task.known = static_cast<int>(std::min<int64_t>(found.total, 1 << 30));
    task.known_valid = static_cast<int>(std::min<int64_t>(found.valid, 1 << 30));
    task.known_best_ns = found.best_ns;
    task.known_untuned_ns = found.untuned_ns;
  }
  return absl::OkStatus();
}

void PlanImport(RecordStore* store, const JobParams& params,
                const std::optional<std::string>& device_key, StageFinished* end) {
  Imported& imported = std::get<Imported>(end->result);
  const auto plan = [&] {
    imported.tasks.clear();
    for (const v1::TaskInfo& task : imported.model.tasks()) imported.tasks.push_back(PlanOf(task));
  };
  plan();
  if (device_key) {
    imported.device_key = *device_key;
  } else {
    const auto keys = store->DeviceKeys(params.record_target);
    if (keys.ok() && !keys->empty()) imported.device_key = keys->front();
  }
  const absl::Status known =
      AddKnown(store, params.record_target, imported.device_key, absl::MakeSpan(imported.tasks));
  if (!known.ok()) end->warnings.push_back(absl::StrCat(kUnreadRecords, known.message()));
  std::vector<int> totals;
  for (const TaskPlan& task : imported.tasks) totals.push_back(params.force ? 0 : task.known);
  const bool wait = !device_key && TrialBudget(params, totals) > 0;
  if (wait) imported.device_key.clear();
  if (wait || params.force) plan();  // with --force nothing known teaches the search or ends it
}

}  // namespace heddle::scheduler
