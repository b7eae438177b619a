#include "compiler/schedule/register_tile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compiler/ir/cache_lines.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMaxRows = 16;  // of one axis in the register tile
// Latency of a multiply-add: one accumulator cannot be updated sooner.
constexpr double kMinChainCycles = 4;
constexpr double kSmallImage = 8;  // times smaller than the weights
// What an instruction costs beside what bounds the tile: a core seldom has its issue slots for
// itself, as it shares them with another thread. Measured where it does (C1: 28 multiply-adds that
// read their scalars themselves were 1.16 times faster than 14 pairs, each behind a broadcast).
constexpr double kIssueCycles = 0.16;
// What a byte costs that is not in the first-level cache, beside what bounds the tile: scalars come
// from many places at a time, which the hardware's own prefetching does not follow; vectors of one
// panel do not.
constexpr double kScalarByteCycles = 0.03;
constexpr double kStreamedByteCycles = 0.005;
// What a step costs for each page its scalars lie in: the hardware fetches ahead within few.
constexpr double kPageCycles = 0.08;
// A line that is written without its neighbour, which the hardware fetches with it.
constexpr double kLoneLineCycles = 5;
constexpr double kLoopInstructions = 3;  // that count and branch
// A register too many is put away and taken back in each step.
constexpr int64_t kMostSpilled = 1;
constexpr int64_t kSpillInstructions = 4;
// Each row of a tile more makes guarded loads of a border's corner more.
constexpr double kGuardedRowPenalty = 1.015;
constexpr int64_t kMaxPanels = 4;          // each is a stream of its own
constexpr double kRowGuardPenalty = 1.02;  // rows of the last tile become a loop of their own
// A first-level cache keeps a line in one of the ways of its set; addresses this far apart share a
// set (the size of a page: such caches are indexed by the address within it). Rows of pixels that
// share a set and are more than its ways come from the second level at every visit, beside the
// weights (14 of 12: 20 % slower where the weights come from there too).
constexpr int64_t kSetPeriod = 4096;
constexpr int64_t kStepsPerVisit = 4;  // of the reduction: the unrolled ones
// Lanes behind a condition are masked: in every load, but not in those of an operand that is packed
// ahead of time, with zeros there.
constexpr double kLaneGuardPenalty = 1.5;
constexpr double kPackedLaneGuardPenalty = 1.02;

}  // namespace

