#include "compiler/schedule/rules/gpu/parts.h"

#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxParts = 16;  // of a sum
constexpr int64_t kMinPartedTerms = 128;
constexpr int64_t kUsualBlock = 64 * 64;  // results of a block that reuses well what it reads

}  // namespace

std::vector<int64_t> PartsOf(const Stage& stage, int64_t pieces,
                             const machine::TargetInfo& target) {
  const int64_t results = ElementsOf(stage.view.spatial), terms = ElementsOf(stage.view.reduce);
  if (terms < kMinPartedTerms || results > kUsualBlock * target.multiprocessors) return {1};
  std::vector<int64_t> values;
  for (int64_t parts = 1; parts <= kMaxParts; parts *= 2) {
    if (pieces % parts == 0) values.push_back(parts);
  }
  return values;
}

absl::StatusOr<Stage> CutSums(const Stage& stage, size_t axis, int64_t parts, Recorder& out) {
  const Axis& whole = stage.view.reduce[axis];
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> loops,
                          out.Split(LoopOf(whole), {parts, whole.extent / parts}));
  HEDDLE_ASSIGN_OR_RETURN(const Recorder::Factored sums, out.Rfactor(stage.view.block, loops[0]));
  Stage part = stage;
  part.epilogue.clear();
  part.view.block = sums.partial;
  part.view.reduce[axis] = {loops[1].name, nullptr, loops[1].extent};
  part.view.spatial.push_back({loops[0].name, nullptr, loops[0].extent});
  return part;
}

absl::Status AddUpParts(const Stage& stage, const machine::TargetInfo& target, Recorder& out) {
  const ir::Program program = out.program();  // keeps the block alive
  HEDDLE_ASSIGN_OR_RETURN(const Path path, FindBlock(program.body, stage.view.block));
  Stage sums;
  sums.block = &path.block();
  sums.epilogue = stage.epilogue;
  if (!ViewStage(path, &sums.view))
    return absl::FailedPreconditionError("the sums of the parts are in no plain nest");
  Knobs own;
  const std::unique_ptr<Rule> plain = MakeGpuPlain({sums, target, ""}, own);
  return plain->Apply(own, own.Preferred(), out);
}

}  // namespace heddle::schedule
