// GPU reductions with few results: a block of threads for each.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"

namespace heddle::schedule {

namespace {

// A sum shorter than this is not worth a block of threads.
constexpr int64_t kMinRow = 64;
// Results fewer than this leave multiprocessors idle if one thread makes each.
constexpr int64_t kRowsPerMultiprocessor = 64;
constexpr int64_t kMinThreadsOfRow = 8;

// The sum is split over threads, strided so that neighbours read neighbouring elements. Their parts
// lie in shared memory, where the first thread adds them up.
class GpuRowRule : public Rule {
 public:
  GpuRowRule(const Stage& stage, Knobs& knobs) : stage_(stage) {
    const std::string& block = stage.view.block;
    threads_ = knobs.Add(absl::StrCat("threads per result of ", block), {32, 64, 128, 256}, 128);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    HEDDLE_RETURN_IF_ERROR(InlineProducers(stage_, out));
    HEDDLE_ASSIGN_OR_RETURN(const Loop sum, out.Fuse(LoopsOf(stage_.view.reduce)));
    const int64_t threads = LargestDivisorUpTo(sum.extent, knobs.Value(point, threads_));
    if (threads < kMinThreadsOfRow) {
      return absl::FailedPreconditionError(
          absl::StrCat("a sum of ", sum.extent, " terms has no even shares for threads"));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                            out.Split(sum, {sum.extent / threads, threads}));
    HEDDLE_ASSIGN_OR_RETURN(Recorder::Factored sums, out.Rfactor(stage_.view.block, parts[1]));
    HEDDLE_RETURN_IF_ERROR(out.SetScope(sums.partial, ir::Scope::kShared));
    sums.merge.pop_back();
    HEDDLE_ASSIGN_OR_RETURN(const Loop row, out.Fuse(sums.merge));
    HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
    HEDDLE_RETURN_IF_ERROR(out.ReverseComputeAt(epilogue, row).status());
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> own, out.ComputeAt(sums.partial, row));
    HEDDLE_RETURN_IF_ERROR(out.Bind(row, ir::LoopKind::kBlockX));
    return out.Bind(own[0], ir::LoopKind::kThreadX);
  }

 private:
  Stage stage_;
  int threads_ = -1;
};

}  // namespace

bool MatchesGpuRow(const StageSite& site) {
  const StageView& view = site.stage.view;
  return site.target.execution == machine::Execution::kGrid && !view.reduce.empty() &&
         ElementsOf(view.reduce) >= kMinRow &&
         ElementsOf(view.spatial) < kRowsPerMultiprocessor * site.target.multiprocessors;
}

std::unique_ptr<Rule> MakeGpuRow(const StageSite& site, Knobs& knobs) {
  return std::make_unique<GpuRowRule>(site.stage, knobs);
}

}  // namespace heddle::schedule
