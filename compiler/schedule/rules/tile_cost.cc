// Cycles of a register tile from what it loads, and the tile that costs least.
#include <algorithm>
#include <cmath>

#include "compiler/schedule/rules/register_tile.h"

namespace heddle::schedule {

namespace {

constexpr int64_t kMostSpilled = 1;
constexpr int64_t kMinSpilledSteps = 128;  // in shorter reductions it did not pay
constexpr int64_t kMaxPanels = 4;          // each panel is a stream of its own
constexpr int64_t kStepsPerVisit = 4;      // reduce steps that are unrolled

}  // namespace

double TileModel::Instructions(const RegisterTile& tile) const {
  const int64_t accumulators = Accumulators(tile);
  int64_t instructions = accumulators;
  bool taken = false;  // an instruction has at most one operand in memory
  for (const LoadShape& load : loads_) {
    const int64_t count = CountOf(load, tile);
    // An operand that is used once can be read from memory by its multiply-add: a scalar, if
    // instructions broadcast one. If they do not, reading vectors this way is not worth losing
    // their reuse.
    if (count >= accumulators && target_.BroadcastsOperand() && !taken) {
      taken = true;
    } else {
      instructions += count;
    }
  }
  instructions += target_.code.tile.spill_instructions * Spilled(tile);
  const auto unrolled = static_cast<double>(LargestDivisorUpTo(run_, kStepsPerVisit));
  return static_cast<double>(instructions) + target_.code.tile.loop_instructions / unrolled;
}

// Cycles of one reduce step of the tile. `passes`: how often the rows go over a panel of the
// vector operand.
double TileModel::StepCycles(const RegisterTile& tile, double passes) const {
  const machine::CoreSpeed& core = target_.core;
  const machine::TileFit& fit = target_.code.tile;
  const auto l1 = static_cast<double>(target_.l1_bytes),
             line = static_cast<double>(target_.line_bytes);
  double accumulators = static_cast<double>(Accumulators(tile));
  double loads = 0, streamed = 0, scalars = 0, operand = 0, again = 0;
  int64_t pages = 0;
  bool fetched_ahead = true;
  for (const LoadShape& load : loads_) {
    const auto count = static_cast<double>(CountOf(load, tile)),
               bytes = static_cast<double>(load.element_bytes);
    bool reused = false;
    for (size_t k = 0; k < tile.sizes.size(); ++k) {
      reused |= !load.depends[k] && spatial_[k].extent > 1;
    }
    loads += count;
    if (!load.vector) {
      scalars += count * bytes;
      pages += Pages(load, tile);
      // Rows of pixels whose lines share a set and exceed its ways come from the second-level
      // cache at every visit (14 lines in 12 ways: 20 % slower where the weights come from there
      // too).
      if (LinesInOneSet(load, tile) > target_.L1Ways()) again += count * line / kStepsPerVisit;
    }
    // A vector operand that other tiles reuse streams from the second-level cache.
    if (load.vector && reused) {
      streamed += count * static_cast<double>(tile.lanes) * bytes;
      operand += load.elements * bytes;
      fetched_ahead &= load.constant;
    }
  }
  // prefetch_ahead requests at most lines_at_once lines at a time.
  const auto unrolled = static_cast<double>(LargestDivisorUpTo(run_, kStepsPerVisit));
  fetched_ahead &=
      streamed * unrolled / passes <= static_cast<double>(target_.code.fetch.lines_at_once) * line;
  const double panel = static_cast<double>(reduce_steps_) * streamed;
  const double vectors_of_l2 = panel > l1 / 2 ? streamed : 0;
  double scalars_of_l2 = scalar_operand_bytes() > l1 ? scalars : 0;
  // The part of the image that a tile reads is loaded once if it fills at most half of the
  // first-level cache, which it shares with streamed vectors; of a larger part, more and more is
  // loaded again.
  const double touched = static_cast<double>(scalar_element_bytes()) * ScalarsTouched(tile),
               once = std::min(touched / static_cast<double>(reduce_steps_), scalars_of_l2);
  scalars_of_l2 = once + (scalars_of_l2 - once) * std::clamp(2 * touched / l1 - 1, 0.0, 1.0);
  double cycles = std::max({accumulators / core.operations_per_cycle, loads / core.loads_per_cycle,
                            core.multiply_add_cycles,
                            (vectors_of_l2 + scalars_of_l2) / core.l2_bytes_per_cycle});
  cycles += fit.instruction_cycles * Instructions(tile);
  cycles += fit.page_cycles * static_cast<double>(pages);
  if (tile.sizes[v_] == 1 && spatial_[v_].extent > tile.lanes)
    cycles += fit.lone_line_cycles * accumulators / static_cast<double>(reduce_steps_);
  cycles += fit.streamed_byte_cycles * vectors_of_l2 + fit.scalar_byte_cycles * scalars_of_l2;
  cycles += again / core.l2_bytes_per_cycle;
  // An operand larger than the second-level cache comes from beyond it once for all passes: a
  // panel is fetched while the one before is used (pass/prefetch_ahead.h), or in its own first
  // pass.
  if (operand > static_cast<double>(target_.l2_bytes)) {
    const double beyond =
        streamed / core.l3_bytes_per_cycle * (fetched_ahead ? 1 : core.unasked_factor);
    if (fetched_ahead) return std::max(cycles, beyond / passes);
    cycles += (std::max(cycles, beyond) - cycles) / passes;
  }
  return cycles;
}

// Cycles of one reduce step for each element of the result, over whole tiles and those at the end
// of an axis.
double TileModel::CyclesPerElement(const RegisterTile& tile) const {
  struct Tiles {
    RegisterTile tile;
    double count;
  };
  const machine::TileFit& fit = target_.code.tile;
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
        waste *= (packed ? fit.packed_lane_guard : fit.lane_guard) * static_cast<double>(covered) /
                 static_cast<double>(extent);
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
    if (extent % size != 0) waste *= fit.row_guard;
    if (guarded_ && !StripsOfPadding() && static_cast<int>(k) != row_axis_)
      waste *= std::pow(fit.guarded_row, size - 1);
    all = std::move(cut);
  }
  double cycles = 0;
  for (const Tiles& tiles : all) cycles += tiles.count * StepCycles(tiles.tile, passes);
  return cycles / elements * waste;
}