std::vector<int64_t> TileSizes(int64_t extent) {
  std::vector<int64_t> sizes;
  for (int64_t d : Divisors(extent)) {
    if (d <= kMaxRows) sizes.push_back(d);
  }
  // Those that cut the extent into as many tiles, the last of which is all but full.
  for (int64_t size = 2; size <= std::min(kMaxRows, extent - 1) && extent >= 5; ++size) {
    const int64_t tiles = (extent + size - 1) / size;
    if ((extent + tiles - 1) / tiles == size) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

TileModel::TileModel(const ReductionStage& stage, int vector_axis, const ir::TargetInfo& target)
    : spatial_(stage.view.spatial), v_(vector_axis), target_(target) {
  full_lanes_ = LanesOf(target, stage.block->store.buffer->dtype);
  for (const ir::Expr& load : DistinctLoads(*stage.block)) {
    LoadShape shape;
    for (size_t k = 0; k < spatial_.size(); ++k) {
      shape.strides.push_back(StrideOf(*load->buffer, load->args, spatial_[k].iter));
      shape.depends.push_back(shape.strides[k] != 0);
    }
    // Groups of several vectors' channels share what they read of the image. One vector's worth
    // counts as loaded with each vector: tiles then stay within a group, which was faster (the 13
    // such convolutions of resnext50: 8.3 ms against 9.0, though the strided two gain by the other
    // way).
    if (shape.strides[v_] == kIrregular) shape.shared = SharedBy(load->args, spatial_[v_].iter);
    shape.vector = shape.depends[v_] && shape.shared <= full_lanes_;
    shape.permuted = shape.shared > 1 && shape.shared < full_lanes_;
    shape.constant = std::find(stage.constants.begin(), stage.constants.end(),
                               load->buffer->name) != stage.constants.end();
    shape.elements = static_cast<double>(load->buffer->NumElements());
    shape.element_bytes = static_cast<int64_t>(ir::SizeOf(load->buffer->dtype));
    shape.used = 1;
    for (const auto* axes : {&stage.view.spatial, &stage.view.reduce}) {
      for (const Axis& axis : *axes) {
        if (StrideOf(*load->buffer, load->args, axis.iter) != 0)
          shape.used *= static_cast<double>(axis.extent);
      }
    }
    streaming_ &= shape.vector;
    loads_.push_back(std::move(shape));
  }
  for (size_t k = 0; k < spatial_.size(); ++k) {
    if (static_cast<int>(k) != v_ && spatial_[k].extent > 1) row_axis_ = static_cast<int>(k);
  }
  for (size_t k = 0; k < spatial_.size(); ++k) {
    if (TellsPanels(k)) panel_axis_ = static_cast<int>(k);
  }
  if (!stage.view.reduce.empty()) run_ = stage.view.reduce.back().extent;
  for (const Axis& axis : spatial_) {
    const int64_t one = TouchedBy(*stage.block, stage.view.reduce, axis, 1);
    windows_.push_back({one, TouchedBy(*stage.block, stage.view.reduce, axis, 2) - one});
  }
  // A small image is padded for nothing: beside large weights, or while its padded copy stays
  // close.
  guarded_ = !stage.producers.empty() && !streaming_ &&
             kSmallImage * ElementsOf(false) > ElementsOf(true) &&
             4 * ElementsOf(false) > static_cast<double>(target.l2_bytes) / 4;
  for (const Axis& axis : stage.view.reduce) reduce_steps_ *= axis.extent;
  work_ = reduce_steps_;
  for (const Axis& axis : spatial_) work_ *= axis.extent;
}

int64_t TileModel::Accumulators(const RegisterTile& tile) const {
  int64_t accumulators = 1;
  for (int64_t size : tile.sizes) accumulators *= size;
  return accumulators * ((tile.lanes + full_lanes_ - 1) / full_lanes_);
}

int64_t TileModel::SharedScalars(int64_t shared, const RegisterTile& tile) const {
  const int64_t width = tile.sizes[v_] * tile.lanes;
  if (shared % tile.lanes == 0) return (width + shared - 1) / shared;
  // Where tiles do not begin with a group, no vector is known to lie within one.
  const bool known = width % shared == 0;
  int64_t count = 0, last = -1;
  for (int64_t begin = 0; begin < width; begin += tile.lanes) {
    const int64_t group = begin / shared;
    if (!known || (begin + tile.lanes - 1) / shared != group) {
      count += tile.lanes;
    } else if (group != last) {
      ++count;
      last = group;
    }
  }
  return count;
}

int64_t TileModel::CountOf(const LoadShape& load, const RegisterTile& tile) const {
  int64_t count = 1;
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    if (!load.depends[k]) continue;
    const bool groups = static_cast<int>(k) == v_ && !load.vector;
    count *= groups ? SharedScalars(load.shared, tile) : tile.sizes[k];
  }
  return count;
}

// Registers for the operands of one reduce step: the fewer of vectors and broadcast scalars stay
// for the whole step, the others come one at a time. What is permuted stays for several steps.
int64_t TileModel::OperandRegisters(const RegisterTile& tile) const {
  int64_t vectors = 0, scalars = 0, permuted = 0;
  for (const LoadShape& load : loads_) {
    const bool stays = load.permuted && tile.lanes > load.shared;
    (stays ? permuted : load.vector ? vectors : scalars) += CountOf(load, tile);
  }
  return permuted + std::min(vectors, scalars) + 1;
}

int64_t TileModel::Spilled(const RegisterTile& tile) const {
  // Without a broadcast operand of its own, an instruction needs one register more.
  const int64_t spare = target_.vector_bytes >= 64 ? 0 : 1;
  return std::max<int64_t>(
      Accumulators(tile) + OperandRegisters(tile) + spare - target_.vector_registers, 0);
}

bool TileModel::Batch(size_t axis) const {
  return !streaming_ && static_cast<int>(axis) != v_ && !loads_.empty() &&
         std::all_of(loads_.begin(), loads_.end(),
                     [&](const LoadShape& load) { return load.depends[axis]; });
}

bool TileModel::TellsPanels(size_t axis) const {
  if (streaming_ || static_cast<int>(axis) == v_ || spatial_[axis].extent < 2) return false;
  return std::all_of(loads_.begin(), loads_.end(), [&](const LoadShape& load) {
    return load.vector ? load.constant && load.depends[axis] : !load.depends[axis];
  });
}

double TileModel::scalars_used() const {
  double elements = 0;
  for (const LoadShape& load : loads_) {
    if (!load.vector) elements += std::min(load.elements, load.used);
  }
  return elements;
}

double TileModel::ScalarsTouched(const RegisterTile& tile) const {
  auto steps = static_cast<double>(reduce_steps_);  // at one place of its window
  double places = 1;
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    const bool moves = std::any_of(loads_.begin(), loads_.end(), [&](const LoadShape& load) {
      return !load.vector && load.depends[k];
    });
    if (static_cast<int>(k) == v_ || !moves) continue;
    steps /= static_cast<double>(windows_[k].size);
    places *= static_cast<double>(windows_[k].size + (tile.sizes[k] - 1) * windows_[k].step);
  }
  return steps * places;
}

