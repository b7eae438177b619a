// Reductions around a register tile.
//
// Loops, from outside: outer spatial (parallel), middle spatial, outer reduce, inner reduce,
// register tile (rows unrolled, vectors unrolled, lanes vectorized). The accumulators are a local
// buffer that has the shape of the register tile once lowering has compacted it; the epilogue runs
// on the finished tile.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/ir/status_macros.h"
#include "compiler/schedule/rules.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxRows = 16;  // of one axis in the register tile
constexpr int64_t kMaxTileOps =
    1024;  // multiply-adds in straight-line code, an instruction cache's worth
constexpr int64_t kMaxInnerReduce = 64;
constexpr int64_t kSmallWindow = 16;  // reductions of so few steps are unrolled whole
constexpr double kMinChainCycles =
    4;  // latency of a multiply-add: one accumulator cannot be updated sooner
constexpr double kL2BytesPerCycle = 32;     // what one core streams from its second-level cache
constexpr double kGuardPenalty = 1.5;       // of rows or lanes behind a condition
constexpr int64_t kParallelOps = 32 << 10;  // less work does not pay for waking threads

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

// Register-tile sizes of an axis: divisors, and for axes with few of them some that leave a guarded
// tail.
std::vector<int64_t> TileSizes(int64_t extent) {
  std::vector<int64_t> sizes;
  for (int64_t d : Divisors(extent)) {
    if (d <= kMaxRows) sizes.push_back(d);
  }
  if (sizes.back() < 4 && extent > 4) {
    for (int64_t size : {4, 6, 8}) {
      if (size < extent) sizes.push_back(size);
    }
  }
  return sizes;
}

std::vector<int64_t> MiddleSizes(int64_t extent) {
  std::vector<int64_t> sizes{1};
  for (int64_t size = 2; size <= std::min<int64_t>(extent, 64); size *= 2) sizes.push_back(size);
  if (extent > 64) sizes.push_back(extent);
  return sizes;
}

class TiledRule : public Rule {
 public:
  TiledRule(const ir::Program& base, const ReductionStage& stage, int vector_axis,
            const ir::TargetInfo& target, Knobs& knobs)
      : stage_(stage), v_(vector_axis), target_(target) {
    full_lanes_ = LanesOf(target, stage.block->store.buffer->dtype);
    Analyse();
    PickDefault();
    Declare(base, knobs);
  }

  absl::Status Apply(const Knobs& knobs, const Point& point, Recorder& out) const override;

 private:
  // Which axes a load depends on, and whether it is a vector or a scalar to be broadcast.
  struct LoadShape {
    std::vector<bool> depends;  // per spatial axis
    bool vector = false;
  };

  struct Decided {
    std::vector<Factors> spatial;
    std::vector<int64_t> reduce_inner;
    bool vector_first = true;
    int64_t unroll = 1;
    bool parallel = false;
    std::vector<int64_t> producers;
  };

  void Analyse();
  void PickDefault();
  void Declare(const ir::Program& base, Knobs& knobs);
  double CyclesPerElement(const std::vector<int64_t>& tile, int64_t lanes) const;
  int64_t Registers(const std::vector<int64_t>& tile, int64_t lanes) const;
  int64_t OperandRegisters(const std::vector<int64_t>& tile) const;
  Decided Decide(const Knobs& knobs, const Point& point) const;
  absl::Status CheckTile(const Decided& decided) const;
  absl::Status SplitAll(const Decided& decided, std::vector<std::string>* outer,
                        std::vector<std::string>* middle, std::vector<std::string>* reduce,
                        std::vector<std::string>* unrolled, std::string* lanes,
                        Recorder& out) const;
  absl::Status PlaceProducers(const Decided& decided, const std::string& outer_loop,
                              const std::string& middle_loop, Recorder& out) const;
  absl::Status UnrollReduce(const Decided& decided, Recorder& out) const;

  const std::vector<Axis>& spatial() const { return stage_.view.spatial; }
  const std::vector<Axis>& reduce() const { return stage_.view.reduce; }

