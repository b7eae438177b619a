// What schedules, layouts, passes and the search know about the machine of a target.
//
// There is one value, TargetInfo, which codegen::DescribeTarget makes. It has three parts: facts
// that a compiler, an operating system or a table of architectures states; speeds of the machine
// (core_speed.h); speeds of our code on it (code_speed.h). A target without facts of its own keeps
// the defaults. What was measured on a device (measured_machine.h) is given to DescribeTarget, too:
// nothing else makes this value.
#pragma once

#include <cstdint>

#include "base/vocabulary/target.h"
#include "compiler/machine/code_speed.h"
#include "compiler/machine/core_speed.h"

namespace heddle::machine {

// How a kernel is spread over the target's processing units.
enum class Execution {
  kThreads,  // loops over a few threads, each with vector registers
  kGrid,     // a grid of blocks of threads, each block with shared memory
};

// The most elements of a table that may lie in vector registers. Schedules look elements up by vectors in such tables
// only (schedule/rules/stage.h), and forms of forests are chosen accordingly.
inline constexpr int64_t kMostLookedUp = 64;

struct TargetInfo {
  Target target;
  Execution execution = Execution::kThreads;

  // ---- A core of a CPU; the defaults are safe for any ----

  // The widest vector register worth using; on a GPU the longest access of a thread.
  int vector_bytes = 16;
  int vector_registers = 16;
  int64_t l1_bytes = 32 << 10;  // data cache of a core
  int64_t l2_bytes = 1 << 20;   // per core
  int64_t line_bytes = 64;      // of all caches
  // First-level caches are indexed by the address within a page: lines this far apart share a set.
  int64_t page_bytes = 4096;

  // ---- Execution::kGrid only; by architecture, from codegen/cuda/gpu_arch.h ----

  int max_threads_per_block = 1024;
  int64_t shared_bytes_per_block = 48 << 10;  // the most a block may ask for, static and dynamic
  int max_registers_per_thread = 255;         // 32-bit ones
  int registers_per_block = 64 << 10;         // 32-bit ones, too
  int multiprocessors = 1;                    // of the usual device of the architecture
  bool tensor_cores = false;                  // for f16, bf16 and tf32 (sm_80 and later)

  // ---- Speeds ----

  CoreSpeed core;
  GraphSpeed graph_speed;
  GraphCore graph_core;
  CodeSpeed code;

  // Ways of the first-level cache: the lines of one set that it holds.
  int64_t L1Ways() const { return l1_bytes / page_bytes; }
  // Whether an instruction can broadcast a scalar operand from memory to all vector lanes
  // (AVX-512).
  bool BroadcastsOperand() const { return vector_bytes >= 64; }
  // The most elements of 4 bytes in a table that all vector lanes share, if the lanes look them up in
  // less time than slow gathers take (codegen/llvm/table_lookup.h). 0: with registers of fewer than 64
  // bytes that was not measured.
  int64_t SharedTableElements() const { return vector_bytes >= 64 ? 256 : 0; }
};

}  // namespace heddle::machine
