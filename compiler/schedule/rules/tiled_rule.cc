// Reductions around a register tile.
//
// Loops, from outside: outer spatial (parallel), middle spatial, outer reduce, inner reduce,
// register tile (rows unrolled, vectors unrolled, lanes vectorized). The accumulators are a local
// buffer that has the shape of the register tile once lowering has compacted it; the epilogue runs
// on the finished tile.
//
// The reduction may be cut into blocks. The loops over blocks then stand outside the middle spatial
// ones, which use a block of the vector operand while it is in the cache. The accumulators are
// those of all middle tiles, and a tile stays in registers during one block.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/shared_steps.h"
#include "compiler/schedule/rules/tile_decisions.h"

namespace heddle::schedule {

namespace {

class TiledRule : public Rule {
 public:
  TiledRule(const Stage& stage, const machine::TargetInfo& target, Knobs& knobs)
      : stage_(stage),
        v_(stage.vector_axis),
        target_(target),
        decisions_(stage, stage.vector_axis, target, knobs) {}

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override;

 private:
  // Groups of loops, from outside. Spatial loops of extent 1 are among the outer ones.
  struct Loops {
    std::vector<Loop> outer;
    std::vector<Loop> blocks;  // of the reduction
    std::vector<Loop> middle;
    std::vector<Loop> reduce;
    std::vector<Loop> tile;
    Loop lanes;
    Loop rows;  // the innermost outer loop that all vectors of a row share
    std::vector<std::optional<Loop>> steps;  // to unroll, of each reduce axis
  };

  absl::Status PackConstants(const DecidedTiles& decided, Recorder& out) const;
  std::vector<size_t> OuterOrder(bool vector_first) const;
  absl::StatusOr<Loops> SplitAll(const DecidedTiles& decided, Recorder& out) const;
  absl::Status SplitReduce(const DecidedTiles& decided, Loops& loops, Recorder& out) const;
  std::vector<ProducerPlace> PlacesOf(const DecidedTiles& decided, const Loops& loops) const;
  absl::Status MakeParallel(const DecidedTiles& decided, const Loops& loops, Recorder& out) const;
  absl::Status UnrollReduce(const DecidedTiles& decided, const Loops& loops, Recorder& out) const;

  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const std::vector<Axis>& reduce() const { return stage_.view.reduce; }

