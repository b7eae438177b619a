// Arithmetic of linear forms.
#pragma once

#include "compiler/ir/analysis/simplify.h"

namespace heddle::ir {

// terms += factor * term.
void AddTerm(Terms& terms, const Expr& term, int64_t factor);
inline void AddTerm(Linear& l, const Expr& term, int64_t factor) { AddTerm(l.terms, term, factor); }
// l += factor * other.
void AddScaled(Linear& l, const Linear& other, int64_t factor);
// Index of the term, or -1.
int FindTerm(const Terms& terms, const Expr& term);
inline int FindTerm(const Linear& l, const Expr& term) { return FindTerm(l.terms, term); }
// A total order that depends on structure and names only, never on addresses. Negative, zero or
// positive.
int CompareExpr(const Expr& a, const Expr& b);
// Positive coefficients first, large ones first, then CompareExpr.
void SortTerms(Linear& l);
// Greatest common divisor of the coefficients; 0 without terms.
int64_t CommonFactor(const Linear& l);
bool IsOp(const Expr& e, Op op);
// The form of one term or constant; whether a form is just one term.
Linear Atom(Expr e);
bool IsAtom(const Linear& l);
// The expression of a form, its terms sorted.
Expr Sorted(Linear l);

}  // namespace heddle::ir
