// Turns what a user asked for into the parameters of a job.
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/vocabulary/job_limits.h"
#include "base/vocabulary/strategies.h"
#include "base/vocabulary/target.h"
#include "scheduler/ledger/job_ledger.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kLatest = std::numeric_limits<int64_t>::max();
// With fewer trials of a task, a survey is too large a part of them.
constexpr int kPlanTrials = 32;

}  // namespace

absl::StatusOr<JobParams> JobLedger::ParamsFrom(const v1::JobSpec& spec, absl::Time now,
                                                absl::Time wall) {
  HEDDLE_ASSIGN_OR_RETURN(const Target target, ParseTarget(spec.target()));
  if (target.cpu == "native") {
    return absl::InvalidArgumentError(
        absl::StrCat("target \"", spec.target(),
                     "\": the service does not know which machine 'native' means; name an "
                     "architecture, such as \"cuda -arch=sm_90\" or \"llvm -mcpu=znver4\""));
  }
  const DeviceNeeds needs = NeedsOf(target);
  auto range = [](const char* what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", value, "; it must be ", low, "..", high));
  };
  const std::string& strategy = spec.strategy();
  if (!strategy.empty() && !IsStrategy(strategy)) {
    return absl::InvalidArgumentError(
        absl::StrCat("strategy is \"", strategy, "\"; it must be ", StrategyList()));
  }
  HEDDLE_RETURN_IF_ERROR(range("trials_per_task", spec.trials_per_task(), 1, kMaxTrialsPerTask));
  HEDDLE_RETURN_IF_ERROR(range("batch", spec.batch(), 0, kMaxBatch));
  HEDDLE_RETURN_IF_ERROR(range("pipeline_depth", spec.pipeline_depth(), 0, kMaxPipelineDepth));
  HEDDLE_RETURN_IF_ERROR(range("repeats", spec.repeats(), 0, kMaxRepeats));
  HEDDLE_RETURN_IF_ERROR(range("min_repeat_us", spec.min_repeat_us(), 0, kMaxMinRepeatUs));
  HEDDLE_RETURN_IF_ERROR(range("priority", spec.priority(), kMinPriority, kMaxPriority));
  HEDDLE_RETURN_IF_ERROR(range("deadline_unix_ns", spec.deadline_unix_ns(), 0, kLatest));
  HEDDLE_RETURN_IF_ERROR(range("time_limit_ms", spec.time_limit_ms(), 0, kLatest));
  HEDDLE_RETURN_IF_ERROR(range("plateau_trials", spec.plateau_trials(), 0, kMaxTrialsPerTask));
  HEDDLE_RETURN_IF_ERROR(range("target_latency_ns", spec.target_latency_ns(), 0, kLatest));
  HEDDLE_RETURN_IF_ERROR(range("max_devices", spec.max_devices(), 0, kMaxJobDevices));
  const std::string& allocation = spec.allocation();
  if (!allocation.empty() && allocation != "gradient" && allocation != "uniform") {
    return absl::InvalidArgumentError(
        absl::StrCat("allocation is \"", allocation, "\"; it must be gradient or uniform"));
  }
  const std::string& plan = spec.plan_search();
  if (!plan.empty() && plan != "joint" && plan != "sequential" && plan != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("plan_search is \"", plan, "\"; it must be joint, sequential or off"));
  }
  JobParams params;
  params.target = needs.target;
  params.record_target = spec.target();
  params.strategy = StrategyOrDefault(strategy);
  params.threads = needs.cores;
  params.device_key = spec.device_key();
  params.trials_per_task = spec.trials_per_task();
  params.batch = spec.batch() == 0 ? kDefaultBatch : spec.batch();
  params.pipeline_depth = spec.pipeline_depth();
  params.force = spec.force();
  params.tenant = spec.user();
  params.priority = spec.priority();
  if (spec.deadline_unix_ns() > 0) {
    params.deadline = now + (absl::FromUnixNanos(spec.deadline_unix_ns()) - wall);
  }
  if (spec.time_limit_ms() > 0) params.time_limit = absl::Milliseconds(spec.time_limit_ms());
  params.plateau = spec.plateau_trials();
  params.target_latency_ns = static_cast<double>(spec.target_latency_ns());
  if (spec.allocation() == "uniform") params.allocation = Allocation::kUniform;
  params.max_devices = spec.max_devices();
  params.compare = !spec.no_comparison();
  const bool worthwhile = spec.trials_per_task() >= kPlanTrials;
  params.plan = plan.empty() ? worthwhile : plan != "off";
  return params;
}

}  // namespace heddle::scheduler
