#include "compiler/pass/partition_loops.h"

#include <algorithm>
#include <unordered_set>

#include "compiler/ir/fold.h"
#include "compiler/ir/simplify.h"
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

// Stores `s` holds once its unrolled loops are copies: what it costs to have it twice.
int64_t Weight(const Stmt& s) {
  if (auto* loop = As<For>(s))
    return Weight(loop->body) * (loop->kind == LoopKind::kUnrolled ? loop->extent : 1);
  if (auto* branch = As<If>(s)) return Weight(branch->body);
  if (auto* alloc = As<Alloc>(s)) return Weight(alloc->body);
  int64_t sum = As<Store>(s) != nullptr;
  if (auto* seq = As<Seq>(s)) {
    for (const Stmt& child : seq->stmts) sum += Weight(child);
  }
  return sum;
}

class Partitioner {
 public:
  explicit Partitioner(const Program& program) : names_(program) {}

  Stmt Run(const Stmt& s) {
    if (auto* seq = As<Seq>(s)) {
      std::vector<Stmt> stmts;
      for (const Stmt& child : seq->stmts) stmts.push_back(Run(child));
      return MakeSeq(std::move(stmts));
    }
    if (auto* branch = As<If>(s)) return MakeStmt(If{branch->condition, Run(branch->body)});
    if (auto* alloc = As<Alloc>(s)) return MakeStmt(Alloc{alloc->buffer, Run(alloc->body)});
    if (auto* loop = As<For>(s)) return RunLoop(*loop);
    return s;
  }

 private:
  Stmt RunLoop(const For& loop) {
    ranges_[loop.var.get()] = {0, loop.extent - 1};
    Span interior{0, loop.extent};
    if (loop.kind == LoopKind::kSerial) interior = Interior(loop);
    const int64_t parts = 1 + (interior.begin > 0) + (interior.end < loop.extent);
    const int64_t growth = (parts - 1) * Weight(loop.body);
    if (parts == 1 || growth > budget_)
      return MakeStmt(For{loop.var, loop.extent, loop.kind, Run(loop.body)});
    budget_ -= growth;
    std::vector<Stmt> result;
    for (Span span : {Span{0, interior.begin}, interior, Span{interior.end, loop.extent}}) {
      if (span.begin == span.end) continue;
      result.push_back(Run(Part(loop, span, result.empty())));
    }
    return MakeSeq(std::move(result));
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

  // The iterations in which conditions on the loop's variable hold whatever the other variables
  // are. Conditions that never do so are left out; so are those that would leave nothing.
  Span Interior(const For& loop) {
    Span interior{0, loop.extent};
    std::vector<Expr> conditions;
    Collect(loop.body, &conditions);
    for (const Expr& condition : conditions) {
      Span holds = Holds(condition, loop);
      Span both{std::max(interior.begin, holds.begin), std::min(interior.end, holds.end)};
      if (both.begin < both.end) interior = both;
    }
    return interior;
  }

  // The conjuncts of all guards under `s`, which also notes the ranges of the loops in there.
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

  // Where `a < b` or `a <= b` holds for every value of the other variables; everywhere when nothing
  // is known.
  Span Holds(const Expr& condition, const For& loop) {
    const Span everywhere{0, loop.extent};
    if (condition->kind != ExprKind::kOp || (condition->op != Op::kLt && condition->op != Op::kLe))
      return everywhere;
    if (condition->args[0]->dtype != DType::kI64) return everywhere;
    Linear difference = ToLinear(condition->args[1] - condition->args[0]);
    int64_t coefficient = 0;
    // coefficient * var + least >= 0 is what has to hold.
    int64_t least = difference.constant - (condition->op == Op::kLt ? 1 : 0);
    for (const auto& [term, c] : difference.terms) {
      if (term->kind == ExprKind::kVar && term->var == loop.var) {
        coefficient = c;
        continue;
      }
      std::optional<Interval> bounds =
          UsesVar(term, loop.var.get()) ? std::nullopt : Bounds(term, ranges_);
      if (!bounds) return everywhere;
      least += c > 0 ? c * bounds->min : c * bounds->max;
    }
    if (coefficient > 0) return {std::max<int64_t>(0, CeilDiv(-least, coefficient)), loop.extent};
    if (coefficient < 0) return {0, std::min(loop.extent, FloorDivInt(least, -coefficient) + 1)};
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
