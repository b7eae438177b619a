#include "cost_model/features/estimate.h"

#include <algorithm>
#include <cmath>

#include "cost_model/features/statement_metrics.h"

namespace heddle::cost_model {
namespace {

// Whether the lanes of a vector are apart in memory.
bool Gathered(const Statement& st, const Access& a) {
  for (size_t k = RegisterLevel(st); k < st.loops.size(); ++k) {
    if (st.loops[k].kind == ir::LoopKind::kVectorized && std::abs(a.stride[k]) > 1) return true;
  }
  return false;
}

// Loads or stores of one access in one pass of the register tile.
double Moves(const Statement& st, const Access& a, const machine::TargetInfo& target) {
  return Gathered(st, a) ? a.elements[RegisterLevel(st)] : Registers(st, a, target);
}

}  // namespace

double CycleEstimate::Longest() const { return std::max({arithmetic, moves, issue, fill}); }

CycleEstimate EstimateCycles(const Statement& st, const machine::TargetInfo& target) {
  const machine::CoreSpeed& core = target.core;
  const machine::PriorFit& code = target.code.prior;
  const size_t level = RegisterLevel(st);
  const double passes = st.Trips(0, level), lanes = VectorLanes(st);
  const double vectors = st.Trips(level, st.loops.size()) *
                         std::ceil(lanes * StoreSize(st) / target.vector_bytes) / lanes;
  const double operations =
      std::max(st.ops.float_add, st.ops.float_mul) + st.ops.select + st.ops.integer + st.ops.cast +
      core.division_operations * st.ops.float_div + code.special_operations * st.ops.special;
  const double accumulators = Registers(st, st.accesses[0], target);
  double stores = Moves(st, st.accesses[0], target), loads = 0, gathered = 0, chain = 0;
  if (st.reduction) {
    double still = 1;  // passes between a load of the accumulators and their store
    for (size_t k = level; k > 0 && st.accesses[0].stride[k - 1] == 0; --k) {
      still *= static_cast<double>(st.loops[k - 1].extent);
    }
    const double steps = vectors / accumulators;
    const double spilled =
        std::max(0.0, accumulators + code.working_registers - target.vector_registers);
    stores = stores / still + spilled * steps;
    loads = stores;
    chain = core.multiply_add_cycles * steps;
  }
  for (size_t i = 1; i < st.accesses.size(); ++i) {
    (Gathered(st, st.accesses[i]) ? gathered : loads) += Moves(st, st.accesses[i], target);
  }
  const double instructions =
      vectors * operations + stores + loads + gathered + code.loop_instructions;
  CycleEstimate cycles;
  cycles.arithmetic = passes * std::max(vectors * operations / core.operations_per_cycle, chain);
  cycles.moves =
      passes * std::max(stores / core.stores_per_cycle,
                        loads / core.loads_per_cycle + gathered / core.gathered_per_cycle);
  cycles.issue = passes * instructions /
                 (instructions > core.kept_instructions ? core.decoded_per_cycle
                                                        : core.instructions_per_cycle);
  cycles.fill =
      std::max(st.Traffic(static_cast<double>(target.l1_bytes)) / core.l1_fill_bytes_per_cycle,
               st.Traffic(static_cast<double>(target.l2_bytes)) / core.l2_fill_bytes_per_cycle);
  return cycles;
}

double BusyCores(const Statement& st, const machine::TargetInfo& target) {
  const double parallel = ParallelExtent(st), threads = target.target.threads;
  return std::max(1.0, parallel / std::ceil(parallel / threads));
}

}  // namespace heddle::cost_model
