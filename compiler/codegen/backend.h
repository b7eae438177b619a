// What a code generator offers to the rest of the compiler. A back end is a folder below this one
// and a case in backend.cc. Callers ask the back end of a target and never ask which kind of target
// it is. Differences that matter to schedules and passes are values in machine::TargetInfo, for
// instance TargetInfo::execution.
//
// The interpreter (compiler/interpreter) is not a back end. It is the oracle that back ends are
// compared with: it evaluates programs at every level, including naive and scheduled ones, on any
// host, and has neither a target nor machine code. Callers that want it call it directly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/measured_machine.h"
#include "compiler/machine/target_info.h"
#include "compiler/runtime/gpu_launch.h"
#include "compiler/runtime/numerics.h"

namespace heddle::codegen {

// A buffer that a kernel takes, by its name in the program.
struct Argument {
  std::string name;
  int64_t bytes = 0;
};

// One kernel of an artifact. On a CPU it is one C function, heddle_kernel of runtime/abi.h. On a
// GPU it is a list of launches that run in order in one stream.
struct KernelInfo {
  std::string symbol;
  int64_t workspace_bytes = 0;        // scratch from the caller, aligned to 64 bytes (GPU: 256)
  std::vector<Argument> arguments{};  // inputs, then outputs
  std::vector<runtime::GpuLaunch> launches{};  // GPU only: at least one
};

// Machine code of some kernels, in the order of the programs they come from.
struct Artifact {
  // llvm: a position-independent ELF .so that depends on nothing but libm. cuda: a cubin.
  std::string shared_object;
  std::vector<KernelInfo> kernels;
  runtime::Numerics numerics;  // what the kernels promise; set by the caller of Compile
};

// The compiler that a back end finds on this machine.
struct Toolchain {
  std::string version;  // "LLVM 19.1.7", "NVRTC 13.0"
  std::string warning;  // one line if its code may not run on this machine's devices, else empty
  bool caches = false;  // it keeps compiled code in the folder that HEDDLE_CODE_CACHE names
};

// Stateless and thread-safe. A "resolved" target is one that Resolve returned.
class Backend {
 public:
  virtual ~Backend() = default;

  // The canonical target: `native` becomes the real name of this machine's device. Idempotent.
  // InvalidArgument: a CPU, feature or architecture does not exist; the message names it and those
  // that do.
  virtual absl::StatusOr<Target> Resolve(const Target& target) const = 0;

  // The numbers that schedules, layouts and search need to know. Errors as Resolve.
  virtual absl::StatusOr<machine::TargetInfo> Describe(const Target& resolved) const = 0;

  // Whether kernels for the target can be loaded and called in this process, on its own threads.
  virtual bool RunsHere(const Target& resolved) const = 0;

  // Instruction sets that code for the target may use, sorted; only those that machines report
  // about themselves. Empty if the target has none or has another architecture than this machine.
  virtual std::vector<std::string> Features(const Target& resolved) const = 0;

  // The compiler behind Compile. Unavailable: it is not found; the message says in one line where
  // it was looked for.
  virtual absl::StatusOr<Toolchain> FindToolchain() const = 0;

  // Whether the device has room for a lowered program, found without compiling it.
  // ResourceExhausted: the program exceeds the limits of the target. Unimplemented: as Compile.
  virtual absl::Status CheckLimits(const ir::Program& lowered, const Target& resolved) const = 0;

  // Compiles lowered programs (pass/lower.h, for the target's TargetInfo::execution). The target
  // need not be this machine. The k-th kernel's symbol is the k-th program's name. InvalidArgument:
  // as Resolve. ResourceExhausted: as CheckLimits. Unimplemented: the back end has no code for a
  // part of a program.
  // Unavailable: as FindToolchain, or the compiler does not know the target. Internal: the compiler
  // refuses the back end's output.
  virtual absl::StatusOr<Artifact> Compile(const std::vector<ir::Program>& lowered,
                                           const Target& resolved) const = 0;
};

// The back end that makes code for the target. There is one for every TargetKind.
const Backend& BackendOf(const Target& target);

// BackendOf(target).Resolve(target).
absl::StatusOr<Target> ResolveTarget(const Target& target);
// BackendOf(resolved).Describe(resolved), with what was measured on the target's device, if that is
// a CPU and `measured` is not null. All stages of a job must give the same.
absl::StatusOr<machine::TargetInfo> DescribeTarget(
    const Target& resolved, const machine::MeasuredMachine* measured = nullptr);

}  // namespace heddle::codegen
