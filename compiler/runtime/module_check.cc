#include "compiler/runtime/module_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/vocabulary/row_blocks.h"
#include "base/vocabulary/target.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/cuda/kernel.h"
#include "compiler/runtime/device_kind.h"

namespace heddle::runtime {
namespace {

// Bounds that no real model reaches. Below them, no product or sum of two sizes overflows.
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr int64_t kMaxBytes = int64_t{1} << 44;
constexpr size_t kMaxRank = 32;
constexpr int kMaxManifestThreads = 256;
constexpr size_t kMaxNames = size_t{1} << 20;  // columns or labels of a tensor
constexpr size_t kMaxNameBytes =
    4096;  // four times what models may have: invalid UTF-8 grows in the manifest

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("module manifest is inconsistent: ", what));
}

absl::Status CheckSamples(const TensorSpec& tensor, size_t columns) {
  if (tensor.samples.empty()) return absl::OkStatus();
  size_t count = 0;
  for (const std::vector<float>& values : tensor.samples) count += values.size();
  if (tensor.dtype == "f32" && tensor.samples.size() == columns && count <= kMostSamples)
    return absl::OkStatus();
  return Bad(absl::StrCat("tensor '", tensor.name, "' has ", count, " values to draw from for ",
                          tensor.samples.size(), " of its ", columns, " columns of ",
                          tensor.dtype));
}

// The shape of the tensor has been checked.
absl::Status CheckNames(const TensorSpec& tensor) {
  for (const auto* names : {&tensor.columns, &tensor.labels}) {
    if (names->size() > kMaxNames)
      return Bad(absl::StrCat("tensor '", tensor.name, "' has ", names->size(), " names"));
    for (const std::string& name : *names) {
      if (name.size() > kMaxNameBytes) {
        return Bad(
            absl::StrCat("tensor '", tensor.name, "' has a name of ", name.size(), " bytes"));
      }
    }
  }
  if (tensor.text && (tensor.dtype != "u8" || tensor.shape.empty()))
    return Bad(absl::StrCat("tensor '", tensor.name, "' has texts that are no bytes"));
  if (tensor.columns.empty() && tensor.samples.empty()) return absl::OkStatus();
  // A product that is too large already stays so, or is 0 in the end: no names fit either.
  const size_t rank = tensor.shape.size() - (tensor.text ? 1 : 0);
  size_t columns = rank == 0 ? 0 : 1;
  for (size_t d = 1; d < rank && columns <= kMaxNames; ++d)
    columns *= static_cast<size_t>(tensor.shape[d]);
  if (!tensor.columns.empty() && tensor.columns.size() != columns) {
    return Bad(absl::StrCat("tensor '", tensor.name, "' has ", tensor.columns.size(), " names for ",
                            columns, " columns"));
  }
  return CheckSamples(tensor, columns);
}

absl::Status CheckTensor(const TensorSpec& tensor) {
  if (SizeOfDType(tensor.dtype) == 0) {
    return Bad(absl::StrCat("tensor '", tensor.name, "' has unknown type '", tensor.dtype, "'"));
  }
  if (tensor.shape.size() > kMaxRank) {
    return Bad(absl::StrCat("tensor '", tensor.name, "' has rank ", tensor.shape.size()));
  }
  int64_t elements = 1;
  for (int64_t extent : tensor.shape) {
    if (extent < 0 || extent > kMaxElements / std::max<int64_t>(elements, 1)) {
      return Bad(absl::StrCat("tensor '", tensor.name, "' has extent ", extent));
    }
    elements *= extent;
  }
  return CheckNames(tensor);
}

