// Reductions around a register tile.
//
// Loops, from outside: outer spatial (parallel), middle spatial, outer reduce, inner reduce,
// register tile (rows unrolled, vectors unrolled, lanes vectorized). The accumulators are a local
// buffer that has the shape of the register tile once lowering has compacted it; the epilogue runs
// on the finished tile. Or the reduction goes in blocks: the loops over blocks stand outside the
// middle spatial ones, which use a block of the vector operand while it is close; the accumulators
// then are all middle tiles, and a tile is in registers for a block.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/register_tile.h"
#include "compiler/schedule/rules.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kWhole = 0;            // the reduction is not cut into blocks
constexpr int64_t kPreferredBlock = 64;  // 16 KiB of four vectors: half a first-level cache
constexpr int64_t kMaxTileOps = 1024;    // multiply-adds unrolled: an instruction cache's worth
constexpr int64_t kMaxInnerReduce = 64;
constexpr int64_t kSmallWindow = 16;        // reductions of so few steps are unrolled whole
constexpr int64_t kParallelOps = 32 << 10;  // less work does not pay for waking threads

// How many of the outer loops become one parallel loop.
enum ParallelMode : int64_t {
  kSerial,
  kAllLoops,
  kAboveRows,  // those above the loop along a row: guards at a row's ends stay those of a loop
};

enum ProducerMode : int64_t { kAtRoot, kAtOuter, kAtMiddle, kInline };

// The factors of one row axis, or of the vector axis with `lanes` split off.
struct Factors {
  int64_t outer = 1;
  int64_t middle = 1;
  int64_t tile = 1;
  int64_t lanes = 1;
};

Factors FactorsOf(int64_t extent, int64_t lanes, int64_t tile, int64_t middle) {
  Factors f;
  f.lanes = lanes;
  int64_t groups = (extent + lanes - 1) / lanes;
  f.tile = std::min(tile, groups);
  int64_t rest = (groups + f.tile - 1) / f.tile;
  f.middle = LargestDivisorUpTo(rest, middle);
  f.outer = rest / f.middle;
  return f;
}

std::vector<int64_t> MiddleSizes(int64_t extent) {
  std::vector<int64_t> sizes{1};
  for (int64_t size = 2; size <= std::min<int64_t>(extent, 64); size *= 2) sizes.push_back(size);
  if (std::find(sizes.begin(), sizes.end(), extent) == sizes.end()) sizes.push_back(extent);
  return sizes;
}

