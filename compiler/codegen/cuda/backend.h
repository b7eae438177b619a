// Lowered loop programs to machine code for NVIDIA GPUs: CUDA C++ (cuda_emitter.h), compiled to a
// cubin by NVRTC (nvrtc.h), which is loaded when first needed. No GPU and no driver is needed.
// Where HEDDLE_CODE_CACHE names a folder, code is kept there by what it was compiled from.
//
// A program is a list of launches. Each outermost `blockIdx` nest of its body is one; what stands
// outside of such nests is one launch of a single thread. Allocations outside of them lie in the
// workspace. Loops bound to thread axes may stand beside each other in a nest: barriers stand
// between them (pass/insert_barriers.h), each axis has one extent in a nest, and a statement that
// some axis of its nest does not enclose runs in the first thread of that axis.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/codegen/llvm/llvm_backend.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

struct CudaOptions {
  std::string* source = nullptr;  // receives the CUDA C++, when set
  std::string* log = nullptr;     // receives the compiler's report, when set
};

// The k-th kernel's symbol is its program's name; its launches' are that and a number, with
// characters that C does not know replaced.
// Errors: InvalidArgument: unknown architecture. ResourceExhausted: exceeds the limits of the
// architecture (gpu_arch.h), found before compiling. Unavailable: no NVRTC on this machine, or it
// does not know the architecture; the message says where it was looked for. Unimplemented: a
// program the back end has no code for. Internal: NVRTC refuses the source, with its first error.
absl::StatusOr<Artifact> CompileCuda(const std::vector<ir::Program>& lowered, const Target& target,
                                     const CudaOptions& options = {});

// OK if NVRTC can be loaded, else the error CompileCuda would give. `version` (optional) receives
// "NVRTC 13.0"; `complaint` (optional) one line where this machine's driver does not load what it
// compiles, else nothing.
absl::Status FindNvrtc(std::string* version = nullptr, std::string* complaint = nullptr);

}  // namespace heddle::codegen