std::vector<int64_t> TileModel::AddressesOf(const LoadShape& load, const RegisterTile& tile) const {
  std::vector<int64_t> addresses{0};
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    if (!load.depends[k] || static_cast<int>(k) == v_ || load.strides[k] == kIrregular) continue;
    std::vector<int64_t> moved;
    for (int64_t i = 0; i < tile.sizes[k]; ++i) {
      for (int64_t address : addresses)
        moved.push_back(address + load.element_bytes * i * load.strides[k]);
    }
    addresses = std::move(moved);
  }
  return addresses;
}

int64_t TileModel::LinesInOneSet(const LoadShape& load, const RegisterTile& tile) const {
  std::set<int64_t> lines;
  for (int64_t address : AddressesOf(load, tile)) lines.insert(address / ir::kLineBytes);
  std::map<int64_t, int64_t> sets;
  int64_t most = 0;
  for (int64_t line : lines) most = std::max(most, ++sets[line % (kSetPeriod / ir::kLineBytes)]);
  return most;
}

int64_t TileModel::Pages(const LoadShape& load, const RegisterTile& tile) const {
  std::set<int64_t> pages;
  for (int64_t address : AddressesOf(load, tile)) pages.insert(address / kSetPeriod);
  return static_cast<int64_t>(pages.size());
}

double TileModel::Instructions(const RegisterTile& tile) const {
  const int64_t accumulators = Accumulators(tile);
  int64_t instructions = accumulators;
  bool taken = false;  // an instruction has one operand in memory
  for (const LoadShape& load : loads_) {
    const int64_t count = CountOf(load, tile);
    // An operand that is used once comes with its multiply-add: a scalar does so to 64 bytes only,
    // and narrower vectors are not worth losing their reuse.
    if (count >= accumulators && target_.vector_bytes >= 64 && !taken) {
      taken = true;
    } else {
      instructions += count;
    }
  }
  instructions += kSpillInstructions * Spilled(tile);
  const auto unrolled = static_cast<double>(LargestDivisorUpTo(run_, kStepsPerVisit));
  return static_cast<double>(instructions) + kLoopInstructions / unrolled;
}