  Stage stage_;
  int v_;  // vector axis
  machine::TargetInfo target_;
  TileDecisions decisions_;
};

// Packs constants into panels as wide as the register tile, in the order in which loops read them.
// Where a block of the reduction reads all panels, the parts that it reads stand together.
absl::Status TiledRule::PackConstants(const DecidedTiles& decided, Recorder& out) const {
  const Factors& vector = decided.spatial[v_];
  for (size_t i = 0; i < decisions_.packable().size(); ++i) {
    if (!decided.packed[i]) continue;
    const Packable& packable = decisions_.packable()[i];
    std::vector<int64_t> numbers(1 + packable.outer.size() + packable.inner.size(), 1);
    numbers[packable.dim] = vector.tile * vector.lanes;
    const auto add = [&](const std::vector<int64_t>& dims) {
      numbers.insert(numbers.end(), dims.begin(), dims.end());
    };
    const bool blocks = decided.reduce_block != DecidedTiles::kWhole && vector.outer == 1 &&
                        vector.middle > 1 && reduce().size() == 1 && packable.outer.empty() &&
                        packable.inner.size() == 1 &&
                        packable.inner[0] < static_cast<int64_t>(packable.dim);
    if (blocks) {
      numbers[packable.inner[0]] =
          StepsInside(reduce(), decided.reduce_inner, decided.reduce_block)[0];
      add(packable.inner);
    }
    add(packable.outer);
    add({static_cast<int64_t>(packable.dim)});
    if (!blocks) add(packable.inner);
    HEDDLE_RETURN_IF_ERROR(out.Pack(stage_.view.block, packable.buffer, std::move(numbers)));
  }
  return absl::OkStatus();
}

// Each reduce axis has up to three parts: over blocks, over steps of a block, over unrolled steps.
absl::Status TiledRule::SplitReduce(const DecidedTiles& decided, Loops& loops,
                                    Recorder& out) const {
  std::vector<Loop> blocks, outer, inner;  // innermost first
  const std::vector<int64_t> steps =
      StepsInside(reduce(), decided.reduce_inner, decided.reduce_block);
  loops.steps.resize(reduce().size());
  for (size_t k = reduce().size(); k > 0; --k) {
    const Axis& axis = reduce()[k - 1];
    const int64_t factor = decided.reduce_inner[k - 1];
    const int64_t inside = steps[k - 1];
    std::vector<int64_t> extents;
    std::vector<std::vector<Loop>*> homes;
    const auto add = [&](int64_t extent, std::vector<Loop>* home) {
      extents.push_back(extent);
      homes.push_back(home);
    };
    if (inside < axis.extent) add(axis.extent / inside, &blocks);
    if (factor < inside) add(inside / factor, &outer);
    if (factor > 1) add(factor, &inner);
    if (homes.empty()) homes.push_back(&outer);
    std::vector<Loop> parts{LoopOf(axis)};
    if (homes.size() > 1) {
      HEDDLE_ASSIGN_OR_RETURN(parts, out.Split(parts[0], std::move(extents)));
    }
    for (size_t i = parts.size(); i > 0; --i) homes[i - 1]->push_back(parts[i - 1]);
    if (factor > 1) loops.steps[k - 1] = parts.back();
  }
  loops.blocks.assign(blocks.rbegin(), blocks.rend());
  loops.reduce.assign(outer.rbegin(), outer.rend());
  loops.reduce.insert(loops.reduce.end(), inner.rbegin(), inner.rend());
  return absl::OkStatus();
}

// The order of the outer loops: axes that tell products apart are outermost, because products share
// nothing. The vector axis, after the axis that tells its panels apart, comes before or after all
// others, which keep their order.
std::vector<size_t> TiledRule::OuterOrder(bool vector_first) const {
  std::vector<size_t> batch, vectors, others;
  if (decisions_.model().panel_axis() >= 0)
    vectors.push_back(static_cast<size_t>(decisions_.model().panel_axis()));
  vectors.push_back(static_cast<size_t>(v_));
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (decisions_.model().Batch(k)) {
      batch.push_back(k);
    } else if (std::find(vectors.begin(), vectors.end(), k) == vectors.end()) {
      others.push_back(k);
    }
  }
  std::vector<size_t> order = batch;
  for (const auto* part : {vector_first ? &vectors : &others, vector_first ? &others : &vectors})
    order.insert(order.end(), part->begin(), part->end());
  return order;
}

absl::StatusOr<TiledRule::Loops> TiledRule::SplitAll(const DecidedTiles& decided,
                                                     Recorder& out) const {
  const int panels = decisions_.model().panel_axis();
  Loops loops;
  std::vector<std::vector<Loop>> parts(spatial().size());  // outer, middle, tile, lanes
  const std::vector<size_t> order = OuterOrder(decided.vector_first);
  for (size_t k : order) {
    const Factors& f = decided.spatial[k];
    if (spatial()[k].extent == 1) {
      loops.outer.push_back(LoopOf(spatial()[k]));
      continue;
    }
    std::vector<int64_t> factors{f.outer, f.middle, f.tile};
    if (static_cast<int>(k) == v_) factors.push_back(f.lanes);
    HEDDLE_ASSIGN_OR_RETURN(parts[k], out.Split(LoopOf(spatial()[k]), std::move(factors)));
    loops.outer.push_back(parts[k][0]);
    loops.middle.push_back(parts[k][1]);
  }
  size_t row = order.size() - 1;
  for (const int axis : {v_, panels}) {
    if (axis >= 0 && row > 0 && order[row] == static_cast<size_t>(axis)) --row;
  }
  loops.rows = loops.outer[row];
  HEDDLE_RETURN_IF_ERROR(SplitReduce(decided, loops, out));
  // Vectors innermost, of all panels, so that registers hold them while the rows go by.
  for (size_t k = 0; k < spatial().size(); ++k) {
    const int axis = static_cast<int>(k);
    if (!parts[k].empty() && axis != v_ && axis != panels) loops.tile.push_back(parts[k][2]);
  }
  if (panels >= 0) loops.tile.push_back(parts[panels][2]);
  loops.tile.push_back(parts[v_][2]);
  loops.lanes = parts[v_][3];
  HEDDLE_RETURN_IF_ERROR(out.Reorder(
      Concat({loops.outer, loops.blocks, loops.middle, loops.reduce, loops.tile, {loops.lanes}})));
  return loops;
}

std::vector<ProducerPlace> TiledRule::PlacesOf(const DecidedTiles& decided,
                                               const Loops& loops) const {
  std::vector<ProducerPlace> places;
  for (int64_t place : decided.producers) {
    switch (place) {
      case kInline:
        places.push_back({ProducerPlace::kInlined, {}});
        break;
      case kAtRoot:
        places.push_back({ProducerPlace::kAtRoot, {}});
        break;
      default:
        places.push_back(
            {ProducerPlace::kInLoop, place == kAtOuter ? loops.rows : loops.middle.back()});
    }
  }
  return places;
}

absl::Status TiledRule::MakeParallel(const DecidedTiles& decided, const Loops& loops,
                                     Recorder& out) const {
  if (decided.parallel == kSerial) return absl::OkStatus();
  auto end = loops.outer.end();
  if (decided.parallel == kAboveRows) {
    const auto row = std::find(loops.outer.begin(), end, loops.rows);
    if (row != loops.outer.begin()) end = row;
  }
  return FuseParallel({loops.outer.begin(), end}, out);
}

absl::Status TiledRule::UnrollReduce(const DecidedTiles& decided, const Loops& loops,
                                     Recorder& out) const {
  int64_t budget = decided.unroll;
  for (size_t k = reduce().size(); k > 0; --k) {
    const int64_t factor = decided.reduce_inner[k - 1];
    if (factor == 1) continue;
    if (factor > budget) break;
    budget /= factor;
    HEDDLE_RETURN_IF_ERROR(out.Unroll(*loops.steps[k - 1]));
  }
  return absl::OkStatus();
}

absl::Status TiledRule::Apply(const Knobs& knobs, const Point& point, Recorder& out) const {
  const DecidedTiles decided = decisions_.Decide(knobs, point);
  HEDDLE_RETURN_IF_ERROR(decisions_.Check(decided));
  HEDDLE_RETURN_IF_ERROR(PackConstants(decided, out));
  HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, Accumulate(stage_, out));
  HEDDLE_ASSIGN_OR_RETURN(const Loops loops, SplitAll(decided, out));
  // A tile is finished in its middle loop; with blocks of the reduction, all middle tiles are
  // finished together. The copy's loops repeat the spatial ones inside.
  const bool blocked = !loops.blocks.empty();
  HEDDLE_ASSIGN_OR_RETURN(
      std::vector<Loop> copy,
      out.ReverseComputeAt(epilogue, blocked ? loops.outer.back() : loops.middle.back()));
  if (blocked) copy.erase(copy.begin(), copy.begin() + loops.middle.size());
  HEDDLE_RETURN_IF_ERROR(PlaceProducers(stage_, PlacesOf(decided, loops), target_, out));
  HEDDLE_RETURN_IF_ERROR(MakeParallel(decided, loops, out));
  HEDDLE_RETURN_IF_ERROR(UnrollTile(loops.tile, loops.lanes, copy, out));
  HEDDLE_RETURN_IF_ERROR(UnrollReduce(decided, loops, out));
  return out.DecomposeReduction(stage_.view.block, blocked ? loops.blocks[0] : loops.reduce[0]);
}

}  // namespace

bool MatchesTiled(const StageSite& site) {
  return site.target.execution == machine::Execution::kThreads && !site.stage.alone &&
         site.stage.vector_axis >= 0;
}

std::unique_ptr<Rule> MakeTiled(const StageSite& site, Knobs& knobs) {
  return std::make_unique<TiledRule>(site.stage, site.target, knobs);
}

}  // namespace heddle::schedule
