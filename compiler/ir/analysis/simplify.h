// Integer reasoning about index expressions: ranges, linear forms, and rewriting by both.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/ir/analysis/interval.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// The tightest interval the analysis finds for an integer expression; nullopt when a variable has
// no range or an operation is not understood.
std::optional<Interval> Bounds(const Expr& e, const Ranges& ranges);

// sum of coefficient x term + constant, where a term is a variable or an expression that is not
// linear (a division, a load). Terms are distinct under StructuralEqual and come in order of first
// appearance.
using Terms = std::vector<std::pair<Expr, int64_t>>;  // each with its coefficient
struct Linear {
  Terms terms;
  int64_t constant = 0;
};
Linear ToLinear(const Expr& e);
Expr FromLinear(const Linear& linear);

// Equal value for every assignment within `ranges`; canonical order; divisions and moduli of affine
// forms by constants are resolved where ranges allow it; comparisons that ranges decide become
// constants. Floats are only constant-folded.
Expr Simplify(const Expr& e, const Ranges& ranges);
// Simplifies every expression under its loops' ranges, removes empty loops, loops of extent one and
// decided conditions. Loops of blocks keep their identity when `keep_loops` (schedules refer to
// them by name).
Stmt Simplify(const Stmt& s, bool keep_loops);

}  // namespace heddle::ir
