// The physical limits of this machine, measured. They are the reference for reported speeds.
#pragma once

#include <cstdint>

namespace heddle::runtime {

// Single-precision GFLOP/s that `threads` cores reach together at this moment. It is the best of a
// few rounds of about 20 ms each, in a loop of fused multiply-adds with the widest vectors. 0 on
// architectures without such a loop.
double MeasureFmaPeak(int threads = 1);

// GB/s at which `threads` cores together read `bytes` (64 kB to 256 MB) repeatedly. Large sizes
// measure main memory, small ones the cache that holds them. It is the best pass of about 0.2 s. 0
// if there is not enough memory.
double MeasureBandwidth(int64_t bytes, int threads = 1);

}  // namespace heddle::runtime
