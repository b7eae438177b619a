// Reductions of what a walk finds, such as the leaves of decision trees.
//
// Every step of a walk waits for the look-ups of the step before it. So a tile of independent walks takes each step
// together: of several records in the lanes of a vector and several trees beside each other, or, where there
// are too few records, of several trees in the lanes. Between steps the places stay in registers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"

namespace heddle::schedule {

namespace {

// Vectors of walks at once: they hide each other's latency, and their places have to fit into registers.
constexpr int64_t kMostVectors = 8;
constexpr int64_t kLeastLanes = 2;

class WalkRule : public Rule {
 public:
  WalkRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs) : stage_(stage) {
    const int64_t full = LanesOf(target, stage.block->store.buffer->dtype);
    const std::string& name = stage.view.block;
    const int64_t trees = reduce().extent;
    for (size_t k = 0; k < spatial().size(); ++k) {
      (DecidesWalk(spatial()[k]) ? walked_ : valued_).push_back(k);
    }
    over_records_ = stage.vector_axis >= 0 && spatial()[stage.vector_axis].extent >= full &&
                    !walked_.empty() && walked_.back() == static_cast<size_t>(stage.vector_axis);
    if (over_records_) {
      record_ = static_cast<size_t>(stage.vector_axis);
      lanes_ = full;
      const int64_t vectors = (spatial()[record_].extent + full - 1) / full;
      std::vector<int64_t> rows;
      for (int64_t size = 1; size <= std::min(kMostVectors, vectors); size *= 2)
        rows.push_back(size);
      rows_knob_ = knobs.Add(absl::StrCat("vectors at once of ", spatial()[record_].loop), rows, 2);
      trees_knob_ = knobs.Add(absl::StrCat("trees at once of ", name),
                              Divisors(trees, kMostVectors), LargestDivisorUpTo(trees, 2));
    } else {
      lanes_ = PowerOfTwoDivisor(trees, full);
      trees_knob_ = knobs.Add(absl::StrCat("vectors at once of ", reduce().loop),
                              Divisors(trees / lanes_, kMostVectors),
                              LargestDivisorUpTo(trees / lanes_, 4));
    }
    if (target.target.threads > 1 && !walked_.empty()) {
      const int64_t work = ElementsOf(spatial()) * trees * static_cast<int64_t>(stage.walk.size());
      parallel_knob_ = knobs.Add(absl::StrCat("parallel ", name), {0, 1},
                                 work >= target.core.wake_multiply_adds);
    }
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    if (lanes_ < kLeastLanes)
      return absl::FailedPreconditionError("too few records and trees for the lanes of a vector");
    HEDDLE_RETURN_IF_ERROR(InlineProducers(stage_, out));
    const bool parallel = parallel_knob_ >= 0 && knobs.Value(point, parallel_knob_) != 0;
    const int64_t trees = knobs.Value(point, trees_knob_);
    return over_records_ ? ApplyRecords(knobs.Value(point, rows_knob_), trees, parallel, out)
                         : ApplyTrees(trees, parallel, out);
  }

  absl::Status Check(const Knobs& knobs, const Point& point) const override {
    const int64_t vectors =
        knobs.Value(point, trees_knob_) * (over_records_ ? knobs.Value(point, rows_knob_) : 1);
    return vectors <= 2 * kMostVectors
               ? absl::OkStatus()
               : absl::FailedPreconditionError("more walks at once than registers");
  }

 private:
  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const Axis& reduce() const { return stage_.view.reduce[0]; }

  // Whether walks differ along an axis. Otherwise it tells apart values that one walk finds.
  bool DecidesWalk(const Axis& axis) const {
    bool decides = false;
    for (const ir::Expr& load : DistinctLoads(*stage_.block)) {
      for (const ir::Expr& index : load->args) {
        ForEachLoad(index, [&](const ir::Expr& place) {
          for (const ir::Expr& e : place->args) decides |= ir::UsesVar(e, axis.iter);
        });
      }
    }
    return decides;
  }

  std::vector<Loop> LoopsOfAxes(const std::vector<size_t>& axes) const {
    std::vector<Loop> loops;
    for (const size_t k : axes) loops.push_back(LoopOf(spatial()[k]));
    return loops;
  }