RegisterTile TileModel::BestTile() const {
  const size_t n = spatial_.size();
  RegisterTile best_tile{std::vector<int64_t>(n, 1), 1};
  // Rows come from the two innermost axes other than the vector axis.
  std::vector<size_t> rows;
  for (size_t k = n; k > 0 && rows.size() < 2; --k) {
    if (static_cast<int>(k - 1) != v_ && spatial_[k - 1].extent > 1) rows.push_back(k - 1);
  }
  // A tile may take its vectors from several panels instead of one.
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
  // For images 7, 14 or 28 wide: a register that is not quite full is better than a narrow one.
  lane_choices.push_back(LargestDivisorUpTo(vector_extent, full_lanes_));
  // A width that does not reach across groups.
  for (const LoadShape& load : loads_) {
    const int64_t lanes = PowerOfTwoDivisor(load.shared, full_lanes_);
    if (!load.vector && load.shared > 1 && 4 * lanes >= full_lanes_) lane_choices.push_back(lanes);
  }
  // Largest first: of equally good tiles, the one that is long in the innermost axis walks memory
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
      const int64_t even = LargestDivisorUpTo(groups, vectors);  // as in TileDecisions::Decide
      for (int64_t panel : panels) {
        for (int64_t a : sizes(0)) {
          for (int64_t b : sizes(1)) {
            RegisterTile tile{std::vector<int64_t>(n, 1), lanes};
            tile.sizes[v_] = even;
            if (panels.size() > 1) tile.sizes[panel_axis_] = panel;
            if (!rows.empty()) tile.sizes[rows[0]] = a;
            if (rows.size() > 1) tile.sizes[rows[1]] = b;
            int64_t registers = Accumulators(tile);
            if (Spilled(tile) > (reduce_steps_ < kMinSpilledSteps ? 0 : kMostSpilled)) continue;
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
