// How far a kernel is from what its machine can do at most.
#pragma once

#include <cstdint>

namespace heddle::views {

// What the cores of a slot, or of a machine, can do together.
struct Limits {
  double gflops = 0;  // 10^9 operations a second, of single-precision multiply-adds; 0: unknown
  double gbps = 0;    // 10^9 bytes a second, read from main memory; 0: unknown
};

// The roofline (Williams, Waterman and Patterson, 2009): a kernel takes at least the time of its
// operations at the peak and the time of its bytes at the bandwidth, whichever is longer.
struct Roofline {
  bool memory = false;  // true: bound by memory; false: by arithmetic
  // That least time over the time taken; 0 if a limit is unknown. It exceeds 1 if data came from a
  // nearer cache than the bandwidth's, or if Winograd needs fewer operations than are counted.
  double share = 0;
};
Roofline RooflineOf(double ns, double flops, int64_t bytes, const Limits& limits);

}  // namespace heddle::views
