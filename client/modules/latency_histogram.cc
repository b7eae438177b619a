#include "client/modules/latency_histogram.h"

#include <algorithm>
#include <bit>

#include "base/quantiles.h"

namespace heddle::client {
namespace {

constexpr int kPartBits = 8;
constexpr int64_t kParts = int64_t{1} << kPartBits;  // of a power of two
// Longer calls, of more than 18 minutes, count as that.
constexpr int kMostBits = 40;
constexpr int64_t kMostNs = (int64_t{1} << kMostBits) - 1;

// Values below kParts have a counter each; above, the leading kPartBits + 1 bits choose the counter.
size_t IndexOf(int64_t ns) {
  if (ns < kParts) return static_cast<size_t>(ns);
  const int shift = static_cast<int>(std::bit_width(static_cast<uint64_t>(ns))) - kPartBits - 1;
  return static_cast<size_t>((shift + 1) * kParts + (ns >> shift) - kParts);
}

// The middle of the latencies that share a counter.
double MiddleOf(size_t index) {
  const auto i = static_cast<int64_t>(index);
  if (i < kParts) return static_cast<double>(i);
  const int64_t shift = i / kParts - 1;
  const int64_t low = (i % kParts + kParts) << shift;
  return static_cast<double>(low) + static_cast<double>((int64_t{1} << shift) - 1) / 2;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : counts_(IndexOf(kMostNs) + 1) {}

void LatencyHistogram::Add(int64_t ns) {
  ns = std::clamp<int64_t>(ns, 0, kMostNs);
  least_ns_ = count_ == 0 ? ns : std::min(least_ns_, ns);
  most_ns_ = std::max(most_ns_, ns);
  ++counts_[IndexOf(ns)];
  ++count_;
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  if (other.count_ == 0) return;
  least_ns_ = count_ == 0 ? other.least_ns_ : std::min(least_ns_, other.least_ns_);
  most_ns_ = std::max(most_ns_, other.most_ns_);
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
}

double LatencyHistogram::Percentile(double p) const {
  if (count_ == 0) return 0;
  const int64_t rank = NearestRank(count_, p / 100);
  if (rank == 1) return static_cast<double>(least_ns_);
  if (rank >= count_) return static_cast<double>(most_ns_);
  int64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen < rank) continue;
    return std::clamp(MiddleOf(i), static_cast<double>(least_ns_), static_cast<double>(most_ns_));
  }
  return static_cast<double>(most_ns_);
}

}  // namespace heddle::client
