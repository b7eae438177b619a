// Reductions whose only contiguous axis is reduced: a row sum, or a product with both operands
// stored along the sum.
//
// The axis is split by the lanes of a vector register, each lane keeps a partial result of its own,
// and the lanes are merged at the end of each tile of rows.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kPreferredRows = 4;  // independent accumulators that hide the latency of one

class LaneRule : public Rule {
 public:
  LaneRule(const ReductionStage& stage, int reduce_axis, const machine::TargetInfo& target,
           Knobs& knobs)
      : stage_(stage), target_(target) {
    axis_ = stage.view.reduce[reduce_axis];
    full_lanes_ = LanesOf(target, stage.block->store.buffer->dtype);
    const std::string& name = stage.view.block;
    std::vector<int64_t> lanes;
    for (int64_t width : {full_lanes_, 2 * full_lanes_, full_lanes_ / 2}) {
      if (width >= 2 && width <= 64 && axis_.extent % width == 0) lanes.push_back(width);
    }
    if (lanes.empty()) lanes.push_back(PowerOfTwoDivisor(axis_.extent, full_lanes_));
    lanes_knob_ = knobs.Add(absl::StrCat("lanes of ", axis_.loop), lanes, lanes[0]);
    if (!stage.view.spatial.empty()) {
      const Axis& last = stage.view.spatial.back();
      std::vector<int64_t> rows;
      for (int64_t d : Divisors(last.extent)) {
        if (d <= 16) rows.push_back(d);
      }
      rows_knob_ = knobs.Add(absl::StrCat("rows at once of ", last.loop), rows,
                             LargestDivisorUpTo(last.extent, kPreferredRows));
      if (target.target.threads > 1) {
        int64_t work = 1;
        for (const Axis& a : stage.view.spatial) work *= a.extent;
        for (const Axis& a : stage.view.reduce) work *= a.extent;
        parallel_knob_ = knobs.Add(absl::StrCat("parallel ", name), {0, 1},
                                   work >= target.core.wake_multiply_adds);
      }
    }
    for (const std::string& producer : stage.producers) {
      inline_knobs_.push_back(
          knobs.Add(absl::StrCat("inline ", producer), {0, 1}, !HasReuse(*stage.block)));
    }
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    HEDDLE_RETURN_IF_ERROR(PlaceProducers(knobs, point, out));
    const std::string& block = stage_.view.block;
    const int64_t lanes = knobs.Value(point, lanes_knob_);
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {axis_.loop}, {axis_.extent / lanes, lanes}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kRfactor, {block, axis_.loop + ".1"}));
    if (rows_knob_ < 0) return ApplyWithoutRows(out);
    return ApplyRows(knobs.Value(point, rows_knob_),
                     parallel_knob_ >= 0 && knobs.Value(point, parallel_knob_) != 0, out);
  }

 private:
  absl::Status PlaceProducers(const Knobs& knobs, const Point& point, Recorder& out) const {
    for (size_t i = 0; i < stage_.producers.size(); ++i) {
      if (knobs.Value(point, inline_knobs_[i])) {
        HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeInline, {stage_.producers[i]}));
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(out.program().body, stage_.producers[i]));
      StageView view;
      if (!ViewStage(path, &view)) continue;
      HEDDLE_RETURN_IF_ERROR(ApplyPlain(view, path.block(), target_, out));
    }
    return absl::OkStatus();
  }

  // Everything is summed into one element: the partial results stay in the old loops.
  absl::Status ApplyWithoutRows(Recorder& out) const {
    std::vector<std::string> order;
    for (const Axis& axis : stage_.view.reduce) {
      order.push_back(axis.loop == axis_.loop ? axis.loop + ".0" : axis.loop);
    }
    order.push_back(axis_.loop + ".1");
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReorder, order));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kVectorize, {order.back()}));
    return out.Do(Primitive::kDecomposeReduction, {stage_.view.block + ".rf", order[0]});
  }

  absl::Status ApplyRows(int64_t rows, bool parallel, Recorder& out) const {
    const std::string& block = stage_.view.block;
    const std::string partial = block + ".rf";
    const size_t n = stage_.view.spatial.size();
    auto merge = [&](size_t k) { return absl::StrCat(block, ".merge.", k); };
    const std::string last = merge(n - 1);
    HEDDLE_RETURN_IF_ERROR(
        out.Do(Primitive::kSplit, {last}, {stage_.view.spatial.back().extent / rows, rows}));
    const std::string tile = last + ".0";
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeAt, {partial, tile}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSetScope, {partial, "local"}));
    // Iterators of the partial block: the lane, the spatial ones, the other reduce loops.
    auto loop = [&](size_t k) { return absl::StrCat(partial, "@", tile, ".", k); };
    const size_t reduce_loops = stage_.view.reduce.size();
    std::vector<std::string> order;
    for (size_t k = 0; k < reduce_loops; ++k) order.push_back(loop(n + 1 + k));
    for (size_t k = 1; k <= n; ++k) order.push_back(loop(k));
    order.push_back(loop(0));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReorder, order));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {loop(n)}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kVectorize, {loop(0)}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kDecomposeReduction, {partial, order[0]}));
    // Unrolled, so that the partial results never leave their registers.
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {last + ".1"}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {merge(n)}));
    if (!stage_.epilogue.empty()) {
      HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReverseComputeAt, {stage_.epilogue, tile}));
    }
    if (!parallel) return absl::OkStatus();
    std::vector<std::string> outer;
    for (size_t k = 0; k + 1 < n; ++k) outer.push_back(merge(k));
    outer.push_back(tile);
    std::string fused = outer[0];
    for (size_t k = 1; k < outer.size(); ++k) absl::StrAppend(&fused, "*", outer[k]);
    if (outer.size() > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kFuse, outer));
    return out.Do(Primitive::kParallel, {fused});
  }

  ReductionStage stage_;
  machine::TargetInfo target_;
  Axis axis_;
  int64_t full_lanes_ = 1;
  int lanes_knob_ = -1, rows_knob_ = -1, parallel_knob_ = -1;
  std::vector<int> inline_knobs_;
};

}  // namespace

std::unique_ptr<Rule> MakeLaneReduction(const ReductionStage& stage, int reduce_axis,
                                        const machine::TargetInfo& target, Knobs& knobs) {
  return std::make_unique<LaneRule>(stage, reduce_axis, target, knobs);
}

}  // namespace heddle::schedule
