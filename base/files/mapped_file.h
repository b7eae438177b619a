// A part of a file as memory, without a copy: the system reads pages when they are used, and may
// drop them again at any time.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/files/shared_bytes.h"

namespace heddle {

// Maps `length` bytes from `offset` of a regular file, read-only; -1: to the end of the file. The
// bytes stay valid if the file is removed. If another process shortens the file, reading them ends
// this process with SIGBUS, so map only files that nobody changes.
// NotFound: there is no such file. OutOfRange: it is shorter. InvalidArgument: it is no regular file.
// ResourceExhausted: the address space is too small.
absl::StatusOr<SharedBytes> MapFile(const std::string& path, int64_t offset = 0,
                                    int64_t length = -1);

}  // namespace heddle