// Cycles for one reduce step of the tile. `passes`: of the rows over a panel of the vector operand.
double TileModel::StepCycles(const RegisterTile& tile, double passes) const {
  const auto l1 = static_cast<double>(target_.l1_bytes);
  double accumulators = static_cast<double>(Accumulators(tile));
  double loads = 0, streamed = 0, scalars = 0, operand = 0, again = 0;
  int64_t pages = 0;
  bool fetched_ahead = true;
  for (const LoadShape& load : loads_) {
    const auto count = static_cast<double>(CountOf(load, tile));
    bool reused = false;
    for (size_t k = 0; k < tile.sizes.size(); ++k) {
      reused |= !load.depends[k] && spatial_[k].extent > 1;
    }
    loads += count;
    if (!load.vector) {
      scalars += count * 4;
      pages += Pages(load, tile);
      if (LinesInOneSet(load, tile) > target_.l1_bytes / kSetPeriod)
        again += count * static_cast<double>(ir::kLineBytes) / kStepsPerVisit;
    }
    // A vector operand that other tiles use again streams from the second-level cache.
    if (load.vector && reused) {
      streamed += count * static_cast<double>(tile.lanes * 4);
      operand += load.elements * 4;
      fetched_ahead &= load.constant;
    }
  }
  // More lines than that at a time are not asked for ahead (pass/prefetch_ahead.h).
  const auto unrolled = static_cast<double>(LargestDivisorUpTo(run_, kStepsPerVisit));
  fetched_ahead &=
      streamed * unrolled / passes <= static_cast<double>(ir::kMaxLinesAtOnce * ir::kLineBytes);
  const double panel = static_cast<double>(reduce_steps_) * streamed;
  const double vectors_of_l2 = panel > l1 / 2 ? streamed : 0;
  double scalars_of_l2 = 4 * ElementsOf(false) > l1 ? scalars : 0;
  // What a tile reads of the image comes once if that is little beside the first-level cache, which
  // it shares with the vectors that go by; from half of it on, more and more of it comes again.
  const double touched = 4 * ScalarsTouched(tile),
               once = std::min(touched / static_cast<double>(reduce_steps_), scalars_of_l2);
  scalars_of_l2 = once + (scalars_of_l2 - once) * std::clamp(2 * touched / l1 - 1, 0.0, 1.0);
  double cycles = std::max({accumulators / 2, loads / 2, kMinChainCycles,
                            (vectors_of_l2 + scalars_of_l2) / kL2BytesPerCycle});
  cycles += kIssueCycles * Instructions(tile);
  cycles += kPageCycles * static_cast<double>(pages);
  if (tile.sizes[v_] == 1 && spatial_[v_].extent > tile.lanes)
    cycles += kLoneLineCycles * accumulators / static_cast<double>(reduce_steps_);
  cycles += kStreamedByteCycles * vectors_of_l2 + kScalarByteCycles * scalars_of_l2;
  cycles += again / kL2BytesPerCycle;
  // An operand larger than the second-level cache comes from beyond it once for all passes: while
  // the one before is used (pass/prefetch_ahead.h), or in the first of its own.
  if (operand > static_cast<double>(target_.l2_bytes)) {
    const double beyond = streamed / kL3BytesPerCycle;
    if (fetched_ahead) return std::max(cycles, beyond / passes);
    cycles += (std::max(cycles, beyond) - cycles) / passes;
  }
  return cycles;
}

