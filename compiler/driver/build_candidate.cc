#include "compiler/driver/compile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/internal.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/pass/hoist_constants.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"

namespace heddle {
namespace internal {
namespace {

// The schedule steps of `choice`; none for naive loops.
absl::StatusOr<schedule::Trace> TraceOf(const ir::Program& naive, ScheduleChoice choice,
                                        std::string_view trace, const machine::TargetInfo& target) {
  switch (choice) {
    case ScheduleChoice::kNaive:
      return schedule::Trace();
    case ScheduleChoice::kDefault:
      return schedule::DefaultTrace(naive, target);
    case ScheduleChoice::kTrace:
      return schedule::ParseTrace(trace);
  }
  return absl::InternalError("no such schedule choice");
}

bool Has(const schedule::Trace& trace, schedule::Primitive primitive) {
  return std::any_of(trace.steps.begin(), trace.steps.end(),
                     [&](const schedule::Step& step) { return step.primitive == primitive; });
}
bool IsWinograd(const schedule::Trace& trace) { return Has(trace, schedule::Primitive::kWinograd); }
bool IsTf32(const schedule::Trace& trace) { return Has(trace, schedule::Primitive::kTf32); }

absl::Status Refused(const absl::Status& status) {
  return absl::FailedPreconditionError(status.message());
}

absl::StatusOr<ir::Program> LowerChecked(const ir::Program& scheduled, const std::string& symbol,
                                         const machine::TargetInfo& target) {
  pass::LowerOptions options;
  options.gpu = target.execution == machine::Execution::kGrid;
  options.target = target;
  options.verify_each = false;  // once, at the end: candidates come by the thousand
  absl::StatusOr<ir::Program> lowered = pass::Lower(scheduled, options);
  if (!lowered.ok()) return Refused(lowered.status());
  if (absl::Status status = ir::Verify(*lowered, ir::Level::kLowered); !status.ok()) {
    return Refused(status);
  }
  lowered->name = symbol;
  return lowered;
}

}  // namespace

absl::StatusOr<ir::Program> ParseWorkload(std::string_view workload) {
  HEDDLE_ASSIGN_OR_RETURN(ir::Program naive, ir::Parse(workload));
  if (naive.outputs.empty()) return absl::InvalidArgumentError("malformed workload: no outputs");
  const absl::Status status = ir::Verify(naive);
  if (status.ok()) return naive;
  return absl::InvalidArgumentError(absl::StrCat("malformed workload: ", status.message()));
}

absl::StatusOr<LoweredWorkload> ScheduleAndLower(const ir::Program& naive, ScheduleChoice choice,
                                                 std::string_view trace,
                                                 const machine::TargetInfo& target,
                                                 const std::string& symbol) {
  HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace steps, TraceOf(naive, choice, trace, target));
  if (IsWinograd(steps) && !target.target.winograd) {
    return absl::FailedPreconditionError("the target forbids Winograd's form (-winograd=off)");
  }
  if (IsTf32(steps) && !target.target.tf32)
    return absl::FailedPreconditionError("the target does not allow tf32 (-tf32=on)");
  absl::StatusOr<ir::Program> scheduled = schedule::Replay(naive, steps);
  if (!scheduled.ok()) return Refused(scheduled.status());
  if (absl::Status status = ir::Verify(*scheduled); !status.ok()) return Refused(status);
  pass::HoistedProgram hoisted = pass::HoistConstants(*scheduled);
  LoweredWorkload result;
  result.winograd = IsWinograd(steps);
  result.tf32 = IsTf32(steps);
  HEDDLE_ASSIGN_OR_RETURN(result.kernel, LowerChecked(hoisted.kernel, symbol, target));
  if (hoisted.prepack) {
    HEDDLE_ASSIGN_OR_RETURN(result.prepack,
                            LowerChecked(*hoisted.prepack, symbol + ".prepack", target));
  }
  return result;
}

std::string_view Name(ScheduleChoice choice) {
  switch (choice) {
    case ScheduleChoice::kNaive:
      return "naive";
    case ScheduleChoice::kDefault:
      return "default";
    case ScheduleChoice::kTrace:
      return "tuned";
  }
  return "";
}

}  // namespace internal

bool UsesWinograd(std::string_view trace) {
  const absl::StatusOr<schedule::Trace> steps = schedule::ParseTrace(trace);
  return steps.ok() && internal::IsWinograd(*steps);
}

bool UsesTf32(std::string_view trace) {
  const absl::StatusOr<schedule::Trace> steps = schedule::ParseTrace(trace);
  return steps.ok() && internal::IsTf32(*steps);
}

absl::StatusOr<graph::FusedGraph> PrepareModel(std::string_view onnx, const ModelOptions& options,
                                               const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(const ModelOptions chosen, internal::ForTarget(options, target));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, graph::ImportOnnx(onnx, options.import));
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph optimised, graph::Optimize(imported, chosen.passes));
  return graph::Fuse(std::move(optimised), options.fuse);
}

absl::StatusOr<codegen::Artifact> BuildCandidate(std::string_view workload, ScheduleChoice choice,
                                                 std::string_view trace, const Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program naive, internal::ParseWorkload(workload));
  HEDDLE_ASSIGN_OR_RETURN(const Target resolved, codegen::ResolveTarget(target));
  HEDDLE_ASSIGN_OR_RETURN(const machine::TargetInfo info, codegen::DescribeTarget(resolved));
  HEDDLE_ASSIGN_OR_RETURN(internal::LoweredWorkload lowered,
                          internal::ScheduleAndLower(naive, choice, trace, info, "kernel"));
  std::vector<ir::Program> programs{std::move(lowered.kernel)};
  if (lowered.prepack) programs.push_back(*std::move(lowered.prepack));
  HEDDLE_ASSIGN_OR_RETURN(codegen::Artifact artifact,
                          codegen::BackendOf(resolved).Compile(programs, resolved));
  artifact.winograd = lowered.winograd;
  artifact.tf32 = lowered.tf32;
  return artifact;
}

}  // namespace heddle
