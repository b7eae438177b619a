// Reductions around a register tile.
//
// Loops, from outside: outer spatial (parallel), middle spatial, outer reduce, inner reduce,
// register tile (rows unrolled, vectors unrolled, lanes vectorized). The accumulators are a local
// buffer that has the shape of the register tile once lowering has compacted it; the epilogue runs
// on the finished tile. Or the reduction goes in blocks: the loops over blocks stand outside the
// middle spatial ones, which use a block of the vector operand while it is close; the accumulators
// then are all middle tiles, and a tile is in registers for a block.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/schedule/rules/rules.h"
#include "compiler/schedule/rules/tile_decisions.h"

namespace heddle::schedule {

namespace {

class TiledRule : public Rule {
 public:
  TiledRule(const ReductionStage& stage, int vector_axis, const machine::TargetInfo& target,
            Knobs& knobs)
      : stage_(stage),
        v_(vector_axis),
        target_(target),
        decisions_(stage, vector_axis, target, knobs) {}

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override;

 private:
  // From outside; those of an extent of 1 are among the outer ones.
  struct Loops {
    std::vector<std::string> outer;
    std::vector<std::string> blocks;  // of the reduction
    std::vector<std::string> middle;
    std::vector<std::string> reduce;
    std::vector<std::string> unrolled;
    std::string lanes;
    std::vector<std::string> unrolled_steps;  // of each reduce axis; empty if there is none
  };

  absl::Status PackConstants(const DecidedTiles& decided, Recorder& out) const;
  absl::Status SplitAll(const DecidedTiles& decided, Loops& loops, Recorder& out) const;
  absl::Status SplitReduce(const DecidedTiles& decided, Loops& loops, Recorder& out) const;
  std::string OuterRowLoop(const std::vector<std::string>& outer) const;
  absl::Status PlaceProducers(const DecidedTiles& decided, const std::string& outer_loop,
                              const std::string& middle_loop, Recorder& out) const;
  absl::Status MakeParallel(const DecidedTiles& decided, std::vector<std::string> outer,
                            Recorder& out) const;
  absl::Status UnrollReduce(const DecidedTiles& decided, const Loops& loops, Recorder& out) const;

  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const std::vector<Axis>& reduce() const { return stage_.view.reduce; }

  ReductionStage stage_;
  int v_;  // vector axis
  machine::TargetInfo target_;
  TileDecisions decisions_;
};

// Panels as wide as the register tile, one after another in the order the loops go over them. Where
// all panels go by within a block of the reduction, those of a block stand together.
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
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kPack, {stage_.view.block, packable.buffer}, numbers));
  }
  return absl::OkStatus();
}

// Splits the reduce loops.
absl::Status TiledRule::SplitReduce(const DecidedTiles& decided, Loops& loops,
                                    Recorder& out) const {
  std::vector<std::string> blocks, outer, inner;  // innermost first
  const std::vector<int64_t> steps =
      StepsInside(reduce(), decided.reduce_inner, decided.reduce_block);
  loops.unrolled_steps.resize(reduce().size());
  for (size_t k = reduce().size(); k > 0; --k) {
    const Axis& axis = reduce()[k - 1];
    const int64_t factor = decided.reduce_inner[k - 1];
    const int64_t inside = steps[k - 1];
    struct Part {
      int64_t extent;
      std::vector<std::string>* loops;
    };
    std::vector<Part> parts;
    if (inside < axis.extent) parts.push_back({axis.extent / inside, &blocks});
    if (factor < inside) parts.push_back({inside / factor, &outer});
    if (factor > 1) parts.push_back({factor, &inner});
    std::vector<int64_t> extents;
    for (const Part& part : parts) extents.push_back(part.extent);
    if (parts.size() > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {axis.loop}, extents));
    for (size_t i = parts.size(); i > 0; --i) {
      const std::string name = parts.size() > 1 ? absl::StrCat(axis.loop, ".", i - 1) : axis.loop;
      parts[i - 1].loops->push_back(name);
      if (parts[i - 1].loops == &inner) loops.unrolled_steps[k - 1] = name;
    }
    if (parts.empty()) outer.push_back(axis.loop);
  }
  loops.blocks.assign(blocks.rbegin(), blocks.rend());
  loops.reduce.assign(outer.rbegin(), outer.rend());
  loops.reduce.insert(loops.reduce.end(), inner.rbegin(), inner.rend());
  return absl::OkStatus();
}

