#include "cost_model/features/estimate.h"

#include <algorithm>
#include <cmath>

#include "cost_model/features/statement_metrics.h"

namespace heddle::cost_model {
namespace {

// Of the CPUs of today, roughly: only the order of estimates matters.
constexpr double kPorts = 2;      // for arithmetic; as many for loads and stores
constexpr double kLatency = 4;    // of a multiply-add
constexpr double kDivision = 16;  // operations that one takes the time of
constexpr double kSpecial = 40;   // likewise, of exp and the like
constexpr double kIssue = 6;      // instructions a cycle
constexpr double kIssueLong = 2;  // of a tile of more than kKept instructions
constexpr double kKept = 4096;
constexpr double kLoop = 2;              // instructions of a loop's end
constexpr double kWorking = 2;           // registers beside the accumulators
constexpr double kL1BytesPerCycle = 32;  // filled from L2
constexpr double kL2BytesPerCycle = 8;   // filled from memory

// Loads or stores of one pass of the tile.
double Moves(const Statement& st, const Access& a, const machine::TargetInfo& target) {
  const size_t level = RegisterLevel(st);
  for (size_t k = level; k < st.loops.size(); ++k) {
    if (st.loops[k].kind == ir::LoopKind::kVectorized && std::abs(a.stride[k]) > 1) {
      return a.elements[level];
    }
  }
  return Registers(st, a, target);
}

}  // namespace

double CycleEstimate::Longest() const { return std::max({arithmetic, moves, issue, fill}); }

CycleEstimate EstimateCycles(const Statement& st, const machine::TargetInfo& target) {
  const size_t level = RegisterLevel(st);
  const double passes = st.Trips(0, level), lanes = VectorLanes(st);
  const double vectors = st.Trips(level, st.loops.size()) *
                         std::ceil(lanes * StoreSize(st) / target.vector_bytes) / lanes;
  const double operations = std::max(st.ops.float_add, st.ops.float_mul) + st.ops.select +
                            st.ops.integer + st.ops.cast + kDivision * st.ops.float_div +
                            kSpecial * st.ops.special;
  const double accumulators = Registers(st, st.accesses[0], target);
  double moves = Moves(st, st.accesses[0], target), chain = 0;
  if (st.reduction) {
    double still = 1;  // passes between a load of the accumulators and their store
    for (size_t k = level; k > 0 && st.accesses[0].stride[k - 1] == 0; --k) {
      still *= static_cast<double>(st.loops[k - 1].extent);
    }
    const double steps = vectors / accumulators;
    const double spilled = std::max(0.0, accumulators + kWorking - target.vector_registers);
    moves = 2 * moves / still + 2 * spilled * steps;
    chain = kLatency * steps;
  }
  for (size_t i = 1; i < st.accesses.size(); ++i) moves += Moves(st, st.accesses[i], target);
  const double instructions = vectors * operations + moves + kLoop;
  CycleEstimate cycles;
  cycles.arithmetic = passes * std::max(vectors * operations / kPorts, chain);
  cycles.moves = passes * moves / kPorts;
  cycles.issue = passes * instructions / (instructions > kKept ? kIssueLong : kIssue);
  cycles.fill = std::max(st.Traffic(static_cast<double>(target.l1_bytes)) / kL1BytesPerCycle,
                         st.Traffic(static_cast<double>(target.l2_bytes)) / kL2BytesPerCycle);
  return cycles;
}

double BusyCores(const Statement& st, const machine::TargetInfo& target) {
  const double parallel = ParallelExtent(st), threads = target.target.threads;
  return std::max(1.0, parallel / std::ceil(parallel / threads));
}

}  // namespace heddle::cost_model
