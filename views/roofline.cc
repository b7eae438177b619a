#include "views/roofline.h"

#include <algorithm>

namespace heddle::views {

Roofline RooflineOf(double ns, double flops, int64_t bytes, const Limits& limits) {
  if (limits.gflops <= 0 || limits.gbps <= 0 || ns <= 0) return {};
  const double compute_ns = flops / limits.gflops;
  const double memory_ns = static_cast<double>(bytes) / limits.gbps;
  return {memory_ns > compute_ns, std::max(compute_ns, memory_ns) / ns};
}

}  // namespace heddle::views
