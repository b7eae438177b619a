// Targets in LLVM's terms. Private to this folder: includes LLVM.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/llvm/table_lookup.h"
#include "llvm/Target/TargetMachine.h"

namespace heddle::codegen {

// Registers LLVM's own back ends, once per process.
void InitializeLlvm();

// The triple of `target`, or this machine's.
std::string TripleOf(const Target& target);

// InvalidArgument: the triple, CPU or a feature does not exist (the message suggests near names),
// or the object format is not ELF.
absl::Status CheckTarget(const Target& resolved);

// A code generator for a resolved target. Errors as CheckTarget.
absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const Target& resolved,
                                                                       int opt_level);

// Size in bytes of the widest vector registers worth using, and their number.
struct VectorUnit {
  int bytes = 16;
  int registers = 16;
  bool masked_memory = false;  // masked loads and stores run at full speed
  bool converts_f16 = false;   // has instructions between f16 and f32
  LookupUnit lookup = {};
};
VectorUnit DescribeVectorUnit(const llvm::TargetMachine& machine);

}  // namespace heddle::codegen
