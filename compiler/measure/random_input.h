// The input values that kernels are checked with. Internal to this folder.
#pragma once

#include "base/splitmix.h"
#include "compiler/ir/ir.h"

namespace heddle::internal {

// Fills a buffer with floats in [-1, 1) or integers from 1 to 4, so that nothing divides by zero
// and indices stay small. Integers with a range (Buffer::below) are spread over it.
void FillInput(const ir::Buffer& buffer, void* data, SplitMix& random);

}  // namespace heddle::internal