class TiledRule : public Rule {
 public:
  TiledRule(const ReductionStage& stage, int vector_axis, const ir::TargetInfo& target,
            Knobs& knobs)
      : stage_(stage), v_(vector_axis), target_(target), model_(stage, vector_axis, target) {
    Declare(model_.BestTile(), knobs);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override;

 private:
  struct Decided {
    std::vector<Factors> spatial;
    std::vector<int64_t> reduce_inner;
    int64_t reduce_block = kWhole;  // steps
    bool vector_first = true;
    int64_t unroll = 1;
    int64_t parallel = kSerial;
    std::vector<int64_t> producers;
    std::vector<bool> packed;  // by packable_
  };

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

  // A constant that is loaded as vectors: its layout is ours to choose.
  struct Packable {
    std::string buffer;
    size_t dim = 0;                     // the one the vector axis walks
    std::vector<int64_t> outer, inner;  // other dimensions: of spatial and of reduce iterators
    int knob = -1;
  };

  void Declare(const RegisterTile& preferred, Knobs& knobs);
  void DeclareTiles(const RegisterTile& preferred, Knobs& knobs);
  void DeclareReduce(const RegisterTile& preferred, Knobs& knobs);
  int64_t BlocksOfRows() const;
  bool PrefersReductionBlocks(const RegisterTile& tile) const;
  int64_t PreferredMiddle(size_t axis, const RegisterTile& tile, int64_t groups) const;
  bool PrefersVectorFirst(const RegisterTile& tile) const;
  int64_t PreferredPlace() const;
  void DeclarePacking(Knobs& knobs);
  absl::Status PackConstants(const Decided& decided, Recorder& out) const;
  Decided Decide(const Knobs& knobs, const Point& point) const;
  absl::Status CheckTile(const Decided& decided) const;
  absl::Status SplitAll(const Decided& decided, Loops& loops, Recorder& out) const;
  absl::Status SplitReduce(const Decided& decided, Loops& loops, Recorder& out) const;
  std::string OuterRowLoop(const std::vector<std::string>& outer) const;
  absl::Status PlaceProducers(const Decided& decided, const std::string& outer_loop,
                              const std::string& middle_loop, Recorder& out) const;
  absl::Status MakeParallel(const Decided& decided, std::vector<std::string> outer,
                            Recorder& out) const;
  absl::Status UnrollReduce(const Decided& decided, const Loops& loops, Recorder& out) const;

  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const std::vector<Axis>& reduce() const { return stage_.view.reduce; }

  ReductionStage stage_;
  int v_;  // vector axis
  ir::TargetInfo target_;
  TileModel model_;

  std::vector<Packable> packable_;
  std::vector<int> tile_knobs_, middle_knobs_, reduce_knobs_, producer_knobs_;
  int lanes_knob_ = -1, order_knob_ = -1, unroll_knob_ = -1, parallel_knob_ = -1, block_knob_ = -1;
};

void TiledRule::DeclareTiles(const RegisterTile& preferred, Knobs& knobs) {
  const int64_t full_lanes = model_.full_lanes();
  const int64_t vector_extent = spatial()[v_].extent;
  std::vector<int64_t> lanes;
  for (int64_t width = full_lanes; width >= 1; width /= 2) {
    if (vector_extent % width == 0 || (width == full_lanes && vector_extent > width))
      lanes.push_back(width);
    if (lanes.size() == 3) break;
  }
  const int64_t divisor = LargestDivisorUpTo(vector_extent, full_lanes);
  if (std::find(lanes.begin(), lanes.end(), divisor) == lanes.end())
    lanes.insert(lanes.begin(), divisor);
  lanes_knob_ = knobs.Add(absl::StrCat("lanes of ", spatial()[v_].loop), lanes, preferred.lanes);
  for (size_t k = 0; k < spatial().size(); ++k) {
    const Axis& axis = spatial()[k];
    if (axis.extent == 1) {
      tile_knobs_.push_back(-1);
      middle_knobs_.push_back(-1);
      continue;
    }
    bool vector = static_cast<int>(k) == v_;
    std::vector<int64_t> tiles =
        vector ? std::vector<int64_t>{1, 2, 3, 4, 5, 6, 8} : TileSizes(axis.extent);
    int64_t groups = vector ? (axis.extent + lanes.back() - 1) / lanes.back() : axis.extent;
    tiles.erase(std::remove_if(tiles.begin(), tiles.end(), [&](int64_t t) { return t > groups; }),
                tiles.end());
    tile_knobs_.push_back(
        knobs.Add(absl::StrCat("register tile of ", axis.loop), tiles, preferred.sizes[k]));
    middle_knobs_.push_back(knobs.Add(absl::StrCat("middle tile of ", axis.loop),
                                      MiddleSizes(groups), PreferredMiddle(k, preferred, groups)));
  }
}

// How many blocks the rows of a product are cut into so that one of them stays in half the
// second-level cache while all vectors go by.
int64_t TiledRule::BlocksOfRows() const {
  const double bytes = 4 * model_.scalar_elements(),
               half = static_cast<double>(target_.l2_bytes) / 2;
  return model_.streaming() || bytes <= half ? 1 : static_cast<int64_t>(std::ceil(bytes / half));
}

// A panel of the vector operand so large that two of them crowd the second-level cache is read
// again for every tile of rows, from there at best. If the accumulators of all rows stay in the
// first-level cache, the reduction goes in blocks instead, and each element of the panel is read
// once.
bool TiledRule::PrefersReductionBlocks(const RegisterTile& tile) const {
  if (model_.streaming() || model_.StripsOfPadding() || model_.guarded()) return false;
  const int64_t width = tile.sizes[v_] * tile.lanes;
  int64_t rows = 1;
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (static_cast<int>(k) != v_) rows *= spatial()[k].extent;
  }
  return 4 * width * model_.reduce_steps() > target_.l2_bytes / 4 &&
         model_.reduce_steps() > kPreferredBlock && 8 * width * rows <= target_.l1_bytes &&
         rows > model_.Accumulators(tile) / tile.sizes[v_];
}

