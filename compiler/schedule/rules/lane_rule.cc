// Reductions whose only contiguous axis is reduced: a row sum, or a product with both operands
// stored along the sum.
//
// The axis is split by the lanes of a vector register. Each vector lane keeps a partial result of
// its own; the lanes are merged at the end of each tile of rows.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"
#include "compiler/schedule/rules/stage_work.h"

namespace heddle::schedule {

namespace {

// Rows that are summed at once: independent accumulators hide each other's latency.
constexpr int64_t kMaxRowsAtOnce = 16;
constexpr int64_t kPreferredRows = 4;

class LaneRule : public Rule {
 public:
  LaneRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage), target_(target), axis_(stage.view.reduce[stage.lane_axis]) {
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
      rows_knob_ = knobs.Add(absl::StrCat("rows at once of ", last.loop),
                             Divisors(last.extent, kMaxRowsAtOnce),
                             LargestDivisorUpTo(last.extent, kPreferredRows));
      if (target.target.threads > 1) {
        parallel_knob_ = knobs.Add(absl::StrCat("parallel ", name), {0, 1},
                                   machine::WorthThreads(WorkOf(stage, target), target));
      }
    }
    for (const std::string& producer : stage.producers) {
      inline_knobs_.push_back(
          knobs.Add(absl::StrCat("inline ", producer), {0, 1}, !HasReuse(*stage.block)));
    }
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    std::vector<ProducerPlace> places;
    for (int knob : inline_knobs_) {
      places.push_back(
          {knobs.Value(point, knob) ? ProducerPlace::kInlined : ProducerPlace::kAtRoot, {}});
    }
    HEDDLE_RETURN_IF_ERROR(PlaceProducers(stage_, places, target_, out));
    const int64_t lanes = knobs.Value(point, lanes_knob_);
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                            out.Split(LoopOf(axis_), {axis_.extent / lanes, lanes}));
    HEDDLE_ASSIGN_OR_RETURN(const Recorder::Factored sums,
                            out.Rfactor(stage_.view.block, parts[1]));
    if (rows_knob_ < 0) return ApplyWithoutRows(sums, parts, out);
    return ApplyRows(sums, knobs.Value(point, rows_knob_),
                     parallel_knob_ >= 0 && knobs.Value(point, parallel_knob_) != 0, out);
  }

 private:
  // For a sum of everything into one element: the partial results stay in the old loops.
  absl::Status ApplyWithoutRows(const Recorder::Factored& sums, const std::vector<Loop>& parts,
                                Recorder& out) const {
    std::vector<Loop> order;
    for (const Axis& axis : stage_.view.reduce)
      order.push_back(axis.loop == axis_.loop ? parts[0] : LoopOf(axis));
    order.push_back(parts[1]);
    HEDDLE_RETURN_IF_ERROR(out.Reorder(order));
    HEDDLE_RETURN_IF_ERROR(out.Vectorize(parts[1]));
    return out.DecomposeReduction(sums.partial, order[0]);
  }

  absl::Status ApplyRows(const Recorder::Factored& sums, int64_t rows, bool parallel,
                         Recorder& out) const {
    const size_t n = stage_.view.spatial.size();
    const Loop &last = sums.merge[n - 1], &lanes = sums.merge[n];
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> tiles,
                            out.Split(last, {last.extent / rows, rows}));
    const Loop& tile = tiles[0];
    // The partial block's loops: the lane, the spatial ones, the reduce loops that are left.
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> own, out.ComputeAt(sums.partial, tile));
    HEDDLE_RETURN_IF_ERROR(out.SetScope(sums.partial, ir::Scope::kLocal));
    std::vector<Loop> order(own.begin() + n + 1, own.end());
    order.insert(order.end(), own.begin() + 1, own.begin() + n + 1);
    order.push_back(own[0]);
    HEDDLE_RETURN_IF_ERROR(out.Reorder(order));
    HEDDLE_RETURN_IF_ERROR(out.Unroll(own[n]));
    HEDDLE_RETURN_IF_ERROR(out.Vectorize(own[0]));
    HEDDLE_RETURN_IF_ERROR(out.DecomposeReduction(sums.partial, order[0]));
    // Unrolled, so that the partial results never leave their registers.
    HEDDLE_RETURN_IF_ERROR(UnrollAll({tiles[1], lanes}, out));
    if (!stage_.epilogue.empty())
      HEDDLE_RETURN_IF_ERROR(out.ReverseComputeAt(stage_.epilogue, tile).status());
    if (!parallel) return absl::OkStatus();
    std::vector<Loop> outer(sums.merge.begin(), sums.merge.begin() + n - 1);
    outer.push_back(tile);
    return FuseParallel(outer, out);
  }

  Stage stage_;
  machine::TargetInfo target_;
  Axis axis_;
  int64_t full_lanes_ = 1;
  int lanes_knob_ = -1, rows_knob_ = -1, parallel_knob_ = -1;
  std::vector<int> inline_knobs_;
};

}  // namespace

bool MatchesLanes(const StageSite& site) {
  const Stage& stage = site.stage;
  const bool vectors_fit = stage.vector_axis >= 0 && !stage.vectors_scattered;
  return site.target.execution == machine::Execution::kThreads && !stage.alone &&
         stage.block->reducer && !vectors_fit && stage.lane_axis >= 0;
}

std::unique_ptr<Rule> MakeLanes(const StageSite& site, Knobs& knobs) {
  return std::make_unique<LaneRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
