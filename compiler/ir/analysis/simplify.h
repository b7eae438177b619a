// Rewriting of index expressions by the ranges of their variables, and linear forms.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/ir/analysis/interval.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// The tightest interval that the analysis finds for an integer expression. nullopt if a variable
// has no range or an operation is not understood.
std::optional<Interval> Bounds(const Expr& e, const Ranges& ranges);

// sum of coefficient x term + constant, where a term is a variable or an expression that is not
// linear (a division, a load). Terms are distinct under StructuralEqual.
using Terms = std::vector<std::pair<Expr, int64_t>>;  // each with its coefficient
struct Linear {
  Terms terms;
  int64_t constant = 0;
};
// Terms come in order of first appearance.
Linear ToLinear(const Expr& e);
Expr FromLinear(const Linear& linear);

// An expression of equal value for every assignment within `ranges`, with terms in canonical order.
// Resolves quotients and remainders of linear forms by constants, and comparisons, where the ranges
// decide them. Of float expressions it only folds constants.
Expr Simplify(const Expr& e, const Ranges& ranges);
// Simplifies every expression under the ranges of its loops; removes empty loops, loops of extent
// one except GPU loops, and decided conditions. `keep_loops` keeps loops of extent one, because
// schedules refer to loops by name.
Stmt Simplify(const Stmt& s, bool keep_loops);

}  // namespace heddle::ir
