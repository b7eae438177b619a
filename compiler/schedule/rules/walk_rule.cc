// Reductions of what a walk finds, such as the leaves of decision trees.
//
// Lanes are as wide as the places, if those are narrower than what is found: a walk whose places are bytes has 64 lanes
// where a vector has 16 floats, and the floats that it finds fill four vectors.
//
// Every step of a walk waits for the step before it, and mostly for its look-ups. So a tile of independent walks takes each step
// together: of several records and several trees. They lie in the lanes of vectors, if there are enough records
// or else trees, or side by side in scalar code, where gathers are slow and trees large. Between steps the places stay in registers. A tree is
// walked by a block of records before the next one is, so that its nodes are still in the cache. If all trees together exceed the
// second-level cache, each block of records loads all nodes again. Larger blocks then load them less often.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"
#include "compiler/schedule/rules/stage_work.h"

namespace heddle::schedule {

namespace {

// Vectors (or scalars) of walks at once: they hide each other's latency, and their places have to fit into registers.
constexpr int64_t kMostAtOnce = 16;
constexpr int64_t kLeastLanes = 2;
// Records of a block, in tiles: those to choose from, and those to prefer where trees stay in the second-level cache, and where not.
constexpr int64_t kBlocks[] = {1, 4, 16, 64};
constexpr int64_t kNearBlock = 16;
constexpr int64_t kFarBlock = 64;
constexpr int64_t kLeastBlocked = 64;  // fewer records are one block of a single tile
// A step in scalar code: four loads, a comparison, and the arithmetic around them.
constexpr double kScalarInstructions = 10;
constexpr double kGathers = 3;

class WalkRule : public Rule {
 public:
  WalkRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs) : stage_(stage) {
    const std::string& name = stage.view.block;
    const int64_t trees = reduce().extent;
    for (size_t k = 0; k < spatial().size(); ++k) {
      (DecidesWalk(*stage.block, spatial()[k]) ? walked_ : valued_).push_back(k);
    }
    if (walked_.empty()) return;  // refused by Apply
    const int64_t records = Record().extent;
    const int64_t found = LanesOf(target, stage.block->store.buffer->dtype);
    const int64_t full = std::max(found, LanesOf(target, stage.walk_dtype));
    most_at_once_ = std::max<int64_t>(1, kMostAtOnce / (full / found));
    over_records_ = records >= full;
    const int64_t lanes = over_records_ ? full : PowerOfTwoDivisor(trees, full);
    std::vector<int64_t> widths;
    if (lanes >= kLeastLanes) widths.push_back(lanes);
    widths.push_back(1);
    // The first step begins at the same place in all lanes, and looks nothing up. Nor do steps that only change a place.
    const bool steps = stage.walk_waits;
    const bool scalar = steps && !InRegisters(target) &&
                        kScalarInstructions / target.core.instructions_per_cycle <
                            kGathers / target.core.gathered_per_cycle;
    lanes_knob_ = knobs.Add(absl::StrCat("lanes of ", name), widths, scalar ? 1 : widths[0]);
    std::vector<int64_t> rows;
    for (int64_t size = 1; size <= std::min(most_at_once_, records); size *= 2)
      rows.push_back(size);
    // Steps that ask everything keep nothing of one tile for the next. A single one needs its registers for one vector. Several are
    // a chain of short operations, of which two at once keep a core busy.
    const bool asks_all = !steps && full > found;
    const bool chain = !steps && stage.walk.size() > 1;
    const bool two_vectors = records >= 2 * widths[0];
    const int64_t at_once =
        scalar ? std::min<int64_t>(8, rows.back()) : (two_vectors && (chain || !asks_all) ? 2 : 1);
    rows_knob_ = knobs.Add(absl::StrCat("records at once of ", Record().loop), rows, at_once);
    trees_knob_ = knobs.Add(
        absl::StrCat("trees at once of ", reduce().loop), Divisors(trees, most_at_once_),
        scalar || over_records_
            ? LargestDivisorUpTo(trees, records == 1 ? 8 : (chain && !two_vectors ? 2 : 1))
            : LargestDivisorUpTo(std::max<int64_t>(1, trees / lanes), steps ? 4 : (chain ? 2 : 1)));
    const bool worth = machine::WorthThreads(WorkOf(stage, target), target);
    const int64_t together = (scalar ? 1 : widths[0]) * at_once;
    block_knob_ = knobs.Add(absl::StrCat("tiles in a block of ", Record().loop),
                            {std::begin(kBlocks), std::end(kBlocks)},
                            asks_all ? 1 : PreferredBlock(together, worth, target));
    if (target.target.threads > 1)
      parallel_knob_ = knobs.Add(absl::StrCat("parallel ", name), {0, 1}, worth);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override {
    if (walked_.empty()) return absl::FailedPreconditionError("one walk for all records");
    HEDDLE_RETURN_IF_ERROR(Check(knobs, point));
    HEDDLE_RETURN_IF_ERROR(InlineProducers(stage_, out));
    const bool parallel = parallel_knob_ >= 0 && knobs.Value(point, parallel_knob_) != 0;
    const int64_t lanes = knobs.Value(point, lanes_knob_), trees = knobs.Value(point, trees_knob_);
    return lanes == 1 || over_records_ ? ApplyRecords({.block = knobs.Value(point, block_knob_),
                                                       .rows = knobs.Value(point, rows_knob_),
                                                       .lanes = lanes,
                                                       .trees = trees},
                                                      parallel, out)
                                       : ApplyTrees(lanes, trees, parallel, out);
  }

  absl::Status Check(const Knobs& knobs, const Point& point) const override {
    if (walked_.empty()) return absl::OkStatus();
    const int64_t lanes = knobs.Value(point, lanes_knob_), trees = knobs.Value(point, trees_knob_);
    if (lanes > 1 && !over_records_) {
      return reduce().extent % (lanes * trees) == 0
                 ? absl::OkStatus()
                 : absl::FailedPreconditionError("the trees are no multiple of the vectors");
    }
    const int64_t rows = knobs.Value(point, rows_knob_);
    if (rows * trees > most_at_once_)
      return absl::FailedPreconditionError("more walks at once than registers");
    if (rows * lanes > 2 * Record().extent)
      return absl::FailedPreconditionError("a tile is more than twice as large as the records");
    return absl::OkStatus();
  }

 private:
  // How records and trees are cut: records into blocks of tiles of rows of lanes.
  struct Tile {
    int64_t block = 1, rows = 1, lanes = 1, trees = 1;
  };

  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const Axis& reduce() const { return stage_.view.reduce[0]; }
  const Axis& Record() const { return spatial()[walked_.back()]; }

  // Tiles of `together` records in a block. `worth`: whether threads share the blocks, of which each of them then gets one at least.
  int64_t PreferredBlock(int64_t together, bool worth, const machine::TargetInfo& target) const {
    const int64_t records = Record().extent;
    if (records < kLeastBlocked) return 1;
    std::set<const ir::Buffer*> made, tables, others;
    for (const ir::Block* block : stage_.computed) made.insert(block->store.buffer.get());
    for (const ir::Block* block : stage_.computed) {
      ForEachLoad(*block, [&](const ir::Expr& load) {
        const ir::Buffer* const buffer = load->buffer.get();
        if (!made.contains(buffer)) (buffer->constant ? tables : others).insert(buffer);
      });
    }
    const auto bytes_of = [](const std::set<const ir::Buffer*>& buffers) {
      int64_t bytes = 0;
      for (const ir::Buffer* buffer : buffers) bytes += buffer->SizeBytes();
      return bytes;
    };
    // What the records of a block have in their columns is read for every tree.
    const bool fits = bytes_of(others) / records * together * kFarBlock <= target.l2_bytes / 4;
    int64_t block = bytes_of(tables) > target.l2_bytes && fits ? kFarBlock : kNearBlock;
    const int64_t tiles = (records + together - 1) / together;
    while (worth && block > 1 && tiles / LargestDivisorUpTo(tiles, block) < target.target.threads)
      block /= 4;
    return block;
  }

  // Whether registers hold the nodes of a tree, in which all lanes look up. A step of records in vectors then gathers only the
  // values that it compares.
  bool InRegisters(const machine::TargetInfo& target) const {
    int64_t nodes = 0;
    for (const ir::Expr& load : DistinctLoads(*stage_.block)) {
      for (size_t d = 0; d < load->args.size(); ++d) {
        ForEachLoad(load->args[d],
                    [&](const ir::Expr&) { nodes = std::max(nodes, load->buffer->shape[d]); });
      }
    }
    return over_records_ && nodes <= target.SharedTableElements();
  }

  std::vector<Loop> LoopsOfAxes(const std::vector<size_t>& axes) const {
    std::vector<Loop> loops;
    for (const size_t k : axes) loops.push_back(LoopOf(spatial()[k]));
    return loops;
  }

  // Puts all steps at the head of `loop`, in registers. In each of them, the iterator `axis` (counted as in the step's
  // block) becomes unrolled vectors of `lanes`.
  absl::Status PlaceWalk(const Loop& loop, size_t axis, int64_t lanes, Recorder& out) const {
    for (auto step = stage_.walk.rbegin(); step != stage_.walk.rend(); ++step) {
      HEDDLE_ASSIGN_OR_RETURN(std::vector<Loop> loops, out.ComputeAt(*step, loop));
      HEDDLE_RETURN_IF_ERROR(out.SetScope(*step, ir::Scope::kLocal));
      if (axis >= loops.size() || loops[axis].extent % lanes != 0)
        return absl::FailedPreconditionError("a step has another shape than its walk");
      HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> parts,
                              out.Split(loops[axis], {loops[axis].extent / lanes, lanes}));
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(axis));
      loops.push_back(parts[0]);
      HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({loops, {parts[1]}})));
      HEDDLE_RETURN_IF_ERROR(UnrollAll(loops, out));
      HEDDLE_RETURN_IF_ERROR(VectorizeLanes(parts[1], out));
    }
    return absl::OkStatus();
  }

  absl::Status ApplyRecords(const Tile& tile, bool parallel, Recorder& out) const {
    HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
    const int64_t together = tile.rows * tile.lanes;
    const int64_t tiles = (Record().extent + together - 1) / together;
    const int64_t block = LargestDivisorUpTo(tiles, tile.block);
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<Loop> r,
        out.Split(LoopOf(Record()), {tiles / block, block, tile.rows, tile.lanes}));
    HEDDLE_ASSIGN_OR_RETURN(
        const std::vector<Loop> t,
        out.Split(LoopOf(reduce()), {reduce().extent / tile.trees, tile.trees}));
    std::vector<Loop> outer = LoopsOfAxes(walked_);
    outer.back() = r[0];  // the records are the last axis
    std::vector<Loop> inner = LoopsOfAxes(valued_);
    inner.push_back(r[2]);
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({outer, {t[0], r[1], t[1]}, inner, {r[3]}})));
    HEDDLE_ASSIGN_OR_RETURN(std::vector<Loop> copy, out.ReverseComputeAt(epilogue, r[0]));
    copy.erase(copy.begin());  // over the tiles of a block
    // Iterators of a step: those that decide the walk, with the tree before the records.
    HEDDLE_RETURN_IF_ERROR(PlaceWalk(r[1], walked_.size(), tile.lanes, out));
    if (parallel) HEDDLE_RETURN_IF_ERROR(FuseParallel(outer, out));
    HEDDLE_RETURN_IF_ERROR(UnrollTile(inner, r[3], copy, out));
    HEDDLE_RETURN_IF_ERROR(out.Unroll(t[1]));
    return out.DecomposeReduction(stage_.view.block, t[0]);
  }

  // Each lane sums the trees of its own; then the lanes are merged.
  absl::Status ApplyTrees(int64_t lanes, int64_t vectors, bool parallel, Recorder& out) const {
    const int64_t tile = vectors * lanes;
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> t,
                            out.Split(LoopOf(reduce()), {reduce().extent / tile, vectors, lanes}));
    HEDDLE_ASSIGN_OR_RETURN(const Recorder::Factored sums, out.Rfactor(stage_.view.block, t[2]));
    std::vector<Loop> outer, inner;
    for (const size_t k : walked_) outer.push_back(sums.merge[k]);
    for (const size_t k : valued_) inner.push_back(sums.merge[k]);
    inner.push_back(sums.merge.back());
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({outer, inner})));
    // The partial block's loops: the lane, the spatial ones, the reduce loops that are left.
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Loop> own, out.ComputeAt(sums.partial, outer.back()));
    HEDDLE_RETURN_IF_ERROR(out.SetScope(sums.partial, ir::Scope::kLocal));
    const size_t n = spatial().size();
    const Loop &lane = own[0], &blocks = own[n + 1], &several = own[n + 2];
    const std::vector<Loop> results(own.begin() + 1,
                                    own.begin() + static_cast<std::ptrdiff_t>(n) + 1);
    HEDDLE_RETURN_IF_ERROR(out.Reorder(Concat({{blocks, several}, results, {lane}})));
    HEDDLE_RETURN_IF_ERROR(PlaceWalk(blocks, walked_.size() - 1, lanes, out));
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
  bool over_records_ = false;            // vectors are over records, not over trees
  int64_t most_at_once_ = kMostAtOnce;   // vectors of places
  int lanes_knob_ = -1, rows_knob_ = -1, trees_knob_ = -1, block_knob_ = -1, parallel_knob_ = -1;
};

}  // namespace

// What is found for each record alone, such as the group of digitize, is computed once and not for every element of the sum.
bool MatchesWalk(const StageSite& site) {
  return site.target.execution == machine::Execution::kThreads && !site.stage.alone &&
         !site.stage.walk.empty() && site.stage.view.reduce.size() == 1 &&
         DecidesWalk(*site.stage.block, site.stage.view.reduce[0]);
}

std::unique_ptr<Rule> MakeWalk(const StageSite& site, Knobs& knobs) {
  return std::make_unique<WalkRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