// Cycles for one reduce step per element: whole tiles, and those at the end of an axis.
double TileModel::CyclesPerElement(const RegisterTile& tile) const {
  struct Tiles {
    RegisterTile tile;
    double count;
  };
  std::vector<Tiles> all{{tile, 1}};
  double passes = 1, waste = 1, elements = static_cast<double>(tile.lanes);
  for (size_t k = 0; k < tile.sizes.size(); ++k) {
    const int64_t extent = spatial_[k].extent, size = tile.sizes[k];
    if (static_cast<int>(k) == v_) {
      const int64_t step = size * tile.lanes, covered = (extent + step - 1) / step * step;
      elements *= static_cast<double>(size);
      if (covered > extent) {
        const bool packed = std::all_of(loads_.begin(), loads_.end(), [](const LoadShape& load) {
          return !load.vector || load.constant;
        });
        waste *= (packed ? kPackedLaneGuardPenalty : kLaneGuardPenalty) *
                 static_cast<double>(covered) / static_cast<double>(extent);
      }
      continue;
    }
    elements *= static_cast<double>(extent);
    if (!Batch(k) && static_cast<int>(k) != panel_axis_)
      passes *= static_cast<double>((extent + size - 1) / size);
    std::vector<Tiles> cut;
    for (const Tiles& tiles : all) {
      cut.push_back({tiles.tile, tiles.count * static_cast<double>(extent / size)});
      if (extent % size == 0) continue;
      cut.push_back(tiles);
      cut.back().tile.sizes[k] = extent % size;
    }
    if (extent % size != 0) waste *= kRowGuardPenalty;
    if (guarded_ && !StripsOfPadding() && static_cast<int>(k) != row_axis_)
      waste *= std::pow(kGuardedRowPenalty, size - 1);
    all = std::move(cut);
  }
  double cycles = 0;
  for (const Tiles& tiles : all) cycles += tiles.count * StepCycles(tiles.tile, passes);
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
  // Vectors of several panels are as good as several of one.
  std::vector<int64_t> panels{1};
  if (panel_axis_ >= 0 &&
      std::count(rows.begin(), rows.end(), static_cast<size_t>(panel_axis_)) == 0) {
    panels = Divisors(spatial_[panel_axis_].extent);
    std::erase_if(panels, [](int64_t size) { return size > kMaxPanels; });
  }
  const int64_t vector_extent = spatial_[v_].extent;
  std::vector<int64_t> lane_choices{PowerOfTwoDivisor(vector_extent, full_lanes_)};
  if (lane_choices[0] < full_lanes_ && vector_extent > full_lanes_)
    lane_choices.push_back(full_lanes_);
  // Widths like 7, 14 or 28 of the last dimension of an image: a register not quite full is better
  // than a narrow one.
  lane_choices.push_back(LargestDivisorUpTo(vector_extent, full_lanes_));
  // And one that does not reach across groups.
  for (const LoadShape& load : loads_) {
    const int64_t lanes = PowerOfTwoDivisor(load.shared, full_lanes_);
    if (!load.vector && load.shared > 1 && 4 * lanes >= full_lanes_) lane_choices.push_back(lanes);
  }
  // Largest first: of equally good tiles the one that is long in the innermost axis walks memory
  // best.
  auto sizes = [&](size_t i) {
    if (i >= rows.size()) return std::vector<int64_t>{1};
    std::vector<int64_t> descending = TileSizes(spatial_[rows[i]].extent);
    std::sort(descending.rbegin(), descending.rend());
    return descending;
  };
  double best = INFINITY;
  int64_t best_registers = 0;
  for (int64_t lanes : lane_choices) {
    int64_t groups = (vector_extent + lanes - 1) / lanes;
    for (int64_t vectors : {1, 2, 3, 4, 5, 6, 8}) {
      const int64_t even = LargestDivisorUpTo(groups, vectors);  // what the rule makes of it
      for (int64_t panel : panels) {
        for (int64_t a : sizes(0)) {
          for (int64_t b : sizes(1)) {
            RegisterTile tile{std::vector<int64_t>(n, 1), lanes};
            tile.sizes[v_] = even;
            if (panels.size() > 1) tile.sizes[panel_axis_] = panel;
            if (!rows.empty()) tile.sizes[rows[0]] = a;
            if (rows.size() > 1) tile.sizes[rows[1]] = b;
            int64_t registers = Accumulators(tile);
            if (Spilled(tile) > kMostSpilled) continue;
            double cost = CyclesPerElement(tile);
            if (cost > best * 1.001 || (cost > best * 0.999 && registers <= best_registers))
              continue;
            best = std::min(best, cost);
            best_registers = registers;
            best_tile = tile;
            best_tile.sizes[v_] = vectors;
          }
        }
      }
    }
  }
  return best_tile;
}

}  // namespace heddle::schedule
