// Compiles lowered loop programs to machine code for NVIDIA GPUs. It writes CUDA C++ (emitter.h),
// which NVRTC (nvrtc.h) compiles to cubins: several programs in as many parts as the thread may use
// CPUs, at the same time. NVRTC is loaded when first needed; neither a GPU nor a driver is needed. If
// HEDDLE_CODE_CACHE names a folder, compiled code is kept there (code_cache.h), and a program that was
// compiled alone before, such as the best candidate of a task, is not compiled again in a module.
//
// A program is a list of launches. Each outermost `blockIdx` nest of its body is one launch;
// statements outside of such nests are launches of a single thread. Allocations outside of the
// nests lie in the workspace. A nest may hold several loops bound to thread axes, one after the
// other: barriers separate them (pass/insert_barriers.h), and each axis has one extent in a nest. A
// statement that is not inside a loop of some axis of its nest runs in the first thread of that
// axis.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/ir/ir.h"

namespace heddle::codegen {

// The back end for the architectures of gpu_arch.h. Its Toolchain::warning says if this machine's
// driver cannot load what NVRTC compiles.
const Backend& CudaBackend();

struct CudaOptions {
  std::string* source = nullptr;  // receives the CUDA C++, when set
  std::string* log = nullptr;     // receives the compiler's report, when set
};

// Backend::Compile of CudaBackend with options. The symbol of a launch is a digest of the program and
// a number; launches of equal programs share a function. Unavailable: this machine has no NVRTC,
// or NVRTC does not know the architecture. Internal: NVRTC refuses the source; the message is its
// first error.
absl::StatusOr<Artifact> CompileCuda(const std::vector<ir::Program>& lowered, const Target& target,
                                     const CudaOptions& options = {});

}  // namespace heddle::codegen
