#include "compiler/schedule/rules/tile_decisions.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/rules/stage_work.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kWhole = DecidedTiles::kWhole;
constexpr int64_t kMaxInnerReduce = 64;
constexpr int64_t kMaxMiddle = 64;       // or the whole extent
constexpr int64_t kSmallWindow = 16;     // reductions of so few steps are unrolled whole
constexpr int64_t kStripsPerThread = 4;  // of padded rows: enough to even out

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
  for (int64_t size = 2; size <= std::min(extent, kMaxMiddle); size *= 2) sizes.push_back(size);
  if (std::find(sizes.begin(), sizes.end(), extent) == sizes.end()) sizes.push_back(extent);
  return sizes;
}

}  // namespace

std::vector<int64_t> StepsInside(const std::vector<Axis>& reduce,
                                 const std::vector<int64_t>& factors, int64_t block) {
  std::vector<int64_t> inside(reduce.size());
  bool cut = false;
  int64_t steps = 1;  // inside, so far
  for (size_t k = reduce.size(); k > 0; --k) {
    const int64_t extent = reduce[k - 1].extent, factor = factors[k - 1];
    inside[k - 1] = extent;
    if (cut) {
      inside[k - 1] = factor;
    } else if (block != kWhole && steps * extent > block) {
      cut = true;
      inside[k - 1] = factor * LargestDivisorUpTo(extent / factor,
                                                  std::max<int64_t>(block / (steps * factor), 1));
    }
    steps *= inside[k - 1];
  }
  return inside;
}

TileDecisions::TileDecisions(const Stage& stage, int vector_axis, const machine::TargetInfo& target,
                             Knobs& knobs)
    : stage_(stage), v_(vector_axis), target_(target), model_(stage, vector_axis, target) {
  const RegisterTile preferred = model_.BestTile();
  DeclareTiles(preferred, knobs);
  DeclareReduce(preferred, knobs);
  DeclarePacking(knobs);
  DeclareOthers(preferred, knobs);
}

void TileDecisions::DeclareTiles(const RegisterTile& preferred, Knobs& knobs) {
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

// The number of blocks that the rows of a product are cut into so that one of them fits half of
// the second-level cache while all vectors stream past it.
int64_t TileDecisions::BlocksOfRows() const {
  const double bytes = model_.scalar_operand_bytes(),
               half = static_cast<double>(target_.l2_bytes) / 2;
  return model_.streaming() || bytes <= half ? 1 : static_cast<int64_t>(std::ceil(bytes / half));
}

// The last reduce axis is the long one in convolutions and products: a few of its steps are
// unrolled.
int64_t TileDecisions::PreferredInner(size_t axis) const {
  if (model_.reduce_steps() <= kSmallWindow) return reduce()[axis].extent;
  return axis + 1 == reduce().size() ? LargestDivisorUpTo(reduce()[axis].extent, 4) : 1;
}

// Whether blocks of about `steps` steps are possible: a reduction of prime length can only be cut
// into single steps.
bool TileDecisions::CutsIntoBlocks(int64_t steps) const {
  std::vector<int64_t> factors;
  for (size_t k = 0; k < reduce().size(); ++k) factors.push_back(PreferredInner(k));
  int64_t inside = 1;
  for (int64_t n : StepsInside(reduce(), factors, steps)) inside *= n;
  return 2 * inside >= steps;
}

// A panel of the vector operand that fills more than a quarter of the second-level cache is read
// again for every tile of rows, from that cache at best. If the sums of all rows fit a third of the
// first-level cache, the reduction is cut into blocks instead, and each element of the panel is
// read once. Threads then share nothing but the panels.
bool TileDecisions::PrefersReductionBlocks(const RegisterTile& tile) const {
  if (model_.streaming() || model_.StripsOfPadding() || model_.guarded()) return false;
  if (PrefersWaitingResult()) return false;
  const int64_t width = tile.sizes[v_] * tile.lanes;
  if ((spatial()[v_].extent + width - 1) / width < target_.target.threads) return false;
  if (!CutsIntoBlocks(target_.code.tile.block_steps)) return false;
  int64_t rows = 1;
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (static_cast<int>(k) != v_) rows *= spatial()[k].extent;
  }
  const int64_t panel = model_.vector_element_bytes() * width * model_.reduce_steps(),
                sums = model_.result_element_bytes() * width * rows;
  return panel > target_.l2_bytes / 4 && model_.reduce_steps() > target_.code.tile.block_steps &&
         3 * sums <= target_.l1_bytes && rows > model_.Accumulators(tile) / tile.sizes[v_];
}