absl::Status TiledRule::SplitAll(const DecidedTiles& decided, Loops& loops, Recorder& out) const {
  // The vector axis, with the one that tells its panels apart, goes first or last among the outer
  // loops, the others keep their order; but axes that tell products apart, which share nothing,
  // stay outside.
  const int panels = decisions_.model().panel_axis();
  std::vector<size_t> order;
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (decisions_.model().Batch(k)) order.push_back(k);
  }
  const auto add_vectors = [&] {
    if (panels >= 0) order.push_back(static_cast<size_t>(panels));
    order.push_back(static_cast<size_t>(v_));
  };
  if (decided.vector_first) add_vectors();
  for (size_t k = 0; k < spatial().size(); ++k) {
    const int axis = static_cast<int>(k);
    if (axis != v_ && axis != panels && !decisions_.model().Batch(k)) order.push_back(k);
  }
  if (!decided.vector_first) add_vectors();
  for (size_t k : order) {
    const Factors& f = decided.spatial[k];
    const std::string& loop = spatial()[k].loop;
    if (spatial()[k].extent == 1) {
      loops.outer.push_back(loop);
      continue;
    }
    std::vector<int64_t> factors{f.outer, f.middle, f.tile};
    if (static_cast<int>(k) == v_) factors.push_back(f.lanes);
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {loop}, factors));
    loops.outer.push_back(loop + ".0");
    loops.middle.push_back(loop + ".1");
  }
  HEDDLE_RETURN_IF_ERROR(SplitReduce(decided, loops, out));
  // Vectors innermost, of all panels, so that registers hold them while the rows go by.
  for (size_t k = 0; k < spatial().size(); ++k) {
    const int axis = static_cast<int>(k);
    if (spatial()[k].extent > 1 && axis != v_ && axis != panels)
      loops.unrolled.push_back(spatial()[k].loop + ".2");
  }
  if (panels >= 0) loops.unrolled.push_back(spatial()[panels].loop + ".2");
  loops.unrolled.push_back(spatial()[v_].loop + ".2");
  loops.lanes = spatial()[v_].loop + ".3";
  std::vector<std::string> all = loops.outer;
  for (const auto* more : {&loops.blocks, &loops.middle, &loops.reduce, &loops.unrolled}) {
    all.insert(all.end(), more->begin(), more->end());
  }
  all.push_back(loops.lanes);
  return out.Do(Primitive::kReorder, all);
}

// The innermost outer loop that all vectors of a row share; the vector axis' own if it is alone.
std::string TiledRule::OuterRowLoop(const std::vector<std::string>& outer) const {
  size_t last = outer.size() - 1;
  for (const int axis : {v_, decisions_.model().panel_axis()}) {
    if (axis < 0) continue;
    const std::string& loop = spatial()[axis].loop;
    if (last > 0 && (outer[last] == loop || outer[last] == loop + ".0")) --last;
  }
  return outer[last];
}

absl::Status TiledRule::PlaceProducers(const DecidedTiles& decided, const std::string& outer_loop,
                                       const std::string& middle_loop, Recorder& out) const {
  for (size_t i = 0; i < stage_.producers.size(); ++i) {
    const std::string& producer = stage_.producers[i];
    if (decided.producers[i] == kInline) {
      HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeInline, {producer}));
      continue;
    }
    if (decided.producers[i] == kAtRoot) {
      HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(out.program().body, producer));
      StageView view;
      if (ViewStage(path, &view))
        HEDDLE_RETURN_IF_ERROR(ApplyPlain(view, path.block(), target_, out));
      continue;
    }
    const std::string& loop = decided.producers[i] == kAtOuter ? outer_loop : middle_loop;
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kComputeAt, {producer, loop}));
    HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(out.program().body, producer));
    std::string last = absl::StrCat(producer, "@", loop, ".", path.block().iters.size() - 1);
    HEDDLE_ASSIGN_OR_RETURN(Path last_path, FindLoop(out.program().body, last));
    HEDDLE_RETURN_IF_ERROR(
        VectorizeLoop(last, last_path.loop().extent, decisions_.model().full_lanes(), out));
  }
  return absl::OkStatus();
}

