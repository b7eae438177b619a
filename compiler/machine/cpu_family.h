// What vendors publish about families of CPUs, for targets whose device nobody has measured.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/machine/target_info.h"

namespace heddle::machine {

struct CpuFamily {
  std::vector<std::string_view> names;  // of LLVM: -mcpu
  int64_t l1_bytes;                     // data cache of a core
  int64_t l2_bytes;                     // per core; the smallest of the family
  // Bytes of vectors in a cycle: those that a core multiplies and adds, loads, and stores.
  int fma_bytes, load_bytes, store_bytes;
  int operations;           // of each kind in a cycle, however narrow the vectors are
  int multiply_add_cycles;  // latency
};

// Null if the table does not have the CPU.
const CpuFamily* FindCpuFamily(std::string_view cpu);
// All rows, for tests.
const std::vector<CpuFamily>& CpuFamilies();

// Puts the row into the description of a target, whose vectors must be known. Clock and bandwidths
// stay those of the reference machine, because they differ between the models of a family.
void PutFamily(const CpuFamily& family, TargetInfo* info);

}  // namespace heddle::machine