// If weights and rows both exceed the second-level cache, the operand of the inner loop is read
// again from beyond it. If the whole result fits there, it stays there while one block of the
// reduction after the other is added, and everything is read once. With threads this was slower
// (bert_base on two: 6 %), because each thread reads all rows for its share of the panels.
bool TileDecisions::PrefersWaitingResult() const {
  if (model_.streaming() || model_.StripsOfPadding() || model_.guarded()) return false;
  if (target_.target.threads > 1 || BlocksOfRows() == 1 || reduce().size() != 1) return false;
  const int64_t block = target_.code.tile.long_block_steps;
  if (!CutsIntoBlocks(block)) return false;
  int64_t elements = 1;
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (model_.Batch(k)) return false;
    elements *= spatial()[k].extent;
  }
  return model_.result_element_bytes() * elements <= target_.l2_bytes / 4 &&
         model_.reduce_steps() >= 2 * block &&
         model_.vector_operand_bytes() > static_cast<double>(target_.l2_bytes);
}

// Whether the axis is the innermost one outside the row axis.
bool TileDecisions::IsAboveRows(size_t axis) const {
  for (int k = model_.row_axis() - 1; k >= 0; --k) {
    if (k != v_ && spatial()[k].extent > 1) return k == static_cast<int>(axis);
  }
  return false;
}

// The number of tiles, along the axis outside the row axis, of a strip whose padding is stored at
// once. Neighbouring strips both store the rows that they share, so a strip should be large. But it
// must fit a sixteenth of the second-level cache, and each thread should get several strips.
int64_t TileDecisions::TilesOfAStrip(size_t axis, const RegisterTile& tile) const {
  const int64_t all = (spatial()[axis].extent + tile.sizes[axis] - 1) / tile.sizes[axis];
  double rows = 1;  // of the result
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (static_cast<int>(k) != v_ && static_cast<int>(k) != model_.row_axis())
      rows *= static_cast<double>(spatial()[k].extent);
  }
  const double bytes = model_.scalar_operand_bytes() / rows * static_cast<double>(tile.sizes[axis]);
  int64_t tiles = 1;
  while (2 * tiles <= kMaxMiddle && 2 * tiles * kStripsPerThread * target_.target.threads <= all &&
         2 * static_cast<double>(tiles) * bytes <= static_cast<double>(target_.l2_bytes) / 16)
    tiles *= 2;
  return tiles;
}

// The middle tile to prefer for an axis of `groups` rows.
int64_t TileDecisions::PreferredMiddle(size_t axis, const RegisterTile& tile,
                                       int64_t groups) const {
  if (PrefersWaitingResult()) return groups;
  if (static_cast<int>(axis) == v_) return 1;
  if (PrefersReductionBlocks(tile)) return groups;
  const bool row = static_cast<int>(axis) == model_.row_axis();
  if (model_.StripsOfPadding() && IsAboveRows(axis) && model_.Overlaps(axis))
    return TilesOfAStrip(axis, tile);
  if (!row) return 1;
  if (model_.StripsOfPadding()) return groups;
  if (BlocksOfRows() == 1) return 1;
  int64_t middle = 1;  // the largest power of two that leaves enough blocks
  while (2 * middle * tile.sizes[axis] * BlocksOfRows() <= groups) middle *= 2;
  return middle;
}

// With the vector axis outermost, a panel of the vector operand stays in a cache while the rows
// stream past it. But then threads share rows of the result, each reads all of the other operand,
// and rows that do not fit the second-level cache come from beyond it for every panel. So such
// rows are taken in blocks, unless the vector operand then comes from beyond more often.
bool TileDecisions::PrefersVectorFirst(const RegisterTile& tile) const {
  if (model_.streaming() || model_.StripsOfPadding()) return false;
  if (PrefersReductionBlocks(tile) || PrefersWaitingResult()) return true;
  const auto l2 = static_cast<double>(target_.l2_bytes);
  if (BlocksOfRows() > 1 &&
      (model_.vector_operand_bytes() <= l2 / 2 || model_.scalar_bytes_used() > l2 * 3 / 4)) {
    return false;
  }
  return target_.target.threads == 1 ||
         model_.vector_operand_bytes() > model_.scalar_operand_bytes();
}

