// Estimates how much of its buffers a kernel touches. Internal to this folder.
#pragma once

#include <cstdint>

#include "compiler/ir/ir.h"

namespace heddle::internal {

// Bytes of the inputs that a call certainly does not read, because it makes fewer loads than they
// have elements: rows of a table that are not looked up, elements that a strided slice skips.
int64_t UntouchedBytes(const ir::Program& naive);

}  // namespace heddle::internal
