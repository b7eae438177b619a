// Checks that bytes are a complete ELF file before they reach a loader that trusts their headers.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace heddle::runtime {

// InvalidArgument unless the bytes are a 64-bit little-endian ELF file for `machine` (EM_X86_64,
// ..) and of `type` (ET_DYN, ..; 0 allows any) whose headers point nowhere beyond its end.
absl::Status CheckElf(std::string_view bytes, uint16_t machine, uint16_t type);

inline constexpr uint16_t kElfMachineCuda = 190;  // EM_CUDA

}  // namespace heddle::runtime
