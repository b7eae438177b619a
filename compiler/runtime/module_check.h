// Checks a manifest against the sections of its module.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "compiler/runtime/module.h"

namespace heddle::runtime {

// Bytes of an element; 0 for a type that modules do not have.
int64_t SizeOfDType(const std::string& dtype);

// OK if every index, offset and size in the manifest lies within what it refers to. Then an
// executor needs no further checks. InvalidArgument names the first one that does not.
absl::Status CheckModule(const Module& module);

}  // namespace heddle::runtime