  // Puts all steps at the head of `loop`, in registers. In each of them, the iterator `axis` (counted as in the step's
  // block) becomes `vectors` unrolled vectors.
  absl::Status PlaceWalk(const Loop& loop, size_t axis, int64_t vectors, Recorder& out) const {
    for (auto step = stage_.walk.rbegin(); step != stage_.walk.rend(); ++step) {
      HEDDLE_ASSIGN_OR_RETURN(std::vector<Loop> loops, out.ComputeAt(*step, loop));
      HEDDLE_RETURN_IF_ERROR(out.SetScope(*step, ir::Scope::kLocal));
      if (axis >= loops.size() || loops[axis].extent != vectors * lanes_)
        return absl::FailedPreconditionError("a step has another shape than its walk");
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                              out.Split(loops[axis], {vectors, lanes_}));
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(axis));
      loops.push_back(parts[0]);
      HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({loops, {parts[1]}})));
      HEDDLE_RETURN_IF_ERROR(UnrollAll(loops, out));
      HEDDLE_RETURN_IF_ERROR(VectorizeLanes(parts[1], out));
    }
    return absl::OkStatus();
  }

  absl::Status ApplyRecords(int64_t rows, int64_t trees, bool parallel, Recorder& out) const {
    HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
    const Axis& record = spatial()[record_];
    const int64_t tile = rows * lanes_;
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> r,
                            out.Split(LoopOf(record), {(record.extent + tile - 1) / tile, rows, lanes_}));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> t,
                            out.Split(LoopOf(reduce()), {reduce().extent / trees, trees}));
    std::vector<Loop> outer = LoopsOfAxes(walked_);
    outer.back() = r[0];  // the records are the last axis
    std::vector<Loop> tiles = LoopsOfAxes(valued_);
    tiles.push_back(r[1]);
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({outer, t, tiles, {r[2]}})));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> copy, out.ReverseComputeAt(epilogue, r[0]));
    // Iterators of a step: those that decide the walk, with the tree before the records.
    HEDDLE_RETURN_IF_ERROR(PlaceWalk(t[0], walked_.size(), rows, out));
    if (parallel) HEDDLE_RETURN_IF_ERROR(FuseParallel(outer, out));
    HEDDLE_RETURN_IF_ERROR(UnrollTile(tiles, r[2], copy, out));
    HEDDLE_RETURN_IF_ERROR(out.Unroll(t[1]));
    return out.DecomposeReduction(stage_.view.block, t[0]);
  }

  // Each lane sums the trees of its own; then the lanes are merged.
  absl::Status ApplyTrees(int64_t vectors, bool parallel, Recorder& out) const {
    const int64_t tile = vectors * lanes_;
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> t,
                            out.Split(LoopOf(reduce()), {reduce().extent / tile, vectors, lanes_}));
    HEDDLE_ASSIGN_OR_RETURN(const Recorder::Factored sums, out.Rfactor(stage_.view.block, t[2]));
    std::vector<Loop> outer, inner;
    for (const size_t k : walked_) outer.push_back(sums.merge[k]);
    for (const size_t k : valued_) inner.push_back(sums.merge[k]);
    inner.push_back(sums.merge.back());
    if (outer.empty()) return absl::FailedPreconditionError("one walk for all records");
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({outer, inner})));
    // The partial block's loops: the lane, the spatial ones, the reduce loops that are left.
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> own,
                            out.ComputeAt(sums.partial, outer.back()));
    HEDDLE_RETURN_IF_ERROR(out.SetScope(sums.partial, ir::Scope::kLocal));
    const size_t n = spatial().size();
    const Loop &lane = own[0], &blocks = own[n + 1], &several = own[n + 2];
    const std::vector<Loop> results(own.begin() + 1, own.begin() + static_cast<std::ptrdiff_t>(n) + 1);
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({{blocks, several}, results, {lane}})));
    HEDDLE_RETURN_IF_ERROR(PlaceWalk(blocks, walked_.size() - 1, vectors, out));
    HEDDLE_RETURN_IF_ERROR(out.Unroll(several));
    HEDDLE_RETURN_IF_ERROR(UnrollAll(results, out));
    HEDDLE_RETURN_IF_ERROR(VectorizeLanes(lane, out));
    HEDDLE_RETURN_IF_ERROR(out.DecomposeReduction(sums.partial, blocks));
    HEDDLE_RETURN_IF_ERROR(UnrollAll(inner, out));
    if (!stage_.epilogue.empty())
      HEDDLE_RETURN_IF_ERROR(out.ReverseComputeAt(stage_.epilogue, outer.back()).status());
    return parallel ? FuseParallel(outer, out) : absl::OkStatus();
  }

  Stage stage_;
  std::vector<size_t> walked_, valued_;  // spatial axes that decide the walk, and the others
  bool over_records_ = false;
  size_t record_ = 0;  // spatial axis, if over_records_
  int64_t lanes_ = 1;
  int rows_knob_ = -1, trees_knob_ = -1, parallel_knob_ = -1;
};

}  // namespace

bool MatchesWalk(const StageSite& site) {
  return site.target.execution == machine::Execution::kThreads && !site.stage.alone &&
         !site.stage.walk.empty() && site.stage.view.reduce.size() == 1;
}

std::unique_ptr<Rule> MakeWalk(const StageSite& site, Knobs& knobs) {
  return std::make_unique<WalkRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
