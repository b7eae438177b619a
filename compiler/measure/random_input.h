// The values that kernels are checked on. Internal to this folder.
#pragma once

#include "base/splitmix.h"
#include "compiler/ir/ir.h"

namespace heddle::internal {

// Floats in [-1, 1). Integers from 1 to 4: nothing divides by zero, and indices stay small.
void FillInput(const ir::Buffer& buffer, void* data, SplitMix& random);

}  // namespace heddle::internal
