// Sums of GPU reductions, made in parts.
#include "base/status_macros.h"
#include "compiler/schedule/rules/gpu_rules.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxParts = 16;  // of a sum
constexpr int64_t kMinPartedTerms = 128;
constexpr int64_t kUsualBlock = 64 * 64;  // results of a block that reuses well what it reads

}  // namespace

std::vector<int64_t> PartsOf(const ReductionStage& stage, int64_t pieces,
                             const machine::TargetInfo& target) {
  int64_t results = 1, terms = 1;
  for (const Axis& axis : stage.view.spatial) results *= axis.extent;
  for (const Axis& axis : stage.view.reduce) terms *= axis.extent;
  if (terms < kMinPartedTerms || results > kUsualBlock * target.multiprocessors) return {1};
  std::vector<int64_t> values;
  for (int64_t parts = 1; parts <= kMaxParts; parts *= 2) {
    if (pieces % parts == 0) values.push_back(parts);
  }
  return values;
}

absl::StatusOr<ReductionStage> CutSums(const ReductionStage& stage, size_t axis, int64_t parts,
                                       Recorder& out) {
  const auto& [loop, iter, extent] = stage.view.reduce[axis];
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {loop}, {parts, extent / parts}));
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kRfactor, {stage.view.block, loop + ".0"}));
  ReductionStage part = stage;
  part.epilogue.clear();
  part.view.block = stage.view.block + ".rf";
  part.view.reduce[axis] = {loop + ".1", nullptr, extent / parts};
  part.view.spatial.push_back({loop + ".0", nullptr, parts});
  return part;
}

absl::Status AddUpParts(const ReductionStage& stage, const machine::TargetInfo& target,
                        Recorder& out) {
  const ir::Program program = out.program();  // keeps the block alive
  HEDDLE_ASSIGN_OR_RETURN(const Path path, FindBlock(program.body, stage.view.block));
  ReductionStage sums;
  sums.block = &path.block();
  sums.epilogue = stage.epilogue;
  if (!ViewStage(path, &sums.view))
    return absl::FailedPreconditionError("the sums of the parts are in no plain nest");
  Knobs own;
  const std::unique_ptr<Rule> plain = MakeGpuPlain(sums, 0, target, own);
  Point preferred;
  for (const Knob& knob : own.all()) preferred.push_back(knob.preferred);
  return plain->Apply(own, preferred, out);
}

}  // namespace heddle::schedule
