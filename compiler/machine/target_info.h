// What schedules, layouts and search know of the machine a target stands for.
#pragma once

#include <cstdint>

#include "base/target.h"

namespace heddle::machine {

// How a kernel is spread over the target's processing units.
enum class Execution {
  kThreads,  // loops over a few threads, each with vector registers
  kGrid,     // a grid of blocks of threads, each block with shared memory
};

// The numbers schedules need to know of a target. Filled by codegen::DescribeTarget; the values here
// suit any CPU.
struct TargetInfo {
  Target target;
  Execution execution = Execution::kThreads;
  int vector_bytes = 16;  // widest vector register worth using
  int vector_registers = 16;
  int64_t l1_bytes = 32 << 10;  // per core
  int64_t l2_bytes = 1 << 20;   // per core
  // Execution::kGrid only; by architecture from codegen/cuda/gpu_arch.h.
  int max_threads_per_block = 1024;
  int64_t shared_bytes_per_block = 48 << 10;  // the most a block may ask for, static and dynamic
  int warp_size = 32;
  int max_registers_per_thread = 255;     // 32-bit ones
  int registers_per_block = 64 << 10;     // likewise
  int multiprocessors = 1;                // of the usual device of the architecture
  int threads_per_multiprocessor = 2048;  // resident at a time
  int64_t shared_bytes_per_multiprocessor = 64 << 10;
  bool async_copies = false;  // global to shared memory, past the registers (sm_80 and later)
  bool tensor_cores = false;  // for f16, bf16 and tf32 (sm_80 and later)
};

}  // namespace heddle::machine
