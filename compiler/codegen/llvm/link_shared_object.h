// Object code to a shared object, in this process.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle::codegen {

// The bytes of an ELF shared object made of one relocatable ELF object. Equal input gives equal
// output. Thread-safe; calls take turns, because the linker has global state, and its signal
// handlers are installed while it runs. Internal, with the linker's message: it refuses.
// Unavailable: a signal ended it, or an earlier failure damaged its state; another process may be
// able to link this.
absl::StatusOr<std::string> LinkSharedObject(std::string_view object);

}  // namespace heddle::codegen
