// A built kernel with the memory it works on, found by the names of its buffers. Internal to this
// folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/backend.h"
#include "compiler/runtime/abi.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/kernel_library.h"

namespace heddle::internal {

struct Memory {
  void* data = nullptr;
  int64_t bytes = 0;
};
using MemoryByName = std::map<std::string, Memory>;

// ResourceExhausted naming `what`.
absl::StatusOr<runtime::AlignedBuffer> AllocateFor(const std::string& what, int64_t bytes);

// InvalidArgument unless there is one kernel, and maybe one that prepacks its constants.
absl::Status CheckKernelCount(const codegen::Artifact& artifact);

class LoadedKernel {
 public:
  LoadedKernel() = default;
  // Takes every argument from `memory` by its name. `library` has to outlive it. InvalidArgument:
  // no such kernel, an argument that nobody has, or one of another size.
  static absl::StatusOr<LoadedKernel> Load(const runtime::KernelLibrary& library,
                                           const codegen::KernelInfo& info,
                                           const MemoryByName& memory);
  // The same of a kernel that prepacks constants: the arguments that nobody has are what it makes;
  // they are allocated, owned by the result, and added to *memory.
  static absl::StatusOr<LoadedKernel> LoadPrepack(const runtime::KernelLibrary& library,
                                                  const codegen::KernelInfo& info,
                                                  MemoryByName* memory);

  void Call(const heddle_host* host) const {
    function_(arguments_.data(), workspace_.data(), host);
  }
  const runtime::AlignedBuffer& workspace() const { return workspace_; }

 private:
  heddle_kernel function_ = nullptr;
  std::vector<void*> arguments_;
  runtime::AlignedBuffer workspace_;
  std::vector<runtime::AlignedBuffer> made_;
};

}  // namespace heddle::internal
