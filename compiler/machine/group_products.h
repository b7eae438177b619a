// Which GPUs make products of four warps at a time (wgmma; compiler/ir/analysis/group_product.h).
#pragma once

#include "compiler/machine/target_info.h"

namespace heddle::machine {

// Later architectures have other instructions instead.
inline bool MakesGroupProducts(const TargetInfo& info) {
  return info.execution == Execution::kGrid && info.target.cpu == "sm_90";
}

}  // namespace heddle::machine
