// A built kernel with its memory, found by the names of its buffers. Internal to this folder.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/backend.h"
#include "compiler/runtime/abi.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/kernel_library.h"
#include "compiler/runtime/placed_stack.h"

namespace heddle::internal {

struct Memory {
  void* data = nullptr;
  int64_t bytes = 0;
};
using MemoryByName = std::map<std::string, Memory>;

// Memory for `what`, 64-byte aligned. ResourceExhausted, naming `what`.
absl::StatusOr<runtime::AlignedBuffer> AllocateFor(const std::string& what, int64_t bytes);

// Memory with `bytes` for a kernel that only reads them: where they are if they are aligned, as mapped
// files are, else a copy that `owned` gets. ResourceExhausted, naming `what`.
absl::StatusOr<Memory> MemoryOf(const std::string& what, std::string_view bytes,
                                std::vector<runtime::AlignedBuffer>* owned);

// InvalidArgument unless the artifact has one kernel, or two of which the second prepacks
// constants.
absl::Status CheckKernelCount(const codegen::Artifact& artifact);

class LoadedKernel {
 public:
  LoadedKernel() = default;
  // Finds every argument in `memory` by its name. `library` must outlive the result.
  // InvalidArgument: there is no such kernel, `memory` lacks an argument, or an argument has
  // another size.
  static absl::StatusOr<LoadedKernel> Load(const runtime::KernelLibrary& library,
                                           const codegen::KernelInfo& info,
                                           const MemoryByName& memory);
  // Loads a kernel that prepacks constants. The arguments that *memory lacks are its results: they
  // are allocated, added to *memory, and owned by the returned object.
  static absl::StatusOr<LoadedKernel> LoadPrepack(const runtime::KernelLibrary& library,
                                                  const codegen::KernelInfo& info,
                                                  MemoryByName* memory);

  void Call(const heddle_host* host) const {
    runtime::OnPlacedStack([&] { function_(arguments_.data(), workspace_.data(), host); });
  }
  const runtime::AlignedBuffer& workspace() const { return workspace_; }

 private:
  heddle_kernel function_ = nullptr;
  std::vector<void*> arguments_;
  runtime::AlignedBuffer workspace_;
  std::vector<runtime::AlignedBuffer> made_;
};

}  // namespace heddle::internal
