#include "compiler/schedule/rules/form_choice.h"

#include <algorithm>

#include "compiler/schedule/access.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

// Cycles of a product with this number of weights, each read once, on one of the target's threads.
// Half of the shorter of arithmetic and fetching overlaps with the longer.
double ProductCycles(double weights, double rows, ir::DType dtype,
                     const machine::TargetInfo& target) {
  const machine::CoreSpeed& core = target.core;
  const double element = ir::SizeOf(dtype), lanes = target.vector_bytes / element;
  const double threads = target.target.threads, bytes = element * weights / threads;
  const double arithmetic = weights * rows / threads / lanes / core.operations_per_cycle;
  const double fetching =
      bytes / (bytes > static_cast<double>(target.l2_bytes) ? core.l3_bytes_per_cycle
                                                            : core.l2_bytes_per_cycle);
  return std::max(arithmetic, fetching) + std::min(arithmetic, fetching) / 2;
}

}  // namespace

int PreferredWinograd(const ir::Block& block, const machine::TargetInfo& target) {
  const machine::WinogradFit& fit = target.code.winograd;
  const ir::DType dtype = block.store.buffer->dtype;
  bool constant = false;
  ForEachLoad(block, [&](const ir::Expr& load) { constant |= load->buffer->constant; });
  if (!constant || block.iters.size() != 7) return 0;
  const auto extent = [&](size_t k) { return block.iters[k].extent; };
  const auto inputs = static_cast<double>(extent(6)), outputs = static_cast<double>(extent(3));
  if (inputs < fit.channels || outputs < fit.channels) return 0;
  const auto tiles = [&](int64_t m) {
    return extent(0) * ((extent(1) + m - 1) / m) * ((extent(2) + m - 1) / m);
  };
  const double channels = inputs * outputs;
  const auto rows = static_cast<double>(extent(0) * extent(1) * extent(2));
  const double direct = ProductCycles(9 * channels, rows, dtype, target);
  // Takes the first of F(4) and F(2) that gains enough by the estimate.
  for (int m : {4, 2}) {
    if (tiles(m) < fit.tiles || (m == 2 && std::min(inputs, outputs) < fit.channels_of_2)) continue;
    const double products = (m + 2) * (m + 2) * channels;
    if (fit.gain * ProductCycles(products, static_cast<double>(tiles(m)), dtype, target) < direct)
      return m;
  }
  return 0;
}

}  // namespace heddle::schedule
