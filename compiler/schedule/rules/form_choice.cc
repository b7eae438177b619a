#include "compiler/schedule/rules/form_choice.h"

#include <algorithm>

#include "compiler/schedule/access.h"
#include "compiler/schedule/rules/register_tile.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

// Fewer channels share too little of a transformed tile; those of F(2) are worth less.
constexpr double kMinChannels = 32;
constexpr double kMinManyChannels = 128;
// Winograd's forms read several times the weights of the direct one: they take tiles enough to
// share them.
constexpr int64_t kMinTiles = 16;
// They have to promise that much: their transforms are not counted. The first of F(4) and F(2) that
// does is taken.
constexpr double kMinGain = 1.2;

// Cycles of a product with these weights (elements, each read once) on one of the target's threads.
// Half of the shorter of arithmetic and fetching hides behind the other.
double ProductCycles(double weights, double rows, const machine::TargetInfo& target) {
  const double threads = target.target.threads, lanes = target.vector_bytes / 4.0;
  const double bytes = 4 * weights / threads;
  const double arithmetic = weights * rows / threads / lanes / 2;
  const double fetching =
      bytes / (bytes > static_cast<double>(target.l2_bytes) ? kL3BytesPerCycle : kL2BytesPerCycle);
  return std::max(arithmetic, fetching) + std::min(arithmetic, fetching) / 2;
}

}  // namespace

int PreferredWinograd(const ir::Block& block, const machine::TargetInfo& target) {
  bool constant = false;
  ForEachLoad(block, [&](const ir::Expr& load) { constant |= load->buffer->constant; });
  if (!constant || block.iters.size() != 7) return 0;
  const auto extent = [&](size_t k) { return block.iters[k].extent; };
  const auto inputs = static_cast<double>(extent(6)), outputs = static_cast<double>(extent(3));
  if (inputs < kMinChannels || outputs < kMinChannels) return 0;
  const auto tiles = [&](int64_t m) {
    return extent(0) * ((extent(1) + m - 1) / m) * ((extent(2) + m - 1) / m);
  };
  const double channels = inputs * outputs;
  const auto rows = static_cast<double>(extent(0) * extent(1) * extent(2));
  const double direct = ProductCycles(9 * channels, rows, target);
  for (int m : {4, 2}) {
    if (tiles(m) < kMinTiles || (m == 2 && std::min(inputs, outputs) < kMinManyChannels)) continue;
    const double products = (m + 2) * (m + 2) * channels;
    if (kMinGain * ProductCycles(products, static_cast<double>(tiles(m)), target) < direct)
      return m;
  }
  return 0;
}

}  // namespace heddle::schedule