  ReductionStage stage_;
  int v_;  // vector axis
  ir::TargetInfo target_;
  int64_t full_lanes_ = 1;
  std::vector<LoadShape> loads_;
  int64_t work_ = 1;            // multiply-adds
  int64_t panel_elements_ = 1;  // reduce iterations
  bool streaming_ = true;       // no load is a scalar for many lanes: memory sets the pace

  std::vector<int64_t> default_tile_;
  int64_t default_lanes_ = 1;

  std::vector<int> tile_knobs_, middle_knobs_, reduce_knobs_, producer_knobs_;
  int lanes_knob_ = -1, order_knob_ = -1, unroll_knob_ = -1, parallel_knob_ = -1;
};

void TiledRule::Analyse() {
  for (const ir::Expr& load : DistinctLoads(*stage_.block)) {
    LoadShape shape;
    for (size_t k = 0; k < spatial().size(); ++k) {
      shape.depends.push_back(StrideOf(*load->buffer, load->args, spatial()[k].iter) != 0);
    }
    shape.vector = shape.depends[v_];
    streaming_ &= shape.vector;
    loads_.push_back(std::move(shape));
  }
  for (const Axis& axis : reduce()) panel_elements_ *= axis.extent;
  work_ = panel_elements_;
  for (const Axis& axis : spatial()) work_ *= axis.extent;
}

int64_t TiledRule::Registers(const std::vector<int64_t>& tile, int64_t lanes) const {
  int64_t accumulators = 1;
  for (int64_t size : tile) accumulators *= size;
  return accumulators * ((lanes + full_lanes_ - 1) / full_lanes_);
}

// Registers for the operands of one reduce step: the fewer of vectors and broadcast scalars stay
// for the whole step, the others come one at a time.
int64_t TiledRule::OperandRegisters(const std::vector<int64_t>& tile) const {
  int64_t vectors = 0, scalars = 0;
  for (const LoadShape& load : loads_) {
    int64_t count = 1;
    for (size_t k = 0; k < tile.size(); ++k) {
      if (load.depends[k]) count *= tile[k];
    }
    (load.vector ? vectors : scalars) += count;
  }
  return std::min(vectors, scalars) + 1;
}

// Cycles for one reduce step of the tile, per element of it.
double TiledRule::CyclesPerElement(const std::vector<int64_t>& tile, int64_t lanes) const {
  double accumulators = static_cast<double>(Registers(tile, lanes));
  double loads = 0, streamed = 0;
  for (const LoadShape& load : loads_) {
    double count = 1;
    bool reused = false;
    for (size_t k = 0; k < tile.size(); ++k) {
      if (load.depends[k]) count *= static_cast<double>(tile[k]);
      reused |= !load.depends[k] && spatial()[k].extent > 1;
    }
    loads += count;
    // A vector operand that other tiles use again streams from the second-level cache.
    if (load.vector && reused) streamed += count * static_cast<double>(lanes * 4);
  }
  double panel = static_cast<double>(panel_elements_) * streamed;
  double cycles = std::max({accumulators / 2, loads / 2, kMinChainCycles});
  if (panel > static_cast<double>(target_.l1_bytes) / 2) {
    cycles = std::max(cycles, streamed / kL2BytesPerCycle);
  }
  double elements = static_cast<double>(lanes);
  double waste = 1;
  for (size_t k = 0; k < tile.size(); ++k) {
    elements *= static_cast<double>(tile[k]);
    int64_t step = tile[k] * (static_cast<int>(k) == v_ ? lanes : 1);
    int64_t covered = (spatial()[k].extent + step - 1) / step * step;
    if (covered > spatial()[k].extent) {
      waste *=
          kGuardPenalty * static_cast<double>(covered) / static_cast<double>(spatial()[k].extent);
    }
  }
  return cycles / elements * waste;
}

