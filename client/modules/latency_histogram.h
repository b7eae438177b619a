// Counts latencies, however many there are, in a fixed amount of memory.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::client {

// Each power of two is divided into 256 equal parts, so a percentile is off by at most 0.2 % of its value;
// least and greatest are exact. Latencies are in nanoseconds; those below 0 count as 0. About 100 KiB.
class LatencyHistogram {
 public:
  LatencyHistogram();
  void Add(int64_t ns);
  void Merge(const LatencyHistogram& other);
  int64_t count() const { return count_; }
  // The latency that p percent of the calls do not exceed (nearest rank), p in [0, 100]; 0 without calls.
  double Percentile(double p) const;

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  int64_t least_ns_ = 0;
  int64_t most_ns_ = 0;
};

}  // namespace heddle::client
