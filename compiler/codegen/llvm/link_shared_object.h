// Object code to a shared object, in this process.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle::codegen {

// The bytes of an ELF shared object made of one relocatable ELF object. Reproducible: equal input
// gives equal output. Thread-safe (calls take turns: the linker has global state). Internal with
// the linker's message when it refuses. Unavailable: a signal ended it, or an earlier failure
// damaged its state for good; another process may link this. While it runs, the process has its
// signal handlers.
absl::StatusOr<std::string> LinkSharedObject(std::string_view object);

}  // namespace heddle::codegen
