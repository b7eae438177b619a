// Lowered loop programs to machine code by LLVM: one shared object for any number of kernels.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/ir/ir.h"
#include "compiler/runtime/gpu_launch.h"

namespace heddle::codegen {

// A buffer a kernel takes, by its name in the program.
struct Argument {
  std::string name;
  int64_t bytes = 0;
};

// A kernel of the code. For CPUs it is one C function, heddle_kernel in runtime/abi.h; for GPUs it
// is what `launches` says, one after the other in one stream.
struct KernelInfo {
  std::string symbol;
  int64_t workspace_bytes = 0;        // scratch the caller provides, 64-byte aligned (GPU: 256)
  std::vector<Argument> arguments{};  // inputs, then outputs
  std::vector<runtime::GpuLaunch> launches{};  // GPU only: at least one
};

struct Artifact {
  // llvm: an ELF .so, position independent, that needs nothing but libm. cuda: a cubin.
  std::string shared_object;
  std::vector<KernelInfo> kernels;
  bool winograd = false;  // a kernel computes in Winograd's form: tolerance.h; set by who scheduled
  bool tf32 = false;      // likewise, with f32 rounded to tf32
};

struct LlvmOptions {
  int opt_level = 3;                // of code generation, 0 to 3; at 0 no pass runs before it
  bool vectorizer = true;           // LLVM's own, for loops that no schedule made vectors
  std::string* llvm_ir = nullptr;   // receives the optimised module as text, when set
  std::string* assembly = nullptr;  // receives the assembly, when set
};

// Compiles lowered programs; the k-th kernel's symbol is its program's name. Cross-compiles: the
// target need not be this machine. InvalidArgument: unknown CPU or feature. Unimplemented: a
// program with GPU loops.
absl::StatusOr<Artifact> CompileLlvm(const std::vector<ir::Program>& lowered, const Target& target,
                                     const LlvmOptions& options = {});

}  // namespace heddle::codegen