absl::Status TiledRule::MakeParallel(const DecidedTiles& decided, std::vector<std::string> outer,
                                     Recorder& out) const {
  if (decided.parallel == kSerial) return absl::OkStatus();
  if (decided.parallel == kAboveRows) {
    const auto row = std::find(outer.begin(), outer.end(), OuterRowLoop(outer));
    if (row != outer.begin()) outer.erase(row, outer.end());
  }
  std::string fused = outer[0];
  for (size_t k = 1; k < outer.size(); ++k) absl::StrAppend(&fused, "*", outer[k]);
  if (outer.size() > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kFuse, outer));
  return out.Do(Primitive::kParallel, {fused});
}

absl::Status TiledRule::UnrollReduce(const DecidedTiles& decided, const Loops& loops,
                                     Recorder& out) const {
  int64_t budget = decided.unroll;
  for (size_t k = reduce().size(); k > 0; --k) {
    const int64_t factor = decided.reduce_inner[k - 1];
    if (factor == 1) continue;
    if (factor > budget) break;
    budget /= factor;
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {loops.unrolled_steps[k - 1]}));
  }
  return absl::OkStatus();
}

absl::Status TiledRule::Apply(const Knobs& knobs, const Point& point, Recorder& out) const {
  const DecidedTiles decided = decisions_.Decide(knobs, point);
  HEDDLE_RETURN_IF_ERROR(decisions_.Check(decided));
  const std::string& block = stage_.view.block;
  HEDDLE_RETURN_IF_ERROR(PackConstants(decided, out));
  HEDDLE_ASSIGN_OR_RETURN(const std::string epilogue, out.Accumulate(block, stage_.epilogue));
  Loops loops;
  HEDDLE_RETURN_IF_ERROR(SplitAll(decided, loops, out));
  // A tile is finished in its middle loop; with blocks of the reduction, all middle tiles are at
  // once.
  const bool blocked = !loops.blocks.empty();
  const std::string& done = blocked ? loops.outer.back() : loops.middle.back();
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReverseComputeAt, {epilogue, done}));
  HEDDLE_RETURN_IF_ERROR(
      PlaceProducers(decided, OuterRowLoop(loops.outer), loops.middle.back(), out));
  HEDDLE_RETURN_IF_ERROR(MakeParallel(decided, loops.outer, out));
  // The epilogue's loops repeat the spatial ones inside: rows, vectors, lanes.
  const size_t skipped = blocked ? loops.middle.size() : 0;
  auto epilogue_loop = [&](size_t k) {
    return absl::StrCat(epilogue, "@", done, ".", skipped + k);
  };
  for (size_t k = 0; k < loops.unrolled.size(); ++k) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {loops.unrolled[k]}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {epilogue_loop(k)}));
  }
  if (decided.spatial[v_].lanes > 1) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kVectorize, {loops.lanes}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kVectorize, {epilogue_loop(loops.unrolled.size())}));
  }
  HEDDLE_RETURN_IF_ERROR(UnrollReduce(decided, loops, out));
  return out.Do(Primitive::kDecomposeReduction,
                {block, blocked ? loops.blocks[0] : loops.reduce[0]});
}

}  // namespace

std::unique_ptr<Rule> MakeTiledReduction(const ReductionStage& stage, int vector_axis,
                                         const machine::TargetInfo& target, Knobs& knobs) {
  return std::make_unique<TiledRule>(stage, vector_axis, target, knobs);
}

}  // namespace heddle::schedule