// The middle tile to prefer for an axis of `groups` rows.
int64_t TiledRule::PreferredMiddle(size_t axis, const RegisterTile& tile, int64_t groups) const {
  if (static_cast<int>(axis) == v_) return 1;
  if (PrefersReductionBlocks(tile)) return groups;
  const bool row = static_cast<int>(axis) == model_.row_axis();
  if (!row) return 1;
  if (model_.StripsOfPadding()) return groups;
  if (BlocksOfRows() == 1) return 1;
  int64_t middle = 1;  // the largest power of two that leaves enough blocks
  while (2 * middle * tile.sizes[axis] * BlocksOfRows() <= groups) middle *= 2;
  return middle;
}

// Outermost, the vector axis keeps a panel of the vector operand close while the rows go by. But
// then threads share rows of the result, and each reads all of the other operand; and rows that do
// not fit the second-level cache come from beyond it for every panel. Then they are taken in
// blocks, unless it is the vector operand that would come from beyond more often.
bool TiledRule::PrefersVectorFirst(const RegisterTile& tile) const {
  if (model_.streaming() || model_.StripsOfPadding()) return false;
  if (PrefersReductionBlocks(tile)) return true;
  const auto l2 = static_cast<double>(target_.l2_bytes);
  if (BlocksOfRows() > 1 &&
      (4 * model_.vector_elements() <= l2 / 2 || 4 * model_.scalars_used() > l2 * 3 / 4)) {
    return false;
  }
  return target_.target.threads == 1 || model_.vector_elements() > model_.scalar_elements();
}

int64_t TiledRule::PreferredPlace() const {
  if (model_.StripsOfPadding()) return kAtOuter;
  return model_.streaming() || model_.guarded() ? kInline : kAtRoot;
}

void TiledRule::DeclareReduce(const RegisterTile& tile, Knobs& knobs) {
  for (const Axis& axis : reduce()) {
    std::vector<int64_t> inner;
    for (int64_t d : Divisors(axis.extent)) {
      if (d <= kMaxInnerReduce) inner.push_back(d);
    }
    // The last reduce axis is the long one of convolutions and products: a few of its steps are
    // unrolled.
    int64_t preferred = &axis == &reduce().back() ? LargestDivisorUpTo(axis.extent, 4) : 1;
    if (model_.reduce_steps() <= kSmallWindow) preferred = axis.extent;
    reduce_knobs_.push_back(
        knobs.Add(absl::StrCat("inner reduce tile of ", axis.loop), inner, preferred));
  }
  std::vector<int64_t> blocks{kWhole};
  for (int64_t steps = kPreferredBlock / 2;
       steps <= 8 * kPreferredBlock && steps < model_.reduce_steps(); steps *= 2)
    blocks.push_back(steps);
  block_knob_ = knobs.Add(absl::StrCat("steps of a reduction block of ", stage_.view.block), blocks,
                          PrefersReductionBlocks(tile) ? kPreferredBlock : kWhole);
}

// Constants of which the vector axis walks one dimension and nothing else, and that are large
// enough for their layout to matter.
void TiledRule::DeclarePacking(Knobs& knobs) {
  constexpr int64_t kSmall = 16 << 10;  // bytes; stays in the first-level cache in any layout
  const ir::Var* vector = spatial()[v_].iter;
  for (const ir::Expr& load : DistinctLoads(*stage_.block)) {
    const ir::Buffer& buffer = *load->buffer;
    const bool constant = std::find(stage_.constants.begin(), stage_.constants.end(),
                                    buffer.name) != stage_.constants.end();
    if (!constant || buffer.SizeBytes() < kSmall) continue;
    const bool known = std::any_of(packable_.begin(), packable_.end(),
                                   [&](const Packable& p) { return p.buffer == buffer.name; });
    if (known) continue;
    Packable packable;
    packable.buffer = buffer.name;
    int walked = 0;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const ir::Expr& index = load->args[d];
      if (index->kind == ir::ExprKind::kVar && index->var.get() == vector) {
        packable.dim = d;
        ++walked;
        continue;
      }
      if (ir::UsesVar(index, vector)) walked = 2;  // not that simple
      const bool reduces = std::any_of(reduce().begin(), reduce().end(), [&](const Axis& axis) {
        return ir::UsesVar(index, axis.iter);
      });
      (reduces ? packable.inner : packable.outer).push_back(static_cast<int64_t>(d));
    }
    if (walked != 1) continue;
    packable.knob = knobs.Add(absl::StrCat("pack ", buffer.name), {1, 0}, 1);
    packable_.push_back(std::move(packable));
  }
}

