// How cold the weights of a kernel are when it is timed.
#pragma once

#include <cstdint>

namespace heddle::machine {

// Bytes of other memory that are touched before each timed call on a CPU (measure/measure.h). They
// evict the second-level cache. They evict a third-level one if it is not larger; from a larger one,
// timed kernels may still read their weights. The costs of plans depend on this number, too (compiler/plan). The constants of
// kernels of models of trees are read again before the timed call.
inline constexpr int64_t kFlushBytes = int64_t{64} << 20;

}  // namespace heddle::machine
