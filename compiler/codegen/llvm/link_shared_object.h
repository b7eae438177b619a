// Links object code to a shared object, in this process.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace heddle::codegen {

// The bytes of an ELF shared object made of one relocatable ELF object. Equal input gives equal
// output. Thread-safe: the linker has global state, so only one call runs at a time, with the
// linker's signal handlers installed. Internal: the linker refuses, with its message. Unavailable:
// a signal ended the linker, or an earlier failure damaged its state; another process may be able
// to link this object.
absl::StatusOr<std::string> LinkSharedObject(std::string_view object);

}  // namespace heddle::codegen