// Panels as wide as the register tile, one after another in the order the loops go over them.
absl::Status TiledRule::PackConstants(const Decided& decided, Recorder& out) const {
  const Factors& vector = decided.spatial[v_];
  for (size_t i = 0; i < packable_.size(); ++i) {
    if (!decided.packed[i]) continue;
    const Packable& packable = packable_[i];
    std::vector<int64_t> numbers(1 + packable.outer.size() + packable.inner.size(), 1);
    numbers[packable.dim] = vector.tile * vector.lanes;
    const auto add = [&](const std::vector<int64_t>& dims) {
      numbers.insert(numbers.end(), dims.begin(), dims.end());
    };
    add(packable.outer);
    add({static_cast<int64_t>(packable.dim)});
    add(packable.inner);
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kPack, {stage_.view.block, packable.buffer}, numbers));
  }
  return absl::OkStatus();
}

void TiledRule::Declare(const RegisterTile& preferred, Knobs& knobs) {
  const std::string& name = stage_.view.block;
  DeclareTiles(preferred, knobs);
  DeclareReduce(preferred, knobs);
  DeclarePacking(knobs);
  order_knob_ = knobs.Add(absl::StrCat("vector axis outermost in ", name), {1, 0},
                          PrefersVectorFirst(preferred));
  unroll_knob_ = knobs.Add(absl::StrCat("unrolled reduce steps of ", name), {1, 2, 4, 8, 16},
                           model_.reduce_steps() <= kSmallWindow ? 16 : 4);
  if (target_.target.threads > 1) {
    const int64_t above = model_.guarded() ? kAboveRows : kAllLoops;
    parallel_knob_ = knobs.Add(absl::StrCat("parallel ", name), {kSerial, kAllLoops, kAboveRows},
                               model_.work() >= kParallelOps ? above : kSerial);
  }
  for (const std::string& producer : stage_.producers) {
    // What is loaded as a vector is cheap to compute where it is used; scalars are used by many
    // lanes and rows.
    producer_knobs_.push_back(knobs.Add(absl::StrCat("place of ", producer),
                                        {kAtRoot, kAtOuter, kAtMiddle, kInline}, PreferredPlace()));
  }
}

TiledRule::Decided TiledRule::Decide(const Knobs& knobs, const Point& point) const {
  Decided decided;
  int64_t lanes = knobs.Value(point, lanes_knob_);
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (tile_knobs_[k] < 0) {
      decided.spatial.push_back({});
      continue;
    }
    int64_t width = static_cast<int>(k) == v_ ? lanes : 1;
    int64_t tile = knobs.Value(point, tile_knobs_[k]);
    if (width > 1 || static_cast<int>(k) == v_) {
      tile = LargestDivisorUpTo((spatial()[k].extent + width - 1) / width, tile);
    }
    decided.spatial.push_back(
        FactorsOf(spatial()[k].extent, width, tile, knobs.Value(point, middle_knobs_[k])));
  }
  for (int knob : reduce_knobs_) decided.reduce_inner.push_back(knobs.Value(point, knob));
  if (block_knob_ >= 0) decided.reduce_block = knobs.Value(point, block_knob_);
  decided.vector_first = knobs.Value(point, order_knob_) != 0;
  decided.unroll = knobs.Value(point, unroll_knob_);
  if (parallel_knob_ >= 0) decided.parallel = knobs.Value(point, parallel_knob_);
  for (const Packable& packable : packable_) {
    decided.packed.push_back(knobs.Value(point, packable.knob) != 0);
  }
  for (int knob : producer_knobs_) decided.producers.push_back(knobs.Value(point, knob));
  // One tile alone waits for nothing: blocks would give the same loops by another trace.
  if (std::all_of(decided.spatial.begin(), decided.spatial.end(),
                  [](const Factors& f) { return f.middle == 1; }))
    decided.reduce_block = kWhole;
  return decided;
}

