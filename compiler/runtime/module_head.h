// Reads the code of a module without its parameters, which are by far the most of a large model.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/runtime/module.h"

namespace heddle::runtime {

// The manifest and the code of a module, from the first bytes of its file. The parameters are empty, and
// the manifest is not checked against them. OutOfRange: the code goes on behind these bytes. Other errors as
// ParseModule.
absl::StatusOr<Module> ParseModuleHead(std::string_view bytes);

}  // namespace heddle::runtime
