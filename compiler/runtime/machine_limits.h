// The physical limits of this machine, measured. Speeds are compared with them.
#pragma once

#include <cstdint>

namespace heddle::runtime {

// Single-precision GFLOP/s of `threads` cores together right now: the best of a few rounds, of
// about 20 ms each, of a loop of fused multiply-adds with the widest vectors. 0 on architectures
// without such a loop.
double MeasureFmaPeak(int threads = 1);

// GB/s at which `threads` cores together read `bytes` (64 kB to 256 MB) repeatedly: from main
// memory if they are many, from the cache that holds them if they are few. The best pass of about
// 0.2 s. 0 if there is not enough memory.
double MeasureBandwidth(int64_t bytes, int threads = 1);

}  // namespace heddle::runtime