void TiledRule::PickDefault() {
  const size_t n = spatial().size();
  default_tile_.assign(n, 1);
  // Rows are taken from the two innermost axes that some load is invariant along; any axis does for
  // reductions without reuse.
  std::vector<size_t> rows;
  for (size_t k = n; k > 0 && rows.size() < 2; --k) {
    if (static_cast<int>(k - 1) != v_ && spatial()[k - 1].extent > 1) rows.push_back(k - 1);
  }
  const int64_t vector_extent = spatial()[v_].extent;
  std::vector<int64_t> lane_choices{PowerOfTwoDivisor(vector_extent, full_lanes_)};
  if (lane_choices[0] < full_lanes_ && vector_extent > full_lanes_)
    lane_choices.push_back(full_lanes_);
  // Widths like 7, 14 or 28 of the last dimension of an image: a register not quite full is better
  // than a narrow one.
  lane_choices.push_back(LargestDivisorUpTo(vector_extent, full_lanes_));
  // Largest first: of equally good tiles the one that is long in the innermost axis walks memory
  // best.
  auto sizes = [&](size_t i) {
    if (i >= rows.size()) return std::vector<int64_t>{1};
    std::vector<int64_t> descending = TileSizes(spatial()[rows[i]].extent);
    std::sort(descending.rbegin(), descending.rend());
    return descending;
  };
  double best = INFINITY;
  int64_t best_registers = 0;
  // Without a broadcast operand of its own, an instruction needs one register more.
  const int64_t spare = target_.vector_bytes >= 64 ? 0 : 1;
  for (int64_t lanes : lane_choices) {
    int64_t groups = (vector_extent + lanes - 1) / lanes;
    for (int64_t vectors : {1, 2, 3, 4, 5, 6, 8}) {
      if (groups % vectors != 0) continue;
      for (int64_t a : sizes(0)) {
        for (int64_t b : sizes(1)) {
          std::vector<int64_t> tile(n, 1);
          tile[v_] = vectors;
          if (!rows.empty()) tile[rows[0]] = a;
          if (rows.size() > 1) tile[rows[1]] = b;
          int64_t registers = Registers(tile, lanes);
          if (registers + OperandRegisters(tile) + spare > target_.vector_registers) continue;
          double cost = CyclesPerElement(tile, lanes);
          if (cost > best * 1.001 || (cost > best * 0.999 && registers <= best_registers)) continue;
          best = std::min(best, cost);
          best_registers = registers;
          default_tile_ = tile;
          default_lanes_ = lanes;
        }
      }
    }
  }
}

void TiledRule::Declare(const ir::Program& base, Knobs& knobs) {
  const std::string& name = stage_.view.block;
  const int64_t vector_extent = spatial()[v_].extent;
  std::vector<int64_t> lanes;
  for (int64_t width = full_lanes_; width >= 1; width /= 2) {
    if (vector_extent % width == 0 || (width == full_lanes_ && vector_extent > width))
      lanes.push_back(width);
    if (lanes.size() == 3) break;
  }
  const int64_t divisor = LargestDivisorUpTo(vector_extent, full_lanes_);
  if (std::find(lanes.begin(), lanes.end(), divisor) == lanes.end())
    lanes.insert(lanes.begin(), divisor);
  lanes_knob_ = knobs.Add(absl::StrCat("lanes of ", spatial()[v_].loop), lanes, default_lanes_);
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
        knobs.Add(absl::StrCat("register tile of ", axis.loop), tiles, default_tile_[k]));
    middle_knobs_.push_back(
        knobs.Add(absl::StrCat("middle tile of ", axis.loop), MiddleSizes(groups), 1));
  }
  for (const Axis& axis : reduce()) {
    std::vector<int64_t> inner;
    for (int64_t d : Divisors(axis.extent)) {
      if (d <= kMaxInnerReduce) inner.push_back(d);
    }
    // The last reduce axis is the long one of convolutions and products: a few of its steps are
    // unrolled.
    int64_t preferred = &axis == &reduce().back() ? LargestDivisorUpTo(axis.extent, 4) : 1;
    if (panel_elements_ <= kSmallWindow) preferred = axis.extent;
    reduce_knobs_.push_back(
        knobs.Add(absl::StrCat("inner reduce tile of ", axis.loop), inner, preferred));
  }
  order_knob_ = knobs.Add(absl::StrCat("vector axis outermost in ", name), {1, 0}, !streaming_);
  unroll_knob_ = knobs.Add(absl::StrCat("unrolled reduce steps of ", name), {1, 2, 4, 8, 16},
                           panel_elements_ <= kSmallWindow ? 16 : 4);
  if (target_.target.threads > 1) {
    parallel_knob_ = knobs.Add(absl::StrCat("parallel ", name), {0, 1}, work_ >= kParallelOps);
  }
  for (const std::string& producer : stage_.producers) {
    // What is loaded as a vector is cheap to compute where it is used; scalars are used by many
    // lanes and rows.
    producer_knobs_.push_back(knobs.Add(absl::StrCat("place of ", producer),
                                        {kAtRoot, kAtOuter, kAtMiddle, kInline},
                                        streaming_ ? kInline : kAtRoot));
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
  decided.vector_first = knobs.Value(point, order_knob_) != 0;
  decided.unroll = knobs.Value(point, unroll_knob_);
  decided.parallel = parallel_knob_ >= 0 && knobs.Value(point, parallel_knob_) != 0;
  for (int knob : producer_knobs_) decided.producers.push_back(knobs.Value(point, knob));
  return decided;
}

