#include "compiler/pass/partition_loops.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

using namespace ir;

namespace {

// Iterations [begin, end).
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};

int64_t CeilDiv(int64_t a, int64_t b) { return -FloorDivInt(-a, b); }

// The number of stores in `s` once its unrolled loops are copies: the cost of a second copy of `s`.
int64_t Weight(const Stmt& s) {
  int64_t stores = As<Store>(s) != nullptr;
  ForEachChild(s, [&](const Stmt& child) { stores += Weight(child); });
  const For* loop = As<For>(s);
  return loop && loop->kind == LoopKind::kUnrolled ? stores * loop->extent : stores;
}

class Partitioner {
 public:
  explicit Partitioner(const Program& program) : names_(program) {}

  Stmt Run(const Stmt& s) {
    if (auto* loop = As<For>(s)) return RunLoop(s, *loop);
    return MapChildren(s, [&](const Stmt& child) { return Run(child); });
  }

 private:
  // `s` is the loop.
  Stmt RunLoop(const Stmt& s, const For& loop) {
    ranges_[loop.var.get()] = {0, loop.extent - 1};
    const Expr var = VarExpr(loop.var);
    if (loop.kind == LoopKind::kParallel)
      return MapChildren(s, [&](const Stmt& body) { return RunFused(body, var, {}); });
    std::vector<Span> parts;
    if (loop.kind == LoopKind::kSerial) parts = Parts(loop.body, var, loop.extent);
    if (parts.empty()) return MapChildren(s, [&](const Stmt& body) { return Run(body); });
    std::vector<Stmt> result;
    for (Span span : parts) result.push_back(Part(loop, span, result.empty()));
    for (size_t k : LongestFirst(parts)) result[k] = Run(result[k]);
    return MakeSeq(std::move(result));
  }

  // The body of a parallel loop. If the loop was fused from several, their variables are quotients
  // and remainders of its own. The body then stands once for each part of their values, under a
  // guard that decides the conditions inside. `done`: terms that are cut already.
  Stmt RunFused(const Stmt& body, const Expr& var, std::vector<Expr> done) {
    std::vector<Expr> conditions;
    Collect(body, &conditions);
    for (const Expr& condition : conditions) {
      if (!IsComparison(condition)) continue;
      for (const auto& [term, c] : ToLinear(condition->args[1] - condition->args[0]).terms) {
        const std::vector<VarRef> vars = FreeVars(term);
        if (vars.size() != 1 || vars[0] != var->var || StructuralEqual(term, var)) continue;
        if (std::any_of(done.begin(), done.end(),
                        [&t = term](const Expr& e) { return StructuralEqual(e, t); }))
          continue;
        done.push_back(term);
        const std::optional<Interval> bounds = Bounds(term, ranges_);
        if (!bounds || bounds->min != 0) continue;
        const std::vector<Span> parts = Parts(body, term, bounds->max + 1);
        if (parts.empty()) continue;
        std::vector<Stmt> result;
        for (size_t k = 0; k < parts.size(); ++k)
          result.push_back(k == 0 ? body : names_.Clone(body));
        for (size_t k : LongestFirst(parts)) {
          const Expr inside = And(Le(Int(parts[k].begin), term), Lt(term, Int(parts[k].end)));
          result[k] = MakeStmt(If{inside, RunFused(result[k], var, done)});
        }
        return MakeSeq(std::move(result));
      }
    }
    return Run(body);
  }

