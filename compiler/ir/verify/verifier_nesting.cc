// Which loops may stand inside which.
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier_rules.h"

namespace heddle::ir {

namespace {

constexpr int64_t kMaxThreads = 1024;  // most iterations on one thread axis of a GPU block

}  // namespace

bool ClaimsIndependence(LoopKind kind) {
  return kind != LoopKind::kSerial && kind != LoopKind::kUnrolled;
}

bool InsideGpuBlock(const std::vector<const For*>& loops) {
  for (const For* loop : loops) {
    if (IsGpuBlock(loop->kind)) return true;
  }
  return false;
}

std::string Describe(const For& loop) {
  return "for " + loop.var->name + " in " + std::to_string(loop.extent) + " " +
         std::string(Name(loop.kind));
}

absl::Status CheckNesting(const For& loop, const std::vector<const For*>& outside) {
  const auto broken = [&](const char* rule, const std::string& message) {
    return RuleBroken(rule, message, Describe(loop));
  };
  for (const For* outer : outside) {
    if (outer->kind == LoopKind::kVectorized && ClaimsIndependence(loop.kind)) {
      return broken("nesting", "a " + std::string(Name(loop.kind)) +
                                   " loop inside the vectorized loop " + outer->var->name);
    }
    if (outer->kind == LoopKind::kParallel && loop.kind == LoopKind::kParallel) {
      return broken("nesting", "a parallel loop inside the parallel loop " + outer->var->name);
    }
    if ((outer->kind == LoopKind::kParallel && IsGpu(loop.kind)) ||
        (IsGpu(outer->kind) && loop.kind == LoopKind::kParallel)) {
      return broken("gpu", "parallel and GPU loops are nested");
    }
    if (outer->kind == loop.kind && (IsGpuBlock(loop.kind) || IsGpuThread(loop.kind))) {
      return broken("gpu", "the axis is already bound by " + outer->var->name);
    }
    if (IsGpuBlock(loop.kind) && IsGpuThread(outer->kind)) {
      return broken("gpu", "a block axis inside the thread axis " + outer->var->name);
    }
  }
  if (!IsGpuThread(loop.kind)) return absl::OkStatus();
  if (!InsideGpuBlock(outside)) return broken("gpu", "a thread axis outside any block axis");
  if (loop.extent > kMaxThreads)
    return broken("gpu", "a thread axis has more than " + std::to_string(kMaxThreads) + " threads");
  return absl::OkStatus();
}

}  // namespace heddle::ir
