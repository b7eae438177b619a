#include "compiler/pass/prefetch_ahead.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "compiler/ir/analysis/index.h"
#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/visit.h"

namespace heddle::pass {

namespace {

using namespace ir;

// A term of an address: how far a loop moves the address, and which loop.
struct Term {
  Expr value;  // a loop variable, or its quotient or remainder by `divisor` (of fused loops)
  int64_t stride = 0;
  int64_t steps = 1;    // it takes the values 0 .. steps - 1
  int64_t divisor = 0;  // of a quotient, otherwise 0
  size_t depth = 0;     // of its loop
};

class Planner {
 public:
  explicit Planner(const machine::TargetInfo& target)
      : line_bytes_(target.line_bytes), fit_(target.code.fetch) {}

  void Visit(const Stmt& s) {
    auto* loop = As<For>(s);
    if (loop) {
      ranges_[loop->var.get()] = {0, loop->extent - 1};
      loops_.push_back(loop);
    }
    if (auto* store = As<Store>(s)) {
      VisitLoads(store->value, [&](const Expr& load) {
        if (load->buffer->constant && !load->args.empty()) Plan(load);
      });
    }
    ForEachChild(s, [&](const Stmt& child) { Visit(child); });
    if (loop) loops_.pop_back();
  }

  // Statements to put at the head of a loop's body.
  std::unordered_map<const Var*, std::vector<Stmt>> heads;

 private:
  std::optional<size_t> DepthOf(const Expr& var) const {
    for (size_t d = 0; d < loops_.size(); ++d) {
      if (var->kind == ExprKind::kVar && loops_[d]->var == var->var) return d;
    }
    return std::nullopt;
  }

  // The terms of an address in elements, by ascending stride. nullopt unless each is a loop
  // variable, or its quotient or remainder by a constant, and has a positive stride.
  std::optional<std::vector<Term>> TermsOf(const Linear& linear) const {
    std::vector<Term> terms;
    for (const auto& [value, stride] : linear.terms) {
      Term term{value, stride};
      const bool divides = IsOp(value, Op::kFloorDiv) || IsOp(value, Op::kFloorMod);
      const std::optional<size_t> depth = DepthOf(divides ? value->args[0] : value);
      if (!depth || stride <= 0) return std::nullopt;
      term.depth = *depth;
      term.steps = loops_[*depth]->extent;
      if (divides) {
        int64_t divisor = 0;
        if (!IsConstInt(value->args[1], &divisor) || divisor <= 0) return std::nullopt;
        if (value->op == Op::kFloorDiv) term.divisor = divisor;
        term.steps = value->op == Op::kFloorMod ? std::min(term.steps, divisor)
                                                : (term.steps + divisor - 1) / divisor;
      }
      terms.push_back(std::move(term));
    }
    std::sort(terms.begin(), terms.end(),
              [](const Term& a, const Term& b) { return a.stride < b.stride; });
    return terms;
  }

  void Plan(const Expr& load) {
    const Linear linear = LinearIndex(*load->buffer, load->args, ranges_);
    const std::optional<std::vector<Term>> terms = TermsOf(linear);
    if (!terms) return;
    int64_t panel = 1;  // elements that the terms so far reach
    for (size_t k = 0; k < terms->size(); ++k) {
      const Term& term = (*terms)[k];
      if (term.stride == panel && panel * SizeOf(load->dtype) >= fit_.min_panel_bytes &&
          IsOutside(*terms, k)) {
        if (panel * SizeOf(load->dtype) > fit_.max_panel_bytes) return;
        // Spread fails if too many lines are due at a time. A larger panel that is used several
        // times leaves more time.
        if (Spread(load, *terms, k, panel)) return;
      }
      if (term.stride > panel) return;  // gaps
      panel += term.stride * (term.steps - 1);
    }
  }

