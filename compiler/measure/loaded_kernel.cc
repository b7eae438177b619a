#include "compiler/measure/loaded_kernel.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/alignment.h"
#include "base/status_macros.h"

namespace heddle::internal {

using runtime::AlignedBuffer;

absl::StatusOr<AlignedBuffer> AllocateFor(const std::string& what, int64_t bytes) {
  // Buffers of a workload have names of their own, so that each has the same place in every process.
  unsigned hash = 0;
  for (const char c : what) hash = hash * 31 + static_cast<unsigned char>(c);
  AlignedBuffer memory =
      AlignedBuffer::Allocate(bytes, static_cast<int>(hash % AlignedBuffer::kColours));
  if (memory.ok()) return memory;
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what, " (", bytes, " bytes)"));
}

absl::StatusOr<Memory> MemoryOf(const std::string& what, std::string_view bytes,
                                std::vector<AlignedBuffer>* owned) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kBufferAlignment == 0)
    return Memory{const_cast<char*>(bytes.data()), size};
  HEDDLE_ASSIGN_OR_RETURN(AlignedBuffer copy, AllocateFor(what, size));
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  owned->push_back(std::move(copy));
  return Memory{owned->back().data(), size};
}

absl::Status CheckKernelCount(const codegen::Artifact& artifact) {
  if (artifact.kernels.size() == 1 || artifact.kernels.size() == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("artifact has ", artifact.kernels.size(),
                                                 " kernels, not one and maybe a prepack"));
}

absl::StatusOr<LoadedKernel> LoadedKernel::Load(const runtime::KernelLibrary& library,
                                                const codegen::KernelInfo& info,
                                                const MemoryByName& memory) {
  const absl::StatusOr<heddle_kernel> function = library.Find(info.symbol);
  if (!function.ok()) return absl::InvalidArgumentError(function.status().message());
  LoadedKernel loaded;
  loaded.function_ = *function;
  HEDDLE_ASSIGN_OR_RETURN(loaded.workspace_, AllocateFor("a workspace", info.workspace_bytes));
  for (const codegen::Argument& argument : info.arguments) {
    const auto place = memory.find(argument.name);
    if (place == memory.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel ", info.symbol, " takes '", argument.name, "', which nobody has"));
    }
    if (place->second.bytes != argument.bytes) {
      return absl::InvalidArgumentError(absl::StrCat("kernel ", info.symbol, " takes ",
                                                     argument.bytes, " bytes for '", argument.name,
                                                     "', which has ", place->second.bytes));
    }
    loaded.arguments_.push_back(place->second.data);
  }
  return loaded;
}

absl::StatusOr<LoadedKernel> LoadedKernel::LoadPrepack(const runtime::KernelLibrary& library,
                                                       const codegen::KernelInfo& info,
                                                       MemoryByName* memory) {
  std::vector<AlignedBuffer> made;
  for (const codegen::Argument& argument : info.arguments) {
    if (memory->contains(argument.name)) continue;
    HEDDLE_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                            AllocateFor(absl::StrCat("'", argument.name, "'"), argument.bytes));
    (*memory)[argument.name] = {buffer.data(), argument.bytes};
    made.push_back(std::move(buffer));
  }
  HEDDLE_ASSIGN_OR_RETURN(LoadedKernel loaded, Load(library, info, *memory));
  loaded.made_ = std::move(made);
  return loaded;
}

}  // namespace heddle::internal
