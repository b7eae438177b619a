#include "compiler/codegen/backend.h"

#include "base/status_macros.h"
#include "compiler/codegen/cuda/cuda_backend.h"
#include "compiler/codegen/llvm/llvm_backend.h"

namespace heddle::codegen {

// The switch has no default, so the compiler warns about a kind without a back end.
const Backend& BackendOf(const Target& target) {
  switch (target.kind) {
    case TargetKind::kCuda:
      return CudaBackend();
    case TargetKind::kLlvm:
      break;
  }
  return LlvmBackend();
}

absl::StatusOr<Target> ResolveTarget(const Target& target) {
  return BackendOf(target).Resolve(target);
}

absl::StatusOr<machine::TargetInfo> DescribeTarget(const Target& resolved,
                                                   const machine::MeasuredMachine* measured) {
  HEDDLE_ASSIGN_OR_RETURN(machine::TargetInfo info, BackendOf(resolved).Describe(resolved));
  if (measured != nullptr && info.execution == machine::Execution::kThreads)
    machine::PutMeasured(*measured, &info);
  return info;
}

}  // namespace heddle::codegen