  // The order in which parts are cut further. Guards cost most where most iterations are, so these
  // are the first to use what is left of the budget.
  static std::vector<size_t> LongestFirst(const std::vector<Span>& parts) {
    std::vector<size_t> order(parts.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return parts[a].end - parts[a].begin > parts[b].end - parts[b].begin;
    });
    return order;
  }

  // The parts of the values [0, extent) of `term`. Empty if they are not cut, or if that exceeds
  // the budget.
  std::vector<Span> Parts(const Stmt& body, const Expr& term, int64_t extent) {
    const Span interior = Interior(body, term, extent);
    std::vector<Span> parts;
    for (Span span : {Span{0, interior.begin}, interior, Span{interior.end, extent}}) {
      if (span.begin < span.end) parts.push_back(span);
    }
    const int64_t growth = (static_cast<int64_t>(parts.size()) - 1) * Weight(body);
    if (parts.size() == 1 || growth > budget_) return {};
    budget_ -= growth;
    return parts;
  }

  Stmt Part(const For& loop, Span span, bool first) {
    if (span.end - span.begin == 1) {
      Stmt body = Substitute(loop.body, {{loop.var.get(), Int(span.begin)}});
      return first ? body : names_.Clone(body);
    }
    Stmt body = loop.body;
    if (span.begin > 0)
      body = Substitute(body, {{loop.var.get(), VarExpr(loop.var) + Int(span.begin)}});
    Stmt part = MakeStmt(For{loop.var, span.end - span.begin, loop.kind, body});
    return first ? part : names_.Clone(part);
  }

  // The values of `term` for which the conditions on it hold whatever the other variables are.
  // Ignores conditions for which there are no such values, alone or together with earlier ones.
  Span Interior(const Stmt& body, const Expr& term, int64_t extent) {
    Span interior{0, extent};
    std::vector<Expr> conditions;
    Collect(body, &conditions);
    for (const Expr& condition : conditions) {
      Span holds = Holds(condition, term, extent);
      Span both{std::max(interior.begin, holds.begin), std::min(interior.end, holds.end)};
      if (both.begin < both.end) interior = both;
    }
    return interior;
  }

  // Adds the conjuncts of all guards under `s`, and notes the ranges of the loops in `s`.
  void Collect(const Stmt& s, std::vector<Expr>* conditions) {
    auto add = [&](const Expr& e) { Split(e, conditions); };
    VisitStmt(s, [&](const Stmt& x) {
      if (auto* loop = As<For>(x)) ranges_[loop->var.get()] = {0, loop->extent - 1};
      if (auto* branch = As<If>(x)) add(branch->condition);
      return true;
    });
    VisitStmtExprs(s, [&](const Expr& e) {
      VisitExpr(e, [&](const Expr& x) {
        if (x->kind == ExprKind::kOp && x->op == Op::kSelect) add(x->args[0]);
      });
    });
  }

  static void Split(const Expr& e, std::vector<Expr>* conjuncts) {
    if (e->kind == ExprKind::kOp && e->op == Op::kAnd) {
      Split(e->args[0], conjuncts);
      Split(e->args[1], conjuncts);
    } else {
      conjuncts->push_back(e);
    }
  }

  static bool IsComparison(const Expr& e) {
    return (IsOp(e, Op::kLt) || IsOp(e, Op::kLe)) && e->args[0]->dtype == DType::kI64;
  }

  // The values of `of` for which `a < b` or `a <= b` holds for every value of the other variables.
  // All values if nothing is known.
  Span Holds(const Expr& condition, const Expr& of, int64_t extent) {
    const Span everywhere{0, extent};
    if (!IsComparison(condition)) return everywhere;
    Linear difference = ToLinear(condition->args[1] - condition->args[0]);
    int64_t coefficient = 0;
    // The condition holds if coefficient * of + least >= 0.
    int64_t least = difference.constant - (condition->op == Op::kLt ? 1 : 0);
    for (const auto& [term, c] : difference.terms) {
      if (StructuralEqual(term, of)) {
        coefficient = c;
        continue;
      }
      const bool bound = of->kind == ExprKind::kVar && UsesVar(term, of->var.get());
      std::optional<Interval> bounds = bound ? std::nullopt : Bounds(term, ranges_);
      if (!bounds) return everywhere;
      least += c > 0 ? c * bounds->min : c * bounds->max;
    }
    if (coefficient > 0) return {std::max<int64_t>(0, CeilDiv(-least, coefficient)), extent};
    if (coefficient < 0) return {0, std::min(extent, FloorDivInt(least, -coefficient) + 1)};
    return everywhere;
  }

  FreshNames names_;
  Ranges ranges_;
  int64_t budget_ = kMaxPartitionedStores;
};

}  // namespace

Program PartitionLoops(const Program& program) {
  Program result = program;
  result.body = ir::Simplify(Partitioner(program).Run(program.body), /*keep_loops=*/false);
  return result;
}

}  // namespace heddle::pass
