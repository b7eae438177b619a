// Integer reasoning in a context: the ranges of variables, and the facts that enclosing guards
// establish. Code that walks a program keeps one Analyzer and pushes and pops its context;
// simplify.h is the interface for a single question.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/ir/analysis/simplify.h"

namespace heddle::ir {

class Analyzer {
 public:
  // `ranges`, when given, must outlive the analyzer.
  explicit Analyzer(const Ranges* ranges = nullptr) : base_(ranges) {}

  // The context is a stack: Restore(p) undoes what was bound or assumed since p = Mark().
  struct Position {
    size_t vars = 0;
    size_t facts = 0;
  };
  Position Mark() const { return {vars_.size(), facts_.size()}; }
  void Restore(Position position);
  void Bind(const Var* var, Interval range) { vars_.emplace_back(var, range); }
  // Adds the fact that `condition` is true (or false). Parts that are not understood are ignored.
  void Assume(const Expr& condition, bool holds = true);

  Expr Simplify(const Expr& e);
  // The simplified linear form of an i64 expression, its terms in canonical order.
  Linear SimplifyToLinear(const Expr& e);
  std::optional<Interval> Bounds(const Expr& e);
  // Whether low <= e < high is proven. Cheaper than Bounds where plain intervals suffice.
  bool IsWithin(const Expr& e, int64_t low, int64_t high);
  // Whether the condition is proven for every assignment that the context allows.
  bool Proves(const Expr& condition);
  // An i64 operation inside `e`, not inside the indices of its loads, whose result need not fit into
  // 64 bits; null if there is none. What is loaded without a range (Buffer.below), and what is
  // computed of that, is assumed to fit (ir.h). Uses the ranges of variables and no facts, so it
  // takes one walk over the expression.
  Expr FindOverflow(const Expr& e) const;

 private:
  // linearize.cc: canonical linear forms. divide.cc: quotients, remainders, and their joining.
  Linear Lin(const Expr& e);
  Linear LinOp(const Expr& e);
  Linear LinProduct(const Expr& e);
  Linear LinMinMax(const Expr& e);
  Linear LinSelect(const Expr& e);
  Linear DivBy(Linear l, int64_t divisor);
  Linear ModBy(Linear l, int64_t divisor);
  bool DivByCommonFactor(const Linear& rest, int64_t divisor, Linear& quotient);
  bool ModByCommonFactor(const Linear& rest, int64_t divisor, Linear& remainder);
  void Recombine(Linear& l);
  bool RecombineMod(Linear& l, size_t i);
  bool RecombineDiv(Linear& l, size_t i);
  bool ExpandModAtoms(Linear& l, int64_t divisor);

  // analyzer.cc: facts, and everything that is not i64 arithmetic.
  Expr SimplifyArgs(const Expr& e);
  Expr SimplifyLogic(const Expr& e);
  Expr SimplifyCompare(Op op, const Expr& a, const Expr& b);
  Expr SimplifyEqual(Op op, Linear difference);
  Expr SimplifyPositive(Linear difference);
  Expr SimplifySelect(const Expr& e);
  void AssumeSimplified(const Expr& condition, bool holds);
  void AddFact(Linear non_negative);
  void Keep(Linear non_negative);  // the end of AddFact
  void RenewFacts(const Var* var);
  void AddFactsOfDividends(const Linear& fact);

  // bounds.cc: intervals, infinite where nothing is known.
  struct Part;
  Part WalkForOverflow(const Expr& e, Expr* overflow) const;
  Interval RangeOf(const Var* var) const;
  Interval TreeBounds(const Expr& e);
  Interval DividendBounds(const Expr& e);
  Interval OpBounds(const Expr& e);
  Interval SelectBounds(const Expr& e);
  Interval LinearBounds(const Linear& l);
  void TightenByFacts(const Linear& l, Interval& bounds);
  void TightenByQuotients(const Linear& l, Interval& bounds);
  void TightenByMinMax(const Linear& l, Interval& bounds);

  const Ranges* base_;
  std::vector<std::pair<const Var*, Interval>> vars_;  // later entries win
  std::deque<Linear> facts_;  // each >= 0; references stay valid while more are assumed
  int effort_ = 0;            // nesting of sharper reasoning (bounds.cc)
  int dividend_depth_ = 0;
  bool renewing_ = false;  // inside RenewFacts
};

}  // namespace heddle::ir
