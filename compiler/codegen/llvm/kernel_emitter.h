// Lowered programs to LLVM functions. Private to this folder.
#pragma once

#include "absl/status/status.h"
#include "compiler/codegen/workspace.h"
#include "compiler/ir/ir.h"

namespace llvm {
class Module;
}

namespace heddle::codegen {

struct CpuLimits {
  int threads = 1;             // workers of a parallel loop
  int vector_bytes = 16;       // of a register
  bool masked_memory = false;  // loads and stores under a mask at full speed
};

// Adds to `module`: a function with the program's name and the signature heddle_kernel, which
// fetches the buffers' addresses and calls an internal function that takes each as a `noalias`
// parameter (but for outputs and the inputs in whose place they may lie: pass/overwrite.h) and
// holds the loops; and one function per parallel loop. Unimplemented for GPU loops, barriers and
// shared memory; FailedPrecondition for blocks (lower first).
absl::Status EmitKernel(const ir::Program& program, const WorkspacePlan& plan, const CpuLimits& cpu,
                        llvm::Module& module);

}  // namespace heddle::codegen