absl::Status TiledRule::CheckTile(const Decided& decided) const {
  std::vector<int64_t> tile;
  for (const Factors& f : decided.spatial) tile.push_back(f.tile);
  int64_t registers = Registers(tile, decided.spatial[v_].lanes);
  if (registers > target_.vector_registers) {
    return absl::FailedPreconditionError(absl::StrCat("a register tile of ", registers,
                                                      " vectors is too large for ",
                                                      target_.vector_registers, " registers"));
  }
  if (registers * decided.unroll > kMaxTileOps) {
    return absl::FailedPreconditionError("the unrolled register tile is too large");
  }
  for (size_t k = 0; k < tile.size(); ++k) {
    const Factors& f = decided.spatial[k];
    if (f.outer * f.middle * f.tile * f.lanes > 2 * spatial()[k].extent) {
      return absl::FailedPreconditionError(
          absl::StrCat("the tile of ", spatial()[k].loop, " wastes more than half"));
    }
  }
  return absl::OkStatus();
}

absl::Status TiledRule::SplitAll(const Decided& decided, std::vector<std::string>* outer,
                                 std::vector<std::string>* middle,
                                 std::vector<std::string>* reduce_order,
                                 std::vector<std::string>* unrolled, std::string* lanes,
                                 Recorder& out) const {
  // The vector axis goes first or last among the outer loops; the others keep their order.
  std::vector<size_t> order;
  if (decided.vector_first) order.push_back(static_cast<size_t>(v_));
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (static_cast<int>(k) != v_) order.push_back(k);
  }
  if (!decided.vector_first) order.push_back(static_cast<size_t>(v_));
  for (size_t k : order) {
    const Factors& f = decided.spatial[k];
    const std::string& loop = spatial()[k].loop;
    if (spatial()[k].extent == 1) {
      outer->push_back(loop);
      continue;
    }
    std::vector<int64_t> factors{f.outer, f.middle, f.tile};
    if (static_cast<int>(k) == v_) factors.push_back(f.lanes);
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSplit, {loop}, factors));
    outer->push_back(loop + ".0");
    middle->push_back(loop + ".1");
  }
  std::vector<std::string> inner;
  for (size_t k = 0; k < reduce().size(); ++k) {
    const Axis& axis = reduce()[k];
    const int64_t factor = decided.reduce_inner[k];
    if (factor == 1) {
      reduce_order->push_back(axis.loop);
    } else if (factor == axis.extent) {
      inner.push_back(axis.loop);
    } else {
      HEDDLE_RETURN_IF_ERROR(
          out.Do(Primitive::kSplit, {axis.loop}, {axis.extent / factor, factor}));
      reduce_order->push_back(axis.loop + ".0");
      inner.push_back(axis.loop + ".1");
    }
  }
  reduce_order->insert(reduce_order->end(), inner.begin(), inner.end());
  for (size_t k = 0; k < spatial().size(); ++k) {
    if (spatial()[k].extent > 1 && static_cast<int>(k) != v_)
      unrolled->push_back(spatial()[k].loop + ".2");
  }
  unrolled->push_back(spatial()[v_].loop + ".2");
  *lanes = spatial()[v_].loop + ".3";
  std::vector<std::string> all = *outer;
  all.insert(all.end(), middle->begin(), middle->end());
  all.insert(all.end(), reduce_order->begin(), reduce_order->end());
  all.insert(all.end(), unrolled->begin(), unrolled->end());
  all.push_back(*lanes);
  return out.Do(Primitive::kReorder, all);
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
    HEDDLE_RETURN_IF_ERROR(VectorizeLoop(last, last_path.loop().extent, full_lanes_, out));
  }
  return absl::OkStatus();
}

