// A measured machine for tests: a core like the reference machine, four of which share what is beyond
// their own caches.
#pragma once

#include "compiler/machine/measured_machine.h"

namespace heddle::machine {

inline MeasuredMachine ExampleMachine() {
  return {.cores = 4,
          .l1_bytes = 48 << 10,
          .l2_bytes = 2 << 20,
          .l3_bytes = 32 << 20,
          .clock_ghz = 2.5,
          .gflops = 160,
          .multiply_add_ns = 1.6,
          .l1_gbps = 320,
          .l2_gbps = 60,
          .l3_gbps = 20,
          .memory_gbps = 10,
          .store_gbps = 160,
          .gathered_per_ns = 5,
          .call_ns = 12.5,
          .all_gflops = 640,
          .all_l3_gbps = 40,
          .all_memory_gbps = 16,
          .wake_ns = 1234.56};
}

}  // namespace heddle::machine
