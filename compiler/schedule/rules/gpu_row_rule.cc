// GPU reductions with few results: a block of threads for each.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/gpu_rules.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMinThreads = 8;

// The sum is split over `threads`, strided so that neighbours read neighbouring elements; their
// parts lie in shared memory, where the first thread adds them up.
class GpuRowRule : public Rule {
 public:
  GpuRowRule(const ReductionStage& stage, Knobs& knobs) : stage_(stage) {
    const std::string& block = stage.view.block;
    threads_ = knobs.Add(absl::StrCat("threads per result of ", block), {32, 64, 128, 256}, 128);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    const std::string& block = stage_.view.block;
    for (const std::string& producer : stage_.producers)
      HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeInline, {producer}));
    std::vector<std::string> reduce;
    for (const Axis& axis : stage_.view.reduce) reduce.push_back(axis.loop);
    HEDDLE_ASSIGN_OR_RETURN(const std::string sum, FuseAll(reduce, out));
    const int64_t length = ExtentOf(out, sum);
    const int64_t threads = LargestDivisorUpTo(length, knobs.Value(point, threads_));
    if (threads < kMinThreads) {
      return absl::FailedPreconditionError(
          absl::StrCat("a sum of ", length, " terms has no even shares for threads"));
    }
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {sum}, {length / threads, threads}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kRfactor, {block, sum + ".1"}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSetScope, {block + ".rf", "shared"}));
    const size_t spatial = stage_.view.spatial.size();
    std::vector<std::string> rows;
    for (size_t k = 0; k < spatial; ++k) rows.push_back(absl::StrCat(block, ".merge.", k));
    HEDDLE_ASSIGN_OR_RETURN(const std::string row, FuseAll(rows, out));
    HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, out.Accumulate(block, stage_.epilogue));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReverseComputeAt, {epilogue, row}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeAt, {block + ".rf", row}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kBind, {row, "blockIdx.x"}));
    return out.Do(Primitive::kBind, {absl::StrCat(block, ".rf@", row, ".0"), "threadIdx.x"});
  }

 private:
  ReductionStage stage_;
  int threads_ = -1;
};

}  // namespace

std::unique_ptr<Rule> MakeGpuRow(const ReductionStage& stage, int /*axis*/,
                                 const machine::TargetInfo& /*target*/, Knobs& knobs) {
  return std::make_unique<GpuRowRule>(stage, knobs);
}

}  // namespace heddle::schedule