int64_t TileDecisions::PreferredPlace() const {
  if (model_.StripsOfPadding()) return kAtOuter;
  return model_.streaming() || model_.guarded() ? kInline : kAtRoot;
}

void TileDecisions::DeclareReduce(const RegisterTile& tile, Knobs& knobs) {
  for (size_t k = 0; k < reduce().size(); ++k) {
    reduce_knobs_.push_back(knobs.Add(absl::StrCat("inner reduce tile of ", reduce()[k].loop),
                                      Divisors(reduce()[k].extent, kMaxInnerReduce),
                                      PreferredInner(k)));
  }
  const machine::TileFit& fit = target_.code.tile;
  std::vector<int64_t> blocks{kWhole};
  const int64_t longest = std::min(fit.long_block_steps, model_.reduce_steps() - 1);
  for (int64_t steps = fit.block_steps / 2; steps <= longest; steps *= 2) blocks.push_back(steps);
  block_knob_ = knobs.Add(absl::StrCat("steps of a reduction block of ", stage_.view.block), blocks,
                          PrefersReductionBlocks(tile) ? fit.block_steps
                          : PrefersWaitingResult()     ? fit.long_block_steps
                                                       : kWhole);
}

// Declares the packing of constants that are large enough for their layout to matter, and in which
// the vector axis runs along one dimension and occurs nowhere else.
void TileDecisions::DeclarePacking(Knobs& knobs) {
  const ir::Var* vector = spatial()[v_].iter;
  for (const ir::Expr& load : DistinctLoads(*stage_.block)) {
    const ir::Buffer& buffer = *load->buffer;
    const bool constant = std::find(stage_.constants.begin(), stage_.constants.end(),
                                    buffer.name) != stage_.constants.end();
    if (!constant || buffer.SizeBytes() < target_.code.tile.packed_bytes) continue;
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
      if (ir::UsesVar(index, vector)) walked = 2;  // not a plain dimension, so it is not packed
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

void TileDecisions::DeclareOthers(const RegisterTile& preferred, Knobs& knobs) {
  const std::string& name = stage_.view.block;
  order_knob_ = knobs.Add(absl::StrCat("vector axis outermost in ", name), {1, 0},
                          PrefersVectorFirst(preferred));
  unroll_knob_ = knobs.Add(absl::StrCat("unrolled reduce steps of ", name), {1, 2, 4, 8, 16},
                           model_.reduce_steps() <= kSmallWindow ? 16 : 4);
  if (target_.target.threads > 1) {
    const int64_t above = model_.guarded() ? kAboveRows : kAllLoops;
    parallel_knob_ =
        knobs.Add(absl::StrCat("parallel ", name), {kSerial, kAllLoops, kAboveRows},
                  machine::WorthThreads(WorkOf(stage_, target_), target_) ? above : kSerial);
  }
  for (const std::string& producer : stage_.producers) {
    // A producer of vectors is cheap to compute where it is used; scalars serve many vector lanes
    // and rows.
    producer_knobs_.push_back(knobs.Add(absl::StrCat("place of ", producer),
                                        {kAtRoot, kAtOuter, kAtMiddle, kInline}, PreferredPlace()));
  }
}

DecidedTiles TileDecisions::Decide(const Knobs& knobs, const Point& point) const {
  DecidedTiles decided;
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
  // With a single tile no sums wait, and blocks would give the same loops by another trace.
  if (std::all_of(decided.spatial.begin(), decided.spatial.end(),
                  [](const Factors& f) { return f.middle == 1; }))
    decided.reduce_block = kWhole;
  return decided;
}

absl::Status TileDecisions::Check(const DecidedTiles& decided) const {
  RegisterTile tile;
  tile.lanes = decided.spatial[v_].lanes;
  for (const Factors& f : decided.spatial) tile.sizes.push_back(f.tile);
  const int64_t registers = model_.Accumulators(tile);
  if (registers > target_.vector_registers) {
    return absl::FailedPreconditionError(absl::StrCat("a register tile of ", registers,
                                                      " vectors is too large for ",
                                                      target_.vector_registers, " registers"));
  }
  if (registers * decided.unroll > target_.code.tile.unrolled_multiply_adds) {
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
  if (decided.reduce_block != kWhole &&
      model_.result_element_bytes() * waiting > target_.l2_bytes) {
    return absl::FailedPreconditionError(
        "the sums that wait for the blocks of a reduction do not fit the second-level cache");
  }
  return absl::OkStatus();
}

}  // namespace heddle::schedule
