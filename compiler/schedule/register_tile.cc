#include "compiler/schedule/register_tile.h"

#include <algorithm>
#include <cmath>

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxRows = 16;  // of one axis in the register tile
// Latency of a multiply-add: one accumulator cannot be updated sooner.
constexpr double kMinChainCycles = 4;
constexpr double kSmallImage = 8;  // times smaller than the weights
// Loads that hit do not always find a port when they want one.
constexpr double kLoadPressure = 0.15;
constexpr double kL2BytesPerCycle = 24;    // what one core streams from its second-level cache
constexpr double kL3BytesPerCycle = 6;     // and from beyond: about 16 GB/s
constexpr double kRowGuardPenalty = 1.02;  // rows of the last tile become a loop of their own
constexpr double kLaneGuardPenalty = 1.5;  // lanes behind a condition are masked

}  // namespace

// Register-tile sizes of an axis: divisors, and for axes with few of them some that leave a guarded
// tail.
std::vector<int64_t> TileSizes(int64_t extent) {
  std::vector<int64_t> sizes;
  for (int64_t d : Divisors(extent)) {
    if (d <= kMaxRows) sizes.push_back(d);
  }
  for (int64_t size : {2, 3, 4, 6, 8}) {
    if (size < extent && extent % size != 0 && extent >= 5) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

TileModel::TileModel(const ReductionStage& stage, int vector_axis, const ir::TargetInfo& target)
    : spatial_(stage.view.spatial), v_(vector_axis), target_(target) {
  full_lanes_ = LanesOf(target, stage.block->store.buffer->dtype);
  for (const ir::Expr& load : DistinctLoads(*stage.block)) {
    LoadShape shape;
    for (size_t k = 0; k < spatial_.size(); ++k) {
      shape.depends.push_back(StrideOf(*load->buffer, load->args, spatial_[k].iter) != 0);
    }
    shape.vector = shape.depends[v_];
    shape.elements = static_cast<double>(load->buffer->NumElements());
    streaming_ &= shape.vector;
    loads_.push_back(std::move(shape));
  }
  for (size_t k = 0; k < spatial_.size(); ++k) {
    if (static_cast<int>(k) != v_ && spatial_[k].extent > 1) row_axis_ = static_cast<int>(k);
  }
  if (!stage.view.reduce.empty()) run_ = stage.view.reduce.back().extent;
  // A small image beside large weights is padded for nothing.
  guarded_ =
      !stage.producers.empty() && !streaming_ && kSmallImage * ElementsOf(false) > ElementsOf(true);
  for (const Axis& axis : stage.view.reduce) reduce_steps_ *= axis.extent;
  work_ = reduce_steps_;
  for (const Axis& axis : spatial_) work_ *= axis.extent;
}

int64_t TileModel::Accumulators(const RegisterTile& tile) const {
  int64_t accumulators = 1;
  for (int64_t size : tile.sizes) accumulators *= size;
  return accumulators * ((tile.lanes + full_lanes_ - 1) / full_lanes_);
}

// Registers for the operands of one reduce step: the fewer of vectors and broadcast scalars stay
// for the whole step, the others come one at a time.
int64_t TileModel::OperandRegisters(const RegisterTile& tile) const {
  int64_t vectors = 0, scalars = 0;
  for (const LoadShape& load : loads_) {
    int64_t count = 1;
    for (size_t k = 0; k < tile.sizes.size(); ++k) {
      if (load.depends[k]) count *= tile.sizes[k];
    }
    (load.vector ? vectors : scalars) += count;
  }
  return std::min(vectors, scalars) + 1;
}

// Cycles for one reduce step of the tile, per element of it.
double TileModel::CyclesPerElement(const RegisterTile& tile) const {
  double accumulators = static_cast<double>(Accumulators(tile));
  double loads = 0, streamed = 0, scalars = 0, passes = 1, operand = 0;
  for (const LoadShape& load : loads_) {
    double count = 1;
    bool reused = false;
    for (size_t k = 0; k < tile.sizes.size(); ++k) {
      if (load.depends[k]) count *= static_cast<double>(tile.sizes[k]);
      reused |= !load.depends[k] && spatial_[k].extent > 1;
    }
    loads += count;
    if (!load.vector) scalars += count * 4;
    // A vector operand that other tiles use again streams from the second-level cache.
    if (load.vector && reused) {
      streamed += count * static_cast<double>(tile.lanes * 4);
      operand += load.elements * 4;
    }
  }
  double panel = static_cast<double>(reduce_steps_) * streamed;
  double cycles = std::max({accumulators / 2, loads / 2, kMinChainCycles});
  cycles += kLoadPressure * loads / 2;
  const auto l1 = static_cast<double>(target_.l1_bytes);
  const double from_l2 =
      (panel > l1 / 2 ? streamed : 0) + (4 * ElementsOf(false) > l1 ? scalars : 0);
  cycles = std::max(cycles, from_l2 / kL2BytesPerCycle);
  // An operand larger than the second-level cache comes from beyond it in the first of the passes
  // that the rows make over a panel.
  if (operand > static_cast<double>(target_.l2_bytes)) {
    for (size_t k = 0; k < tile.sizes.size(); ++k) {
      if (static_cast<int>(k) == v_) continue;
      passes *=
          std::ceil(static_cast<double>(spatial_[k].extent) / static_cast<double>(tile.sizes[k]));
    }
    const double first = std::max(cycles, streamed / kL3BytesPerCycle);
    cycles += (first - cycles) / passes;
  }
  double elements = static_cast<double>(tile.lanes);
  double waste = 1;
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    elements *= static_cast<double>(tile.sizes[k]);
    int64_t step = tile.sizes[k] * (static_cast<int>(k) == v_ ? tile.lanes : 1);
    int64_t covered = (spatial_[k].extent + step - 1) / step * step;
    if (covered > spatial_[k].extent) {
      const double tiles = static_cast<double>(covered / step);
      waste *= static_cast<int>(k) == v_ ? kLaneGuardPenalty * static_cast<double>(covered) /
                                               static_cast<double>(spatial_[k].extent)
                                         : kRowGuardPenalty * (tiles + 0.25) / tiles;
    }
  }
  return cycles / elements * waste;
}

RegisterTile TileModel::BestTile() const {
  const size_t n = spatial_.size();
  RegisterTile best_tile{std::vector<int64_t>(n, 1), 1};
  // Rows are taken from the two innermost axes that some load is invariant along; any axis does for
  // reductions without reuse.
  std::vector<size_t> rows;
  for (size_t k = n; k > 0 && rows.size() < 2; --k) {
    if (static_cast<int>(k - 1) != v_ && spatial_[k - 1].extent > 1) rows.push_back(k - 1);
  }
  const int64_t vector_extent = spatial_[v_].extent;
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
    // Padding that is asked for at every load is decided where a row begins and ends if the tile
    // does not reach along the row.
    if (guarded_ && rows.size() > 1 && i == 0) return std::vector<int64_t>{1};
    std::vector<int64_t> descending = TileSizes(spatial_[rows[i]].extent);
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
          RegisterTile tile{std::vector<int64_t>(n, 1), lanes};
          tile.sizes[v_] = vectors;
          if (!rows.empty()) tile.sizes[rows[0]] = a;
          if (rows.size() > 1) tile.sizes[rows[1]] = b;
          int64_t registers = Accumulators(tile);
          if (registers + OperandRegisters(tile) + spare > target_.vector_registers) continue;
          double cost = CyclesPerElement(tile);
          if (cost > best * 1.001 || (cost > best * 0.999 && registers <= best_registers)) continue;
          best = std::min(best, cost);
          best_registers = registers;
          best_tile = tile;
        }
      }
    }
  }
  return best_tile;
}

}  // namespace heddle::schedule
