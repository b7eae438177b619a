// Where accesses go: linear indices and strides.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// The row-major element number of an access, simplified. Indices of several dimensions that
// together walk one contiguous range, as split and fused loops leave them behind, become one term.
Linear LinearIndex(const Buffer& buffer, const std::vector<Expr>& indices, const Ranges& ranges);

// How far `var` moves a sum of terms when it advances by one: its coefficient, 0 if it does not
// occur. nullopt if a term holds it in any other way, such as inside a quotient.
std::optional<int64_t> Stride(const Terms& terms, const Var* var);
inline std::optional<int64_t> Stride(const Linear& linear, const Var* var) {
  return Stride(linear.terms, var);
}

// Whether every index provably lies within its dimension.
bool InBounds(const Buffer& buffer, const std::vector<Expr>& indices, const Ranges& ranges);

// Whether `e` holds a load that is not provably within bounds, so that it may be evaluated only
// where its guard holds.
bool NeedsGuard(const Expr& e, const Ranges& ranges);

// Whether some term of `linear` mentions `var`.
bool DependsOn(const Linear& linear, const Var* var);

}  // namespace heddle::ir
