#include "compiler/loaded_kernel.h"

#include "absl/strings/str_cat.h"
#include "compiler/ir/status_macros.h"

namespace heddle::internal {

using runtime::AlignedBuffer;

absl::StatusOr<AlignedBuffer> AllocateFor(const std::string& what, int64_t bytes) {
  AlignedBuffer memory = AlignedBuffer::Allocate(bytes);
  if (memory.ok()) return memory;
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", what, " (", bytes, " bytes)"));
}

absl::StatusOr<LoadedKernel> LoadedKernel::Load(const runtime::KernelLibrary& library,
                                                const codegen::KernelInfo& info,
                                                MemoryByName* memory) {
  const absl::StatusOr<heddle_kernel> function = library.Find(info.symbol);
  if (!function.ok()) return absl::InvalidArgumentError(function.status().message());
  LoadedKernel loaded;
  loaded.function_ = *function;
  HEDDLE_ASSIGN_OR_RETURN(loaded.workspace_, AllocateFor("a workspace", info.workspace_bytes));
  for (const codegen::Argument& argument : info.arguments) {
    Memory& place = (*memory)[argument.name];
    if (place.data == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(AlignedBuffer made,
                              AllocateFor(absl::StrCat("'", argument.name, "'"), argument.bytes));
      place = {made.data(), argument.bytes};
      loaded.made_.push_back(std::move(made));
    }
    if (place.bytes != argument.bytes) {
      return absl::InvalidArgumentError(absl::StrCat("kernel ", info.symbol, " takes ",
                                                     argument.bytes, " bytes for '", argument.name,
                                                     "', which has ", place.bytes));
    }
    loaded.arguments_.push_back(place.data);
  }
  return loaded;
}

}  // namespace heddle::internal