// One input, at least; all tensors have their rows in dimension 0.
absl::Status CheckRows(const Manifest& manifest) {
  if (!manifest.independent_rows) return absl::OkStatus();
  const bool has_rows = !manifest.inputs.empty() && !manifest.inputs[0].shape.empty();
  const int64_t rows = has_rows ? manifest.inputs[0].shape[0] : 0;
  if (rows < 1) return Bad("rows are independent, but there are none");
  for (const auto* tensors : {&manifest.inputs, &manifest.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      if (tensor.shape.size() <= size_t{tensor.text} || tensor.shape[0] != rows ||
          !tensor.lengths.empty())
        return Bad(absl::StrCat("tensor '", tensor.name, "' does not have ", rows, " rows"));
    }
  }
  return absl::OkStatus();
}

// Blocks are fewer and fewer rows of independent ones.
absl::Status CheckBlocks(const Manifest& manifest) {
  if (manifest.NumBlocks() > kMostRowBlocks)
    return Bad(absl::StrCat("there are ", manifest.NumBlocks(), " blocks of rows"));
  for (size_t b = 1; b < manifest.NumBlocks(); ++b) {
    const int64_t rows = manifest.RowsOf(b);
    if (!manifest.independent_rows || rows < 1 || rows >= manifest.RowsOf(b - 1))
      return Bad(absl::StrCat("there is a block of ", rows, " rows"));
  }
  return absl::OkStatus();
}

