// Footprints: which interval of a dimension an index reaches while some loops run and the others
// stand still. The variables of loops that stand still remain symbolic.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// sum of coefficient x term + [lo, hi]; the terms hold only variables that stand still.
struct SymbolicInterval {
  Terms terms;
  int64_t lo = 0;
  int64_t hi = 0;
  // The values are exactly lo, lo + step, .., hi; if not exact, they lie between lo and hi.
  bool exact = true;
  int64_t step = 1;

  int64_t Width() const { return hi - lo; }
  bool IsDense() const { return Width() == 0 || (exact && step == 1); }
  bool IsConstant() const { return terms.empty(); }
  int64_t Extent() const { return hi - lo + 1; }
  // The lower end as an expression.
  Expr Base() const;
};

// Extents of the loops that run; every other variable stands still.
using RunningLoops = std::unordered_map<const Var*, int64_t>;

// The values that an integer expression takes while the loops in `running` run; not always tight.
// nullopt if an operation is not understood.
std::optional<SymbolicInterval> ReachOf(const Expr& e, const RunningLoops& running);

// The smallest interval around both. nullopt if their distance is not a constant.
std::optional<SymbolicInterval> Union(const SymbolicInterval& a, const SymbolicInterval& b);

}  // namespace heddle::ir
