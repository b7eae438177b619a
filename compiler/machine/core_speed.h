// How fast a CPU is. The figures of a target come from its device, which a worker has measured
// (measured_machine.h), or from the table of its CPU family (cpu_family.h).
//
// The defaults are the reference machine: a virtual Sapphire Rapids at 2.7 GHz with 64-byte
// vectors, 48 KiB of first-level and 2 MiB of second-level cache. They stand for what was neither
// measured nor is in the table. Only ratios matter to most decisions, so other CPUs are ordered
// well enough by them.
#pragma once

#include <cstdint>

namespace heddle::machine {

// One core. A cycle is one of the core's clock; a vector fills a register.
struct CoreSpeed {
  // Vector operations in a cycle; a multiply-add is one. A rough figure for current CPUs. Read by
  // the tile cost, the choice of Winograd's form and the prior.
  double operations_per_cycle = 2;
  // Vectors that are loaded in a cycle, and stored in the same one, if the first-level cache holds
  // them. Rough figures for current CPUs. Read by the tile cost (loads) and the prior.
  double loads_per_cycle = 2;
  double stores_per_cycle = 1;
  // Elements that are loaded in a cycle if the lanes of a vector are apart in memory. A rough
  // figure for current CPUs. Read by the prior and the rule for walks. The LLVM back end knows only
  // this default, because an artifact does not depend on the machine that was measured; it decides by
  // it whether a table is looked up in registers.
  double gathered_per_cycle = 2;
  // Cycles from a multiply-add to the next one on the same accumulator. A rough figure for current
  // CPUs. Read by the tile cost and the prior.
  double multiply_add_cycles = 4;
  // A division takes the time of this many operations. A rough figure. Read by the prior.
  double division_operations = 16;
  // Instructions in a cycle: for loops whose body has at most `kept_instructions`, and for longer
  // ones, which are decoded again in each iteration. Rough figures for current CPUs. Read by the
  // prior.
  double instructions_per_cycle = 6;
  double decoded_per_cycle = 2;
  double kept_instructions = 4096;

  // Bytes in a cycle that a core streams from its second-level cache, and from beyond it (24 GB/s
  // at 2.8 GHz). Measured on the reference machine. Read by the tile cost and the choice of
  // Winograd's form.
  double l2_bytes_per_cycle = 24;
  double l3_bytes_per_cycle = 8.5;
  // Data that no instruction prefetches streams from beyond the second-level cache this many times
  // slower. Fitted with TileFit (code_speed.h). Read by the tile cost.
  double unasked_factor = 2;
  // Bytes in a cycle that fill the first-level cache, and the second-level one. Rough figures for
  // current CPUs; they are not the measured rates above. Read by the prior.
  double l1_fill_bytes_per_cycle = 32;
  double l2_fill_bytes_per_cycle = 8;

  // Clock rate, in cycles per nanosecond. And what it costs to begin and end a parallel loop whose threads are awake, in
  // nanoseconds; the default was measured on a virtual EPYC with two cores. WorthThreads (worth_threads.h) compares both
  // with the work of a loop.
  double clock_ghz = 2.7;
  double wake_ns = 500;
};

// How fast one core runs whole operators. The costs by which a plan is chosen (compiler/plan) read
// it, and nothing else: a plan names what was chosen, so that a model has the same tasks wherever it
// is compiled, on whatever machine the plan was made.
struct GraphSpeed {
  // Multiply-adds count twice: two 64-byte vectors of f32 a cycle at 2.7 GHz.
  double peak_gflops = 170;
  // Bytes of a vector register, some of whose lanes may be unused.
  int64_t vector_bytes = 64;
  // Size of the second-level cache. A depthwise convolution whose images fit is bound by
  // `near_bytes_per_ns`.
  int64_t l2_bytes = 2 << 20;
  // Bytes read or written in a nanosecond: from beyond the second-level cache, and from within.
  // Fitted with LayoutFit (code_speed.h).
  double bytes_per_ns = 20;
  double near_bytes_per_ns = 40;
  // Nanoseconds that a separate kernel costs: the call, and the data it moves between caches.
  // Fitted with LayoutFit.
  double call_ns = 1000;

  // Size of the third-level cache; 0: there is none. A rough figure for current CPUs.
  int64_t l3_bytes = 32 << 20;
  // Bytes in a nanosecond that a core only reads, in order, by where they lie. The rate of the
  // second-level cache is that of CoreSpeed. The other two are rough figures that agree with
  // `bytes_per_ns` as those of a measured machine do.
  double l2_read_bytes_per_ns = 65;
  double l3_read_bytes_per_ns = 40;
  double memory_read_bytes_per_ns = 17;
};

// The core that passes over graphs assume. It is the same for all targets and machines, because
// these passes decide which tasks a plan gives.
struct GraphCore {
  // Bytes of a vector register. Read to merge groups of convolutions.
  int64_t vector_bytes = 64;
  // Bytes of one operand that stay in the second-level cache beside other data: seven eighths of
  // one of 2 MiB. An operand that fills the cache evicts its own beginning. Read by
  // alternate-products.
  int64_t near_bytes = int64_t{7} << 18;
  // Elements that are gathered in a cycle, between CPUs that gather slowly (0.4) and fast (2), and bytes of the second-level cache
  // that are read in one. Read to estimate the forms of forests.
  double gathered_per_cycle = 1;
  double l2_bytes_per_cycle = 24;
};

}  // namespace heddle::machine
