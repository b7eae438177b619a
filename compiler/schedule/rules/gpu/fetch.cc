#include "compiler/schedule/rules/gpu/fetch.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxUnrolledSteps = 16;

// Binds the serial nest of one block to the threads of a GPU block. The loops are fused, and each
// of at most `threads` threads gets `lanes` neighbours, or fewer if that does not divide the nest.
// The neighbours are vectorized if `vectorize`, otherwise unrolled.
absl::Status SpreadOverThreads(const std::vector<Loop>& loops, int64_t threads, int64_t lanes,
                               bool vectorize, Recorder& out) {
  HEDDLE_ASSIGN_OR_RETURN(const Loop fused, out.Fuse(loops));
  const int64_t width = LargestDivisorUpTo(fused.extent, lanes);
  const int64_t used = LargestDivisorUpTo(fused.extent / width, threads);
  const int64_t steps = fused.extent / width / used;
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts, out.Split(fused, {steps, used, width}));
  if (steps > 1) HEDDLE_RETURN_IF_ERROR(out.Reorder({parts[1], parts[0]}));
  HEDDLE_RETURN_IF_ERROR(out.Bind(parts[1], ir::LoopKind::kThreadX));
  if (steps > 1 && steps <= kMaxUnrolledSteps) HEDDLE_RETURN_IF_ERROR(out.Unroll(parts[0]));
  if (width == 1) return absl::OkStatus();
  return vectorize ? out.Vectorize(parts[2]) : out.Unroll(parts[2]);
}

// The producer of the operand, if it is not inlined yet; an empty path if there is none.
Path ProducerOf(const Stage& stage, const GpuOperand& operand, const Recorder& out) {
  for (const std::string& name : stage.producers) {
    absl::StatusOr<Path> path = FindBlock(out.program().body, name);
    if (path.ok() && path->block().store.buffer->name == operand.buffer) return *std::move(path);
  }
  return {};
}

}  // namespace

std::vector<GpuOperand> OperandsOf(const ir::Block& block) {
  std::vector<GpuOperand> operands;
  std::set<std::string> seen;
  for (const ir::Expr& load : DistinctLoads(block)) {
    const ir::Buffer& buffer = *load->buffer;
    if (buffer.below > 0 || !seen.insert(buffer.name).second) continue;
    operands.push_back(
        {buffer.name, ir::SizeOf(buffer.dtype), buffer.shape.empty() ? 1 : buffer.shape.back()});
  }
  return operands;
}

absl::Status FetchOperand(const Stage& stage, const GpuOperand& operand, bool shared,
                          const Loop& step, int64_t threads, int64_t lanes, int64_t* bytes,
                          Recorder& out) {
  const Path producer = ProducerOf(stage, operand, out);
  const bool computed = !producer.nodes.empty();
  std::string fetch;
  if (computed) {
    fetch = producer.block().name;
    if (!shared) return out.ComputeInline(fetch);
    HEDDLE_RETURN_IF_ERROR(out.SetScope(fetch, ir::Scope::kShared));
  } else {
    if (!shared) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(const NewBlock copy,
                            out.CacheRead(stage.view.block, operand.buffer, ir::Scope::kShared));
    fetch = copy.name;
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> loops, out.ComputeAt(fetch, step));
  int64_t elements = 1;
  for (const Loop& loop : loops) elements *= loop.extent;
  *bytes += elements * operand.element_bytes;
  if (loops.empty()) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(const Path path, FindBlock(out.program().body, fetch));
  const bool plain = !computed && !path.block().where && operand.row % lanes == 0;
  const int64_t width = LargestDivisorUpTo(loops.back().extent, lanes);
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
