// How cold the weights of a kernel are when it is timed.
#pragma once

#include <cstdint>

namespace heddle::machine {

// Bytes of other memory that are touched before each timed call on a CPU (measure/measure.h). They
// evict the second-level cache. They evict a third-level one if it is not larger; from a larger one,
// weights are still read when they are timed. The costs of plans read this, too (compiler/plan). Kernels that find places get
// their constants back before they are timed.
inline constexpr int64_t kFlushBytes = int64_t{64} << 20;

}  // namespace heddle::machine
