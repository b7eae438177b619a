// Operands of GPU reductions, fetched into shared memory.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/gpu_rules.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

std::vector<GpuOperand> OperandsOf(const ir::Block& block) {
  std::vector<GpuOperand> operands;
  std::set<std::string> seen;
  for (const ir::Expr& load : DistinctLoads(block)) {
    const ir::Buffer& buffer = *load->buffer;
    if (!seen.insert(buffer.name).second) continue;
    operands.push_back(
        {buffer.name, ir::SizeOf(buffer.dtype), buffer.shape.empty() ? 1 : buffer.shape.back()});
  }
  return operands;
}

absl::Status FetchOperand(const ReductionStage& stage, const GpuOperand& operand, bool shared,
                          const std::string& step, int64_t threads, int64_t lanes, int64_t* bytes,
                          Recorder& out) {
  const ir::Block* producer = nullptr;
  Path path;
  for (const std::string& name : stage.producers) {
    const absl::StatusOr<Path> found = FindBlock(out.program().body, name);
    if (!found.ok()) continue;  // inlined already
    path = *found;
    if (path.block().store.buffer->name == operand.buffer) producer = &path.block();
    if (producer != nullptr) break;
  }
  std::string fetch;
  if (producer != nullptr) {
    fetch = producer->name;
    if (!shared) return out.Do(Primitive::kComputeInline, {fetch});
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSetScope, {fetch, "shared"}));
  } else {
    if (!shared) return absl::OkStatus();
    fetch = operand.buffer + ".shared";
    HEDDLE_RETURN_IF_ERROR(
        out.Do(Primitive::kCacheRead, {stage.view.block, operand.buffer, "shared"}));
  }
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeAt, {fetch, step}));
  HEDDLE_ASSIGN_OR_RETURN(path, FindBlock(out.program().body, fetch));
  std::vector<std::string> loops;
  int64_t elements = 1;
  for (size_t d = 0; d < path.block().iters.size(); ++d) {
    loops.push_back(absl::StrCat(fetch, "@", step, ".", d));
    elements *= ExtentOf(out, loops.back());
  }
  *bytes += elements * operand.element_bytes;
  if (loops.empty()) return absl::OkStatus();
  const int64_t row = ExtentOf(out, loops.back());
  const bool plain = producer == nullptr && !path.block().where && operand.row % lanes == 0;
  const int64_t width = LargestDivisorUpTo(row, lanes);
  if (LargestDivisorUpTo(elements / (plain ? width : 1), threads) < std::min(threads, elements) / 4)
    return absl::FailedPreconditionError(
        absl::StrCat("what is fetched of ", operand.buffer, " does not divide among the threads"));
  return SpreadOverThreads(loops, threads, plain ? width : 1, plain, out);
}

absl::Status CheckShared(int64_t bytes, const machine::TargetInfo& target) {
  if (bytes <= target.shared_bytes_per_block) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("exceeds the limits of ", target.target.cpu,
                                                   ": ", bytes,
                                                   " bytes of shared memory in a block"));
}

}  // namespace heddle::schedule