// What holds a length stands behind the model's own outputs.
absl::Status CheckLengths(const Manifest& manifest) {
  const int results = manifest.NumResults();
  if (results < 0) return Bad("an output that holds a length does not exist");
  for (int i = 0; i < static_cast<int>(manifest.outputs.size()); ++i) {
    const TensorSpec& tensor = manifest.outputs[static_cast<size_t>(i)];
    for (const DimLength& length : tensor.lengths) {
      const TensorSpec& holds = manifest.outputs[static_cast<size_t>(length.output)];
      if (i < results && length.axis >= 0 && length.axis < static_cast<int>(tensor.shape.size()) &&
          holds.dtype == "i64" && holds.shape.empty())
        continue;
      return Bad(absl::StrCat("output '", tensor.name, "' has an impossible length"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(int64_t bytes, const char* what) {
  if (bytes >= 0 && bytes <= kMaxBytes) return absl::OkStatus();
  return Bad(absl::StrCat(what, " is ", bytes, " bytes"));
}

bool IsInside(const BufferSlot& slot, int64_t size) {
  return slot.index >= 0 && slot.index % kBufferAlignment == 0 && slot.index <= size &&
         slot.bytes <= size - slot.index;
}

// Whether it is a tensor as the block has it.
bool IsWhole(const BufferSlot& slot, const std::vector<TensorSpec>& tensors,
             const Manifest& manifest, size_t block) {
  if (slot.index < 0 || slot.index >= static_cast<int64_t>(tensors.size())) return false;
  return slot.bytes == manifest.BytesInBlock(tensors[slot.index], block);
}

bool IsValid(const BufferSlot& slot, const Module& module, size_t block) {
  if (slot.bytes < 0) return false;
  switch (slot.place) {
    case Place::kInput:
      return IsWhole(slot, module.manifest.inputs, module.manifest, block);
    case Place::kOutput:
      return IsWhole(slot, module.manifest.outputs, module.manifest, block);
    case Place::kParam:
      return IsInside(slot, static_cast<int64_t>(module.params->size()));
    case Place::kArena:
      return IsInside(slot, module.manifest.arena_bytes);
  }
  return false;
}

absl::Status CheckKernel(const KernelSpec& kernel, const Manifest& manifest) {
  if (kernel.symbol.empty()) return Bad("a kernel has no symbol");
  if (kernel.workspace_bytes < 0 || kernel.workspace_bytes > manifest.workspace_bytes) {
    return Bad(absl::StrCat("kernel '", kernel.symbol, "' wants ", kernel.workspace_bytes,
                            " bytes of workspace, the module has ", manifest.workspace_bytes));
  }
  if (manifest.ForGpu() == kernel.launches.empty()) {
    return Bad(absl::StrCat("kernel '", kernel.symbol, "' has ", kernel.launches.size(),
                            " launches and is for ", manifest.target));
  }
  return absl::OkStatus();
}

absl::Status CheckCall(size_t index, size_t block, const Module& module) {
  const CallSpec& call = module.manifest.CallsOf(block)[index];
  if (call.kernel < 0 || call.kernel >= static_cast<int64_t>(module.manifest.kernels.size())) {
    return Bad(absl::StrCat("call ", index, " names kernel ", call.kernel));
  }
  for (size_t k = 0; k < call.buffers.size(); ++k) {
    if (IsValid(call.buffers[k], module, block)) continue;
    return Bad(absl::StrCat("call ", index, ", buffer ", k, " lies outside its place"));
  }
  const KernelSpec& kernel = module.manifest.kernels[static_cast<size_t>(call.kernel)];
  if (!module.manifest.ForGpu()) return absl::OkStatus();
  const absl::Status launches =
      CheckLaunches(kernel.launches, call.buffers.size(), kernel.workspace_bytes);
  if (!launches.ok()) return Bad(std::string(launches.message()));
  return absl::OkStatus();
}

}  // namespace

int64_t SizeOfDType(const std::string& dtype) {
  if (dtype == "bool" || dtype == "i8" || dtype == "u8") return 1;
  if (dtype == "f16" || dtype == "bf16" || dtype == "i16" || dtype == "u16") return 2;
  if (dtype == "i32" || dtype == "u32" || dtype == "f32") return 4;
  if (dtype == "i64" || dtype == "u64" || dtype == "f64") return 8;
  return 0;
}

int64_t TensorSpec::SizeBytes() const {
  int64_t bytes = SizeOfDType(dtype);
  for (int64_t extent : shape) bytes *= extent;
  return bytes;
}

int Manifest::NumResults() const {
  const int all = static_cast<int>(outputs.size());
  int first = all;
  for (const TensorSpec& tensor : outputs) {
    for (const DimLength& length : tensor.lengths) {
      if (length.output < 0 || length.output >= all) return -1;
      first = std::min(first, length.output);
    }
  }
  return first;
}

int64_t Manifest::RowsOf(size_t block) const {
  if (!independent_rows) return 0;
  return block == 0 ? inputs[0].shape[0] : smaller_blocks[block - 1].rows;
}

TensorSpec Manifest::InBlock(TensorSpec spec, size_t block) const {
  if (block != 0) spec.shape[0] = RowsOf(block);
  return spec;
}

int64_t Manifest::BytesInBlock(const TensorSpec& spec, size_t block) const {
  const int64_t bytes = spec.SizeBytes();
  return block == 0 ? bytes : bytes / RowsOf(0) * RowsOf(block);
}

bool Manifest::ForGpu() const { return FindDeviceKind(KindOf(target)) != nullptr; }

absl::Status CheckModule(const Module& module) {
  const Manifest& manifest = module.manifest;
  if (manifest.threads < 1 || manifest.threads > kMaxManifestThreads) {
    return Bad(absl::StrCat("threads is ", manifest.threads));
  }
  HEDDLE_RETURN_IF_ERROR(CheckBytes(manifest.arena_bytes, "arena"));
  HEDDLE_RETURN_IF_ERROR(CheckBytes(manifest.workspace_bytes, "workspace"));
  for (const auto* tensors : {&manifest.inputs, &manifest.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      HEDDLE_RETURN_IF_ERROR(CheckTensor(tensor));
    }
  }
  HEDDLE_RETURN_IF_ERROR(CheckLengths(manifest));
  HEDDLE_RETURN_IF_ERROR(CheckRows(manifest));
  HEDDLE_RETURN_IF_ERROR(CheckBlocks(manifest));
  for (const KernelSpec& kernel : manifest.kernels) {
    HEDDLE_RETURN_IF_ERROR(CheckKernel(kernel, manifest));
  }
  for (size_t b = 0; b < manifest.NumBlocks(); ++b) {
    for (size_t i = 0; i < manifest.CallsOf(b).size(); ++i) {
      HEDDLE_RETURN_IF_ERROR(CheckCall(i, b, module));
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::runtime
