// Whether bytes are a whole ELF file, before a loader that trusts their headers sees them.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace heddle::runtime {

// InvalidArgument: no 64-bit little-endian ELF file of this machine (EM_X86_64, ..) and, unless 0,
// this type (ET_DYN, ..), or headers that point beyond its end.
absl::Status CheckElf(std::string_view bytes, uint16_t machine, uint16_t type);

inline constexpr uint16_t kElfMachineCuda = 190;  // EM_CUDA

}  // namespace heddle::runtime
