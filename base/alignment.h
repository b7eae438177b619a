// The alignment of every buffer that a kernel gets, and of what modules and memory plans lay out
// for them.
#pragma once

#include <cstdint>

namespace heddle {

// A cache line, and the widest vector register. compiler/runtime/abi.h promises it to kernels.
inline constexpr int64_t kBufferAlignment = 64;

// The smallest multiple of kBufferAlignment that is not below `bytes`.
constexpr int64_t AlignUp(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace heddle
