// Chooses the form of a convolution before anything is measured. Internal to this folder.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::schedule {

// The m of Winograd's F(m x m, 3 x 3) to prefer, 4 or 2, or 0 for the direct form. It is chosen by
// the estimated time on one of the target's threads. `block` must be a convolution that the
// primitive `winograd` accepts (primitives.h).
int PreferredWinograd(const ir::Block& block, const machine::TargetInfo& target);

}  // namespace heddle::schedule
