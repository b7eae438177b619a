// Lowered loop programs to machine code for NVIDIA GPUs: CUDA C++ (emitter.h), compiled to a cubin
// by NVRTC (nvrtc.h), which is loaded when first needed. Neither a GPU nor a driver is needed. If
// HEDDLE_CODE_CACHE names a folder, compiled code is kept there (code_cache.h).
//
// A program is a list of launches. Each outermost `blockIdx` nest of its body is one launch; what
// stands outside of such nests is one launch of a single thread. Allocations outside of them lie in
// the workspace. Loops bound to thread axes may stand beside each other in a nest: barriers stand
// between them (pass/insert_barriers.h), each axis has one extent in a nest, and a statement that
// some axis of its nest does not enclose runs in the first thread of that axis.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// Makes code for the architectures of gpu_arch.h. Its Toolchain::warning tells that this machine's
// driver does not load what NVRTC compiles.
const Backend& CudaBackend();

struct CudaOptions {
  std::string* source = nullptr;  // receives the CUDA C++, when set
  std::string* log = nullptr;     // receives the compiler's report, when set
};

// Backend::Compile of CudaBackend with options. The symbols of a kernel's launches are the kernel's
// symbol and a number, with characters that C does not know replaced. Unavailable: no NVRTC on this
// machine, or it does not know the architecture. Internal: NVRTC refuses the source, with its first
// error.
absl::StatusOr<Artifact> CompileCuda(const std::vector<ir::Program>& lowered, const Target& target,
                                     const CudaOptions& options = {});

}  // namespace heddle::codegen
