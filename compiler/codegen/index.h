// Linear indices of buffer accesses. No LLVM in here.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/ir/simplify.h"

namespace heddle::codegen {

// The row-major element index of an access, as a simplified linear form: indices of several
// dimensions that together walk one contiguous range (what splitting and fusing loops leaves
// behind) become that range again.
ir::Linear LinearIndex(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices,
                       const ir::Ranges& ranges);

// Whether every index provably lies within its dimension.
bool InBounds(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices,
              const ir::Ranges& ranges);

// Whether `e` holds a load that is not provably within bounds: it may only be evaluated where its
// guard holds.
bool NeedsGuard(const ir::Expr& e, const ir::Ranges& ranges);

// Whether some term of `linear` mentions `var`.
bool DependsOn(const ir::Linear& linear, const ir::Var* var);

}  // namespace heddle::codegen
