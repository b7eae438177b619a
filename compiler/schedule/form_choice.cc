#include "compiler/schedule/form_choice.h"

#include <algorithm>

#include "compiler/schedule/access.h"
#include "compiler/schedule/register_tile.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

namespace {

// Fewer channels share too little of a transformed tile.
constexpr double kMinChannels = 32;
// F(4) reads four times the weights of the direct form: it takes tiles enough to share them.
constexpr int64_t kMinTiles = 16;
// F(2) has to promise that much: its transforms are not counted, which fewer channels would not
// outweigh.
constexpr double kMinGain = 1.2;
constexpr double kMinManyChannels = 128;

// Cycles of a product with these weights (elements, each read once) on one of the target's threads.
// Half of the shorter of arithmetic and fetching hides behind the other.
double ProductCycles(double weights, double rows, const ir::TargetInfo& target) {
  const double threads = target.target.threads, lanes = target.vector_bytes / 4.0;
  const double bytes = 4 * weights / threads;
  const double arithmetic = weights * rows / threads / lanes / 2;
  const double fetching =
      bytes / (bytes > static_cast<double>(target.l2_bytes) ? kL3BytesPerCycle : kL2BytesPerCycle);
  return std::max(arithmetic, fetching) + std::min(arithmetic, fetching) / 2;
}

}  // namespace

int PreferredWinograd(const ir::Block& block, const ir::TargetInfo& target) {
  bool constant = false;
  ForEachLoad(block, [&](const ir::Expr& load) { constant |= load->buffer->constant; });
  if (!constant || block.iters.size() != 7) return 0;
  const auto extent = [&](size_t k) { return block.iters[k].extent; };
  const auto inputs = static_cast<double>(extent(6)), outputs = static_cast<double>(extent(3));
  if (inputs < kMinChannels || outputs < kMinChannels) return 0;
  const auto tiles = [&](int64_t m) {
    return extent(0) * ((extent(1) + m - 1) / m) * ((extent(2) + m - 1) / m);
  };
  if (tiles(4) >= kMinTiles) return 4;
  if (tiles(2) < kMinTiles || std::min(inputs, outputs) < kMinManyChannels) return 0;
  const double channels = inputs * outputs;
  const double direct =
      ProductCycles(9 * channels, static_cast<double>(extent(0) * extent(1) * extent(2)), target);
  const double winograd = ProductCycles(16 * channels, static_cast<double>(tiles(2)), target);
  return kMinGain * winograd < direct ? 2 : 0;
}

}  // namespace heddle::schedule
