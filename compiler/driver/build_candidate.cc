// Compiles one candidate: from a workload's text and a trace to machine code.
#include <vector>

#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/schedule_and_lower.h"
#include "compiler/ir/workload.h"

namespace heddle {

absl::StatusOr<codegen::Artifact> BuildCandidate(
    std::string_view workload, ScheduleChoice choice, std::string_view trace, const Target& target,
    const std::optional<machine::MeasuredMachine>& machine) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, ir::ParseWorkload(workload));
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info,
                          codegen::DescribeTarget(resolved, machine ? &*machine : nullptr));
  HEDDLE_ASSIGN_OR_RETURN(internal::LoweredWorkload lowered,
                          internal::ScheduleAndLower(naive, choice, trace, info, "kernel"));
  std::vector<ir::Program> programs{std::move(lowered.kernel)};
  if (lowered.prepack) programs.push_back(*std::move(lowered.prepack));
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          codegen::BackendOf(resolved).Compile(programs, resolved));
  artifact.numerics = lowered.numerics;
  return artifact;
}

}  // namespace heddle
