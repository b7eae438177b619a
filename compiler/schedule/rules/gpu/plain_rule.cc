// GPU stages with a thread for each element.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxUnrolledLoop = 16;

class GpuPlainRule : public Rule {
 public:
  GpuPlainRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage) {
    const std::string& block = stage.view.block;
    const int64_t elements = ElementsOf(stage.view.spatial);
    // A block for each multiprocessor is more important than large blocks.
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
    HEDDLE_RETURN_IF_ERROR(InlineProducers(stage_, out));
    const bool reduces = !stage_.view.reduce.empty();
    std::string epilogue;
    if (reduces) {
      HEDDLE_ASSIGN_OR_RETURN(epilogue, Accumulate(stage_, out));
    }
    HEDDLE_ASSIGN_OR_RETURN(const Loop fused, out.Fuse(LoopsOf(stage_.view.spatial)));
    const int64_t width = LargestDivisorUpTo(fused.extent, lanes);
    int64_t block = LargestDivisorUpTo(fused.extent / width, threads);
    int64_t blocks = fused.extent / width / block;
    // A loop that was not fused may have a tail.
    if (stage_.view.spatial.size() == 1 && block < threads / 2 && fused.extent / width > threads) {
      block = threads;
      blocks = (fused.extent / width + block - 1) / block;
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                            out.Split(fused, {blocks, block, width}));
    if (reduces) HEDDLE_RETURN_IF_ERROR(Reduce(parts, epilogue, out));
    HEDDLE_RETURN_IF_ERROR(out.Bind(parts[0], ir::LoopKind::kBlockX));
    HEDDLE_RETURN_IF_ERROR(out.Bind(parts[1], ir::LoopKind::kThreadX));
    if (!reduces) return VectorizeLanes(parts[2], out);
    const std::vector<Loop> reduce = LoopsOf(stage_.view.reduce);
    for (const Loop& loop : reduce) {
      if (knobs.Value(point, unroll_) != 0 && loop.extent <= kMaxUnrolledLoop)
        HEDDLE_RETURN_IF_ERROR(out.Unroll(loop));
    }
    return out.DecomposeReduction(stage_.view.block, reduce[0]);
  }

 private:
  // `parts`: blocks, threads, elements of a thread.
  absl::Status Reduce(const std::vector<Loop>& parts, const std::string& epilogue,
                      Recorder& out) const {
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({LoopsOf(stage_.view.reduce), {parts[2]}})));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy, out.ReverseComputeAt(epilogue, parts[1]));
    if (parts[2].extent == 1) return absl::OkStatus();
    HEDDLE_RETURN_IF_ERROR(out.Unroll(parts[2]));
    return out.Vectorize(copy[0]);
  }

  Stage stage_;
  int threads_ = -1, lanes_ = -1, unroll_ = -1;
};

}  // namespace

bool MatchesGpuPlain(const StageSite& site) {
  return site.target.execution == machine::Execution::kGrid;
}

std::unique_ptr<Rule> MakeGpuPlain(const StageSite& site, Knobs& knobs) {
  return std::make_unique<GpuPlainRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