absl::Status TiledRule::UnrollReduce(const Decided& decided, Recorder& out) const {
  int64_t budget = decided.unroll;
  for (size_t k = reduce().size(); k > 0; --k) {
    const int64_t factor = decided.reduce_inner[k - 1];
    if (factor == 1) continue;
    if (factor > budget) break;
    budget /= factor;
    const Axis& axis = reduce()[k - 1];
    HEDDLE_RETURN_IF_ERROR(
        out.Do(Primitive::kUnroll, {factor == axis.extent ? axis.loop : axis.loop + ".1"}));
  }
  return absl::OkStatus();
}

absl::Status TiledRule::Apply(const Knobs& knobs, const Point& point, Recorder& out) const {
  Decided decided = Decide(knobs, point);
  HEDDLE_RETURN_IF_ERROR(CheckTile(decided));
  const std::string& block = stage_.view.block;
  std::string epilogue = stage_.epilogue;
  if (epilogue.empty()) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kCacheWrite, {block, "local"}));
    epilogue = block + ".copy";
  } else {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kSetScope, {block, "local"}));
  }
  std::vector<std::string> outer, middle, reduce_order, unrolled;
  std::string lanes;
  HEDDLE_RETURN_IF_ERROR(SplitAll(decided, &outer, &middle, &reduce_order, &unrolled, &lanes, out));
  const std::string& tile_loop = middle.back();
  HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kReverseComputeAt, {epilogue, tile_loop}));
  HEDDLE_RETURN_IF_ERROR(PlaceProducers(decided, outer.back(), tile_loop, out));
  if (decided.parallel) {
    std::string fused = outer[0];
    for (size_t k = 1; k < outer.size(); ++k) absl::StrAppend(&fused, "*", outer[k]);
    if (outer.size() > 1) HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kFuse, outer));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kParallel, {fused}));
  }
  // The epilogue's loops repeat the register tile: rows, vectors, lanes.
  auto epilogue_loop = [&](size_t k) { return absl::StrCat(epilogue, "@", tile_loop, ".", k); };
  for (size_t k = 0; k < unrolled.size(); ++k) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {unrolled[k]}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kUnroll, {epilogue_loop(k)}));
  }
  if (decided.spatial[v_].lanes > 1) {
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kVectorize, {lanes}));
    HEDDLE_RETURN_IF_ERROR(out.Do(Primitive::kVectorize, {epilogue_loop(unrolled.size())}));
  }
  HEDDLE_RETURN_IF_ERROR(UnrollReduce(decided, out));
  return out.Do(Primitive::kDecomposeReduction, {block, reduce_order[0]});
}

}  // namespace

std::unique_ptr<Rule> MakeTiledReduction(const ir::Program& base, const ReductionStage& stage,
                                         int vector_axis, const ir::TargetInfo& target,
                                         Knobs& knobs) {
  return std::make_unique<TiledRule>(base, stage, vector_axis, target, knobs);
}

}  // namespace heddle::schedule
