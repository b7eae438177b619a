// GPU stages with a thread for each element, and what the GPU rules have in common.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/gpu_rules.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

int64_t SpatialElements(const StageView& view) {
  int64_t elements = 1;
  for (const Axis& axis : view.spatial) elements *= axis.extent;
  return elements;
}

int64_t ReduceElements(const StageView& view) {
  int64_t elements = 1;
  for (const Axis& axis : view.reduce) elements *= axis.extent;
  return elements;
}

// A sum shorter than this is not worth a block of threads.
constexpr int64_t kMinRow = 64;
// Results fewer than this leave multiprocessors idle if one thread makes each.
constexpr int64_t kRowsPerMultiprocessor = 64;
// Results fewer than this have no tiles to speak of.
constexpr int64_t kMinTiled = 256;
constexpr int64_t kMaxUnrolledSteps = 16;

class GpuPlainRule : public Rule {
 public:
  GpuPlainRule(const ReductionStage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage) {
    const std::string& block = stage.view.block;
    const int64_t elements = SpatialElements(stage.view);
    // As many blocks as there are multiprocessors come first.
    int64_t threads = 256;
    while (threads > 64 && elements / threads < target.multiprocessors) threads /= 2;
    threads_ = knobs.Add(absl::StrCat("threads of ", block), {32, 64, 128, 256, 512}, threads);
    const bool many = elements >= int64_t{4} * target.multiprocessors * 1024;
    lanes_ = knobs.Add(absl::StrCat("elements per thread of ", block), {1, 2, 4}, many ? 4 : 1);
    if (!stage.view.reduce.empty()) {
      unroll_ = knobs.Add(absl::StrCat("unroll the sums of ", block), {0, 1}, 1);
    }
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    const int64_t threads = knobs.Value(point, threads_), lanes = knobs.Value(point, lanes_);
    for (const std::string& producer : stage_.producers)
      HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeInline, {producer}));
    std::vector<std::string> spatial, reduce;
    for (const Axis& axis : stage_.view.spatial) spatial.push_back(axis.loop);
    for (const Axis& axis : stage_.view.reduce) reduce.push_back(axis.loop);
    std::string epilogue;
    if (!reduce.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(epilogue, out.Accumulate(stage_.view.block, stage_.epilogue));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::string fused, FuseAll(spatial, out));
    const int64_t extent = ExtentOf(out, fused);
    const int64_t width = LargestDivisorUpTo(extent, lanes);
    int64_t block = LargestDivisorUpTo(extent / width, threads);
    int64_t blocks = extent / width / block;
    // A loop that was not fused may have a tail.
    if (spatial.size() == 1 && block < threads / 2 && extent / width > threads) {
      block = threads;
      blocks = (extent / width + block - 1) / block;
    }
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {fused}, {blocks, block, width}));
    if (!reduce.empty()) HEDDLE_RETURN_IF_ERROR(Reduce(fused, epilogue, reduce, width, out));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kBind, {fused + ".0", "blockIdx.x"}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kBind, {fused + ".1", "threadIdx.x"}));
    if (!reduce.empty()) {
      const bool unroll = knobs.Value(point, unroll_) != 0;
      for (const std::string& loop : reduce) {
        if (unroll && ExtentOf(out, loop) <= kMaxUnrolledSteps)
          HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {loop}));
      }
      return out.Do(Primitive::kDecomposeReduction, {stage_.view.block, reduce[0]});
    }
    if (width == 1) return absl::OkStatus();
    return out.Do(Primitive::kVectorize, {fused + ".2"});
  }

 private:
  absl::Status Reduce(const std::string& fused, const std::string& epilogue,
                      const std::vector<std::string>& reduce, int64_t width, Recorder& out) const {
    const std::string thread = fused + ".1", lane = fused + ".2";
    std::vector<std::string> order = reduce;
    order.push_back(lane);
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReorder, order));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReverseComputeAt, {epilogue, thread}));
    if (width == 1) return absl::OkStatus();
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {lane}));
    return out.Do(Primitive::kVectorize, {absl::StrCat(epilogue, "@", thread, ".0")});
  }

  ReductionStage stage_;
  int threads_ = -1, lanes_ = -1, unroll_ = -1;
};

}  // namespace

std::unique_ptr<Rule> MakeGpuPlain(const ReductionStage& stage, int /*axis*/,
                                   const machine::TargetInfo& target, Knobs& knobs) {
  return std::make_unique<GpuPlainRule>(stage, target, knobs);
}

std::vector<GpuRuleMaker> GpuRulesFor(const ReductionStage& stage,
                                      const machine::TargetInfo& target, bool tensor) {
  std::vector<GpuRuleMaker> makers;
  if (tensor) makers.push_back(MakeGpuTensor);
  const int64_t results = SpatialElements(stage.view), length = ReduceElements(stage.view);
  if (!stage.view.reduce.empty()) {
    if (HasReuse(*stage.block) && results >= kMinTiled) makers.push_back(MakeGpuTiled);
    if (length >= kMinRow && results < kRowsPerMultiprocessor * target.multiprocessors)
      makers.push_back(MakeGpuRow);
  }
  makers.push_back(MakeGpuPlain);
  return makers;
}

absl::StatusOr<std::string> FuseAll(const std::vector<std::string>& loops, Recorder& out) {
  if (loops.empty()) return absl::FailedPreconditionError("no loop to bind to a GPU");
  if (loops.size() == 1) return loops[0];
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kFuse, loops));
  std::string fused = loops[0];
  for (size_t k = 1; k < loops.size(); ++k) absl::StrAppend(&fused, "*", loops[k]);
  return fused;
}

int64_t ExtentOf(const Recorder& out, const std::string& loop) {
  const absl::StatusOr<Path> path = FindLoop(out.program().body, loop);
  return path.ok() ? path->loop().extent : 0;
}

absl::Status SpreadOverThreads(const std::vector<std::string>& loops, int64_t threads,
                               int64_t lanes, bool vectorize, Recorder& out) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string fused, FuseAll(loops, out));
  const int64_t extent = ExtentOf(out, fused);
  const int64_t width = LargestDivisorUpTo(extent, lanes);
  const int64_t used = LargestDivisorUpTo(extent / width, threads);
  const int64_t steps = extent / width / used;
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {fused}, {steps, used, width}));
  if (steps > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReorder, {fused + ".1", fused + ".0"}));
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kBind, {fused + ".1", "threadIdx.x"}));
  if (steps > 1 && steps <= kMaxUnrolledSteps)
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {fused + ".0"}));
  if (width == 1) return absl::OkStatus();
  return out.Do(vectorize ? Primitive::kVectorize : Primitive::kUnroll, {fused + ".2"});
}

}  // namespace heddle::schedule
