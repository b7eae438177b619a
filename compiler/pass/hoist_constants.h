// Splits a scheduled program into what is computed when a module is made and what is computed at
// run time.
#pragma once

#include <optional>

#include "compiler/ir/ir.h"

namespace heddle::pass {

struct HoistedProgram {
  // The program without what was hoisted. Inputs: those of the original that are not `const`, the
  // `const` ones it still reads, then the prepacked buffers it reads (`const` too); outputs as
  // before. The original program if nothing is hoisted.
  ir::Program kernel;
  // Inputs: the `const` inputs it reads; outputs: the prepacked buffers the kernel reads. Absent if
  // nothing is hoisted.
  std::optional<ir::Program> prepack;
};

// Hoists the root statements that read nothing but `const` inputs and each other's results, such as
// packed weights and weights in the Winograd domain. Buffers keep their names. A module must stay
// small: while the prepacked buffers are larger than `kMaxPrepackGrowth` times the `const` inputs
// that they are made of, the largest of them is left to the kernel.
inline constexpr int64_t kMaxPrepackGrowth = 8;
HoistedProgram HoistConstants(const ir::Program& scheduled);

}  // namespace heddle::pass
