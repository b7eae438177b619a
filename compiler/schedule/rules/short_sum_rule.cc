// Short reductions in which nothing is reused: a sum over a few images, heads or branches, the
// largest of four neighbours.
//
// A register tile has nothing to keep here, because every operand is loaded for one result only.
// One vector of results is computed at a time: its terms are unrolled, its sum stays in one
// register. Loops, from outside: all spatial axes, vectors of the vector axis (together shared out
// among threads); the reduction (unrolled); lanes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxSteps = 8;      // of the reduction: unrolled whole, their loads overlap
constexpr int64_t kMinResults = 256;  // fewer are done before the order of loops matters
constexpr int64_t kMaxLanes = 64;     // more are refused by vectorize

class ShortSumRule : public Rule {
 public:
  ShortSumRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage), target_(target), axis_(stage.view.spatial[stage.vector_axis]) {
    const int64_t full = LanesOf(target, stage.block->store.buffer->dtype);
    std::vector<int64_t> lanes;
    for (const int64_t width : {full, 2 * full, full / 2}) {
      if (width >= 2 && width <= std::min(axis_.extent, kMaxLanes)) lanes.push_back(width);
    }
    if (lanes.empty()) lanes.push_back(axis_.extent);
    lanes_knob_ = knobs.Add(absl::StrCat("lanes of ", axis_.loop), lanes, lanes[0]);
    if (target.target.threads > 1) {
      const int64_t work = ElementsOf(stage.view.spatial) * ElementsOf(stage.view.reduce);
      parallel_knob_ = knobs.Add(absl::StrCat("parallel ", stage.view.block), {0, 1},
                                 work >= target.core.wake_elements);
    }
    for (const std::string& producer : stage.producers)
      inline_knobs_.push_back(knobs.Add(absl::StrCat("inline ", producer), {0, 1}, 1));
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    const int64_t lanes = knobs.Value(point, lanes_knob_);
    HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> vectors,
                            out.Split(LoopOf(axis_), {(axis_.extent + lanes - 1) / lanes, lanes}));
    std::vector<Loop> outer;
    for (const Axis& axis : stage_.view.spatial)
      outer.push_back(axis.loop == axis_.loop ? vectors[0] : LoopOf(axis));
    const std::vector<Loop> steps = LoopsOf(stage_.view.reduce);
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({outer, steps, {vectors[1]}})));
    // The copy has one loop: it repeats the lanes.
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy,
                            out.ReverseComputeAt(epilogue, outer.back()));
    std::vector<ProducerPlace> places;
    for (const int knob : inline_knobs_) {
      places.push_back(
          {knobs.Value(point, knob) ? ProducerPlace::kInlined : ProducerPlace::kAtRoot, {}});
    }
    HEDDLE_RETURN_IF_ERROR(PlaceProducers(stage_, places, target_, out));
    if (parallel_knob_ >= 0 && knobs.Value(point, parallel_knob_) != 0)
      HEDDLE_RETURN_IF_ERROR(FuseParallel(outer, out));
    HEDDLE_RETURN_IF_ERROR(UnrollTile({}, vectors[1], copy, out));
    HEDDLE_RETURN_IF_ERROR(UnrollAll(steps, out));
    return out.DecomposeReduction(stage_.view.block, steps[0]);
  }

 private:
  Stage stage_;
  machine::TargetInfo target_;
  Axis axis_;
  int lanes_knob_ = -1, parallel_knob_ = -1;
  std::vector<int> inline_knobs_;
};

}  // namespace

bool MatchesShortSum(const StageSite& site) {
  const Stage& stage = site.stage;
  if (site.target.execution != machine::Execution::kThreads || stage.alone) return false;
  if (stage.vector_axis < 0 || stage.vectors_scattered || stage.view.reduce.empty()) return false;
  return ElementsOf(stage.view.reduce) <= kMaxSteps &&
         ElementsOf(stage.view.spatial) >= kMinResults && !HasReuse(*stage.block);
}

std::unique_ptr<Rule> MakeShortSum(const StageSite& site, Knobs& knobs) {
  return std::make_unique<ShortSumRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