absl::Status TiledRule::CheckTile(const Decided& decided) const {
  RegisterTile tile;
  tile.lanes = decided.spatial[v_].lanes;
  for (const Factors& f : decided.spatial) tile.sizes.push_back(f.tile);
  const int64_t registers = model_.Accumulators(tile);
  if (registers > target_.vector_registers) {
    return absl::FailedPreconditionError(absl::StrCat("a register tile of ", registers,
                                                      " vectors is too large for ",
                                                      target_.vector_registers, " registers"));
  }
  if (registers * decided.unroll > kMaxTileOps) {
    return absl::FailedPreconditionError("the unrolled register tile is too large");
  }
  for (size_t k = 0; k < decided.spatial.size(); ++k) {
    const Factors& f = decided.spatial[k];
    if (f.outer * f.middle * f.tile * f.lanes > 2 * spatial()[k].extent) {
      return absl::FailedPreconditionError(
          absl::StrCat("the tile of ", spatial()[k].loop, " wastes more than half"));
    }
  }
  int64_t waiting = 1;
  for (const Factors& f : decided.spatial) waiting *= f.middle * f.tile * f.lanes;
  if (decided.reduce_block != kWhole && 4 * waiting > target_.l2_bytes) {
    return absl::FailedPreconditionError(
        "the sums that wait for the blocks of a reduction do not fit the second-level cache");
  }
  return absl::OkStatus();
}

// Splits the reduce loops. From the last axis outwards, as many steps as a block has stay inside.
absl::Status TiledRule::SplitReduce(const Decided& decided, Loops& loops, Recorder& out) const {
  std::vector<std::string> blocks, outer, inner;  // innermost first
  bool cut = false;
  int64_t steps = 1;  // inside, so far
  loops.unrolled_steps.resize(reduce().size());
  for (size_t k = reduce().size(); k > 0; --k) {
    const Axis& axis = reduce()[k - 1];
    const int64_t factor = decided.reduce_inner[k - 1];
    int64_t inside = axis.extent;
    if (cut) {
      inside = factor;
    } else if (decided.reduce_block != kWhole && steps * axis.extent > decided.reduce_block) {
      cut = true;
      inside = factor *
               LargestDivisorUpTo(axis.extent / factor,
                                  std::max<int64_t>(decided.reduce_block / (steps * factor), 1));
    }
    steps *= inside;
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

absl::Status TiledRule::SplitAll(const Decided& decided, Loops& loops, Recorder& out) const {
  // The vector axis goes first or last among the outer loops, the others keep their order; but axes
  // that tell products apart, which share nothing, stay outside.
  std::vector<size_t> order;
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (model_.Batch(k)) order.push_back(k);
  }
  if (decided.vector_first) order.push_back(static_cast<size_t>(v_));
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (static_cast<int>(k) != v_ && !model_.Batch(k)) order.push_back(k);
  }
  if (!decided.vector_first) order.push_back(static_cast<size_t>(v_));
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
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (spatial()[k].extent > 1 && static_cast<int>(k) != v_)
      loops.unrolled.push_back(spatial()[k].loop + ".2");
  }
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
  const std::string& vector = spatial()[v_].loop;
  const bool last = outer.back() == vector || outer.back() == vector + ".0";
  return last && outer.size() > 1 ? outer[outer.size() - 2] : outer.back();
}

absl::Status TiledRule::PlaceProducers(const Decided& decided, const std::string& outer_loop,
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
    HEDDLE_RETURN_IF_ERROR(VectorizeLoop(last, last_path.loop().extent, model_.full_lanes(), out));
  }
  return absl::OkStatus();
}

absl::Status TiledRule::MakeParallel(const Decided& decided, std::vector<std::string> outer,
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

absl::Status TiledRule::UnrollReduce(const Decided& decided, const Loops& loops,
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
  Decided decided = Decide(knobs, point);
  HEDDLE_RETURN_IF_ERROR(CheckTile(decided));
  const std::string& block = stage_.view.block;
  HEDDLE_RETURN_IF_ERROR(PackConstants(decided, out));
  std::string epilogue = stage_.epilogue;
  if (epilogue.empty()) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kCacheWrite, {block, "local"}));
    epilogue = block + ".copy";
  } else {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSetScope, {block, "local"}));
  }
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
                                         const ir::TargetInfo& target, Knobs& knobs) {
  return std::make_unique<TiledRule>(stage, vector_axis, target, knobs);
}

}  // namespace heddle::schedule
