// Compiles lowered loop programs to machine code by LLVM: one shared object for any number of
// kernels.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// The back end for every CPU that LLVM knows and whose object format is ELF.
const Backend& LlvmBackend();

struct LlvmOptions {
  int opt_level = 3;                // of code generation, 0 to 3; at 0 no IR pass runs
  bool vectorizer = true;           // LLVM's own, for loops that the schedule does not vectorize
  std::string* llvm_ir = nullptr;   // receives the optimised module as text, when set
  std::string* assembly = nullptr;  // receives the assembly, when set
};

// Backend::Compile of LlvmBackend with options. It resolves the target. Unimplemented: a program
// has GPU loops.
absl::StatusOr<Artifact> CompileLlvm(const std::vector<ir::Program>& lowered, const Target& target,
                                     const LlvmOptions& options = {});

}  // namespace heddle::codegen
