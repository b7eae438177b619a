// The rules between a manifest and the sections beside it.
#pragma once

#include "absl/status/status.h"
#include "compiler/runtime/module.h"

namespace heddle::runtime {

// OK if every index, offset and size of the manifest lies inside what it refers to, so that an
// executor needs no further check; InvalidArgument naming the first entry that does not.
absl::Status CheckModule(const Module& module);

}  // namespace heddle::runtime
