// The physical limits of this machine, measured: what every speed is to be compared with.
#pragma once

#include <cstdint>

namespace heddle::runtime {

// Single-precision GFLOP/s of `threads` cores together right now: a loop of nothing but fused
// multiply-adds by the widest vectors there are; the best of a few rounds of about 20 ms each. 0 on
// architectures without such a loop.
double MeasureFmaPeak(int threads = 1);

// GB/s at which `threads` cores together read `bytes` of memory (64 kB to 256 MB) again and again:
// of main memory if they are many, of the cache that holds them if they are few. The best of passes
// for about 0.2 s. 0 if there is no memory for it.
double MeasureBandwidth(int64_t bytes, int threads = 1);

}  // namespace heddle::runtime
