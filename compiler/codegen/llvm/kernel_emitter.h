// Translates lowered programs to LLVM functions. Private to this folder: includes LLVM.
#pragma once

#include "absl/status/status.h"
#include "compiler/codegen/llvm/table_lookup.h"
#include "compiler/codegen/workspace.h"
#include "compiler/ir/ir.h"

namespace llvm {
class Module;
}

namespace heddle::codegen {

struct CpuLimits {
  int threads = 1;             // number of workers of a parallel loop
  int vector_bytes = 16;       // size of a vector register
  bool masked_memory = false;  // masked loads and stores run at full speed
  bool converts_f16 = false;   // has instructions between f16 and f32
  LookupUnit lookup = {};
};

// Adds the functions of a program to `module`. The exported one has the program's name and the
// signature heddle_kernel; it fetches the addresses of the buffers and calls an internal function
// that holds the loops. That one takes each buffer as a `noalias` parameter, except outputs that
// may take the memory of an input, and these inputs (pass/overwrite.h). Each parallel loop gets one
// more function. Unimplemented: GPU loops, barriers or shared memory. FailedPrecondition: blocks;
// lower the program first.
absl::Status EmitKernel(const ir::Program& program, const WorkspacePlan& plan, const CpuLimits& cpu,
                        llvm::Module& module);

}  // namespace heddle::codegen
