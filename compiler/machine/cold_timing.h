// How cold the weights of a kernel are when it is timed.
#pragma once

#include <cstdint>

namespace heddle::machine {

// A timed kernel on a CPU finds its weights at least as far away as if so many bytes of other memory had been touched since they
// were read (measure/measure.h): on x86 in memory, elsewhere perhaps in a third-level cache that is larger. The costs of plans
// depend on this number, too (compiler/plan). The constants of kernels of models of trees are warm.
inline constexpr int64_t kFlushBytes = int64_t{64} << 20;

}  // namespace heddle::machine