  // Whether the loop of term k is outside those of the terms before it and inside those of the
  // terms after it.
  static bool IsOutside(const std::vector<Term>& terms, size_t k) {
    for (size_t i = 0; i < terms.size(); ++i) {
      const bool same = terms[i].depth == terms[k].depth;
      if (i < k && terms[i].depth < terms[k].depth) return false;
      if (i < k && same && terms[k].divisor == 0) return false;
      if (i > k && terms[i].depth >= terms[k].depth) return false;
    }
    return true;
  }

  // Whether the loop of `outer` is outside that of `inner` and moves the address on from where that
  // one ends.
  static bool Continues(const Term& inner, const Term& outer) {
    return outer.depth < inner.depth && outer.stride == inner.stride * inner.steps;
  }

  // Prefetches in the outermost loop in which at most a line is due in each iteration, or else in
  // the innermost one. False if too many lines are due there.
  bool Spread(const Expr& load, const std::vector<Term>& terms, size_t k, int64_t panel) {
    const Term& next = terms[k];
    const int64_t line = line_bytes_ / SizeOf(load->dtype);
    Expr progress = Int(0);
    int64_t iterations = 1;
    if (next.divisor > 0) {
      iterations = next.divisor;
      progress = Make(Op::kFloorMod, {next.value->args[0], Int(next.divisor)});
    }
    for (size_t d = 0; d <= next.depth; ++d) {
      // Each vector lane would have its own address.
      if (loops_[d]->kind == LoopKind::kVectorized) return true;
    }
    const For* place = nullptr;
    Expr at;
    int64_t share = 0;
    for (size_t d = next.depth + 1; d < loops_.size(); ++d) {
      const For& loop = *loops_[d];
      if (loop.kind != LoopKind::kSerial) break;
      progress = progress * Int(loop.extent) + VarExpr(loop.var);
      iterations *= loop.extent;
      place = &loop;
      at = progress;
      share = (panel + iterations - 1) / iterations;
      if (share <= line) break;
    }
    if (place == nullptr || share > fit_.lines_at_once * line) return false;
    // If loops outside continue the addresses without a gap, the panels continue through them.
    size_t last = k;
    int64_t panels = next.steps;
    Expr number = next.value;
    for (; last + 1 < terms.size() && Continues(terms[last], terms[last + 1]); ++last) {
      number = terms[last + 1].value * Int(panels) + number;
      panels *= terms[last + 1].steps;
    }
    if (panels < 2 || !planned_.insert({load->buffer.get(), place->var.get()}).second) return true;
    // The panel after the last one is the last one again.
    Expr start = Make(Op::kMin, {number + Int(1), Int(panels - 1)}) * Int(next.stride);
    for (size_t i = last + 1; i < terms.size(); ++i) {
      start = start + terms[i].value * Int(terms[i].stride);
    }
    for (int64_t offset = 0; offset < share; offset += line) {
      std::vector<Expr> indices(load->args.size(), Int(0));
      indices.back() = start + at * Int(share) + Int(offset);
      heads[place->var.get()].push_back(MakeStmt(Prefetch{Load(load->buffer, indices)}));
    }
    return true;
  }

  int64_t line_bytes_;
  machine::FetchFit fit_;
  Ranges ranges_;
  std::vector<const For*> loops_;  // around the current statement
  std::set<std::pair<const Buffer*, const Var*>> planned_;
};

}  // namespace

Program PrefetchAhead(const Program& program, const machine::TargetInfo& target) {
  Planner planner(target);
  planner.Visit(program.body);
  if (planner.heads.empty()) return program;
  Program result = program;
  result.body = RewriteStmt(program.body, [&](const Stmt& s) -> Stmt {
    auto* loop = As<For>(s);
    if (loop == nullptr) return s;
    const auto it = planner.heads.find(loop->var.get());
    if (it == planner.heads.end()) return s;
    std::vector<Stmt> body = it->second;
    body.push_back(loop->body);
    return MakeStmt(For{loop->var, loop->extent, loop->kind, MakeSeq(std::move(body))});
  });
  return result;
}

}  // namespace heddle::pass
