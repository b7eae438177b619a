// How much of its buffers a kernel touches. Internal to this folder.
#pragma once

#include <cstdint>

#include "compiler/ir/ir.h"

namespace heddle::internal {

// Bytes of the inputs that one call cannot have read, since it has fewer loads than they have
// elements: the rows of a table that are not looked up, what a strided slice leaves out.
int64_t UntouchedBytes(const ir::Program& naive);

}  // namespace heddle::internal
