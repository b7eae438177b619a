#include "compiler/driver/kernel_table.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/driver/traffic.h"
#include "compiler/ir/visit.h"

namespace heddle::internal {

absl::StatusOr<int> KernelTable::Add(Workload workload) {
  const auto [it, is_new] = index_.try_emplace(workload.key, static_cast<int>(specs_.size()));
  if (is_new) {
    runtime::KernelSpec& spec = specs_.emplace_back();
    spec.symbol = absl::StrCat("kernel_", specs_.size() - 1);
    spec.task = workload.key;
    spec.label = workload.label;
    spec.flops = workload.flops;
    spec.untouched_bytes = UntouchedBytes(workload.naive);
    workloads_.push_back(std::move(workload));
  } else if (workloads_[it->second].text != workload.text) {
    return absl::InternalError(absl::StrCat("two different kernels have the key ", workload.key,
                                            ", one of them ", workload.label));
  }
  return it->second;
}

absl::Status KernelTable::Lower() {
  for (size_t i = lowered_.size(); i < specs_.size(); ++i) {
    Progress(static_cast<int>(i), specs_[i].label);
    HEDDLE_ASSIGN_OR_RETURN(LoweredWorkload lowered, Schedule(workloads_[i].naive, &specs_[i]));
    lowered_.push_back(std::move(lowered));
  }
  return absl::OkStatus();
}

absl::StatusOr<codegen::Artifact> KernelTable::Compile() {
  HEDDLE_RETURN_IF_ERROR(Lower());
  Progress(Steps() - 1, "machine code");
  std::vector<ir::Program> programs;
  for (const LoweredWorkload& workload : lowered_) programs.push_back(workload.kernel);
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          codegen::BackendOf(target_.target).Compile(programs, target_.target));
  for (size_t i = 0; i < specs_.size(); ++i) {
    specs_[i].symbol = artifact.kernels[i].symbol;
    specs_[i].workspace_bytes = artifact.kernels[i].workspace_bytes;
    specs_[i].launches = artifact.kernels[i].launches;
    artifact.numerics = artifact.numerics | specs_[i].numerics;
  }
  Progress(Steps(), "machine code");
  return artifact;
}

absl::StatusOr<LoweredWorkload> KernelTable::Schedule(const ir::Program& naive,
                                                      runtime::KernelSpec* spec) {
  ScheduleChoice choice = options_.choice;
  const auto record = best_.find(spec->task);
  const bool has_trace = record != best_.end() && record->second.trace.has_value();
  const bool has_default = record != best_.end() && !has_trace;
  if (choice == ScheduleChoice::kTrace && !has_trace) choice = ScheduleChoice::kDefault;
  while (true) {
    const bool tuned = choice == ScheduleChoice::kTrace;
    absl::StatusOr<LoweredWorkload> lowered = ScheduleAndLower(
        naive, choice, tuned ? *record->second.trace : std::string(), target_, spec->symbol);
    if (lowered.ok()) {
      const absl::Status fits =
          codegen::BackendOf(target_.target).CheckLimits(lowered->kernel, target_.target);
      if (!fits.ok()) lowered = fits;
    }
    if (lowered.ok()) {
      const bool measured = tuned || (has_default && choice == ScheduleChoice::kDefault);
      spec->schedule = Name(choice);
      spec->numerics = lowered->numerics;
      spec->record_ms = measured ? record->second.median_ns / 1e6 : 0;
      // As it was measured (measure/measure.h).
      spec->warm =
          measured && target_.execution == machine::Execution::kThreads && ir::IsTimedWarm(naive);
    }
    if (lowered.ok()) return lowered;
    if (choice == ScheduleChoice::kNaive) {
      // What exceeds the target's limits never fits. ResourceExhausted would mean that this host is short of
      // something now.
      const absl::StatusCode code = absl::IsResourceExhausted(lowered.status())
                                        ? absl::StatusCode::kFailedPrecondition
                                        : lowered.status().code();
      return absl::Status(code, absl::StrCat("task ", spec->task, " (", spec->label,
                                             "): ", lowered.status().message()));
    }
    const ScheduleChoice next = tuned ? ScheduleChoice::kDefault : ScheduleChoice::kNaive;
    Warn(*spec, choice, next, lowered.status());
    choice = next;
  }
}

void KernelTable::Progress(int done, const std::string& label) const {
  if (options_.progress) options_.progress(done, Steps(), label);
}

void KernelTable::Warn(const runtime::KernelSpec& spec, ScheduleChoice failed, ScheduleChoice next,
                       const absl::Status& status) {
  if (warnings_ == nullptr) return;
  warnings_->push_back(absl::StrCat("task ", spec.task, " (", spec.label, "): its ",
                                    std::string(Name(failed)), " schedule does not apply, the ",
                                    std::string(Name(next)), " one is used: ", status.message()));
}

}  // namespace heddle::internal
