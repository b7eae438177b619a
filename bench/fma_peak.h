// The physical limit of one core: a loop of nothing but fused multiply-adds.
#pragma once

namespace heddle::bench {

// Single-precision GFLOP/s of this core right now, by the widest vectors it has; the best of a few
// rounds of about 20 ms each. 0 on architectures without such a loop.
double MeasureFmaPeak();

}  // namespace heddle::bench
