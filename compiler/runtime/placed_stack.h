// Runs code with its stack at a fixed place within a page.
//
// Kernels keep spilled registers on the stack. Which lines of tensors share sets of the first-level cache
// with them depends on the lowest bits of the stack pointer, and those on the environment of the process
// and on address space randomisation. By that alone, a convolution of SqueezeNet took 155, 169 or 290 us in
// different processes (Zen 4), and the whole model 10.4 to 11.6 ms.
#pragma once

#include <cstddef>

namespace heddle::runtime {

inline constexpr size_t kStackPage = 4096;

// Calls f() with a stack pointer that is a multiple of kStackPage.
template <typename F>
__attribute__((noinline)) void OnPlacedStack(const F& f) {
  // The frame is aligned as its most aligned object is, and its size is a multiple of that.
  alignas(kStackPage) char place[1];
  asm volatile("" : : "r"(place) : "memory");
  f();
  asm volatile("" : : "r"(place) : "memory");  // no tail call, which would leave the frame first
}

}  // namespace heddle::runtime
