#include "compiler/driver/schedule_and_lower.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/hoist_constants.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"

namespace heddle::internal {
namespace {

// The steps of the chosen schedule; naive loops have none.
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

// The number of terms of the program's longest sum.
int64_t LongestSum(const ir::Program& naive) {
  int64_t longest = 1;
  ir::VisitStmt(naive.body, [&](const ir::Stmt& s) {
    const auto* block = ir::As<ir::Block>(s);
    if (block == nullptr) return true;
    int64_t terms = 1;
    for (const ir::BlockIter& iter : block->iters)
      terms *= iter.kind == ir::IterKind::kReduce ? iter.extent : 1;
    longest = std::max(longest, terms);
    return false;
  });
  return longest;
}

runtime::Numerics NumericsOf(const ir::Program& naive, const schedule::Trace& trace) {
  const auto has = [&](schedule::Primitive primitive) {
    return std::any_of(trace.steps.begin(), trace.steps.end(),
                       [&](const schedule::Step& step) { return step.primitive == primitive; });
  };
  return {.winograd = has(schedule::Primitive::kWinograd),
          .tf32 = has(schedule::Primitive::kTf32),
          .tensor_cores = has(schedule::Primitive::kTensorize),
          .sum_terms = LongestSum(naive)};
}

absl::Status CheckAllowed(const runtime::Numerics& numerics, const Target& target) {
  if (numerics.winograd && !target.winograd)
    return absl::FailedPreconditionError("the target forbids Winograd's form (-winograd=off)");
  if (numerics.tf32 && !target.tf32)
    return absl::FailedPreconditionError("the target does not allow tf32 (-tf32=on)");
  return absl::OkStatus();
}

absl::Status Refused(const absl::Status& status) {
  return absl::FailedPreconditionError(status.message());
}

absl::StatusOr<ir::Program> LowerChecked(const ir::Program& scheduled, const std::string& symbol,
                                         const machine::TargetInfo& target) {
  pass::LowerOptions options;
  options.target = target;
  // Verification happens once, at the end, because a search lowers thousands of candidates.
  options.verify_each = false;
  absl::StatusOr<ir::Program> lowered = pass::Lower(scheduled, options);
  if (!lowered.ok()) return Refused(lowered.status());
  if (absl::Status status = ir::Verify(*lowered, ir::Level::kLowered); !status.ok()) {
    return Refused(status);
  }
  lowered->name = symbol;
  return lowered;
}

}  // namespace

absl::StatusOr<LoweredWorkload> ScheduleAndLower(const ir::Program& naive, ScheduleChoice choice,
                                                 std::string_view trace,
                                                 const machine::TargetInfo& target,
                                                 const std::string& symbol) {
  HEDDLE_ASSIGN_OR_RETURN(const schedule::Trace steps, TraceOf(naive, choice, trace, target));
  LoweredWorkload result;
  result.numerics = NumericsOf(naive, steps);
  HEDDLE_RETURN_IF_ERROR(CheckAllowed(result.numerics, target.target));
  absl::StatusOr<ir::Program> scheduled = schedule::Replay(naive, steps);
  if (!scheduled.ok()) return Refused(scheduled.status());
  if (absl::Status status = ir::Verify(*scheduled); !status.ok()) return Refused(status);
  pass::HoistedProgram hoisted = pass::HoistConstants(*scheduled);
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

}  // namespace heddle::internal
