// Looks elements up in tables that lie in vector registers. An instruction finds a register full of
// elements, where a gather takes about a cycle for each. Private to this folder: includes LLVM.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Intrinsics.h"

namespace heddle::codegen {

// The most elements of a table. Their numbers fit into the narrowest lanes, which have 8 bits.
inline constexpr int64_t kMaxTable = 256;

// The extensions of x86 that matter here. Without any, no table is looked up in registers.
struct LookupUnit {
  bool avx2 = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512vbmi = false;
  bool fast_gather = false;  // gathers are faster than a load for each vector lane
};

// The instructions for elements of one size. `in_one` takes the table and the places, `in_two` the
// lower half of the table, the places and the upper half. A place is the number of an element, in a
// lane as wide as an element; bits that do not count are ignored.
struct Lookup {
  int lanes = 0;    // places that an instruction looks up
  int entries = 0;  // elements of a table in a register; if fewer than `lanes`, they are repeated
  llvm::Intrinsic::ID in_one = llvm::Intrinsic::not_intrinsic;
  llvm::Intrinsic::ID in_two = llvm::Intrinsic::not_intrinsic;  // there may be none
};

// nullopt: the CPU has no instruction for elements of `bits` bits.
std::optional<Lookup> FindLookup(const LookupUnit& unit, int bits);

// Whether `lanes` look-ups in a table of `elements` take no longer than a gather. `loads_table`: the
// table is loaded for them alone. An instruction counts as a cycle: CPUs permute one or two registers
// in a cycle.
bool IsWorthLookup(const LookupUnit& unit, const Lookup& lookup, int bits, int64_t elements,
                   int64_t lanes, bool loads_table);

// The elements at `places`, a vector of lookup.lanes integers as wide as an element. `table` is a
// list of vectors of the same type: the first one holds the first lookup.entries elements, the second
// one the next, and so on. If a place lies beyond the table, the result of its lane is undefined.
llvm::Value* EmitLookup(llvm::IRBuilder<>& builder, const Lookup& lookup,
                        const std::vector<llvm::Value*>& table, llvm::Value* places);

}  // namespace heddle::codegen
