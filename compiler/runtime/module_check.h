// The rules between a manifest and the sections beside it.
#pragma once

#include "absl/status/status.h"
#include "compiler/runtime/module.h"

namespace heddle::runtime {

// OK if every index, offset and size of the manifest lies within its target, so that an executor
// needs no further checks. InvalidArgument names the first one that does not.
absl::Status CheckModule(const Module& module);

}  // namespace heddle::runtime
