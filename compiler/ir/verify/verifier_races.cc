// Rule `race`: iterations of loops that claim independence write disjoint elements.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compiler/ir/analysis/independence.h"
#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/verify/verifier_rules.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {
namespace {

class CommonLoopFinder {
 public:
  void Visit(const Stmt& s) {
    if (const Buffer* written = WrittenBuffer(s)) Access(written);
    ForEachExpr(s, [&](const Expr& e) {
      VisitLoads(e, [&](const Expr& load) { Access(load->buffer.get()); });
    });
    const For* loop = As<For>(s);
    if (loop) path_.push_back(loop);
    ForEachChild(s, [&](const Stmt& child) { Visit(child); });
    if (loop) path_.pop_back();
  }

  CommonLoops result;

 private:
  void Access(const Buffer* buffer) {
    auto [it, is_new] = result.try_emplace(buffer, path_);
    if (is_new) return;
    auto& common = it->second;
    const auto end = std::mismatch(common.begin(), common.end(), path_.begin(), path_.end()).first;
    common.erase(end, common.end());
  }

  std::vector<const For*> path_;
};

enum class Verdict { kDisjoint, kOverlap, kUnknown };

// The part that a variable or another term adds to an index while a loop stands still: multiples of
// `coefficient`, at most `spread` apart.
struct Inner {
  int64_t coefficient = 0, spread = 0;
};

// Whether coefficient * t + the inner terms differs between any two of `count` values of t. That is
// so if one step of t is larger than all inner terms together. It is also so if a step is larger
// than the small inner terms together, and all steps stay within the common period of the large
// ones, as for threads with virtual threads around their tile.
bool TellsApart(int64_t coefficient, int64_t count, const std::vector<Inner>& inner) {
  coefficient = std::abs(coefficient);
  int64_t all = 0, small = 0, period = 0, reach = 0;
  for (const Inner& term : inner) {
    const bool is_small = std::abs(term.coefficient) < coefficient;
    if (__builtin_add_overflow(all, term.spread, &all)) all = INT64_MAX;
    if (is_small && __builtin_add_overflow(small, term.spread, &small)) return false;
    if (!is_small) period = std::gcd(period, term.coefficient);
  }
  if (coefficient > all) return true;
  return coefficient > small && !__builtin_mul_overflow(coefficient, count - 1, &reach) &&
         !__builtin_add_overflow(reach, small, &reach) && reach < period;
}

// Whether one number (an index, or several joined) tells the iterations of loops[at] apart.
Verdict Separates(const Expr& index, const std::vector<const For*>& loops, size_t at,
                  Analyzer& analyzer) {
  const Var* var = loops[at]->var.get();
  const Linear l = analyzer.SimplifyToLinear(index);
  int64_t coefficient = 0;
  std::vector<Inner> inner;
  Linear together;  // what varies while the loop stands still
  for (const auto& [term, c] : l.terms) {
    if (term->kind == ExprKind::kVar && term->var.get() == var) {
      coefficient = c;
      continue;
    }
    if (UsesVar(term, var)) return Verdict::kUnknown;
    bool varies = HasLoad(term);
    for (size_t i = at + 1; i < loops.size() && !varies; ++i)
      varies = UsesVar(term, loops[i]->var.get());
    if (!varies) continue;
    together.terms.emplace_back(term, c);
    const auto bounds = analyzer.Bounds(term);
    int64_t width = 0;
    if (!bounds || __builtin_sub_overflow(bounds->max, bounds->min, &width) ||
        __builtin_mul_overflow(width, std::abs(c), &width)) {
      return Verdict::kUnknown;
    }
    inner.push_back({c, width});
  }
  if (coefficient == 0) return Verdict::kOverlap;
  if (TellsApart(coefficient, loops[at]->extent, inner)) return Verdict::kDisjoint;
  // Guards may keep the sum of the inner terms within a smaller range than the sum of their ranges.
  const auto bounds = analyzer.Bounds(FromLinear(together));
  return bounds && std::abs(coefficient) > bounds->max - bounds->min ? Verdict::kDisjoint
                                                                     : Verdict::kOverlap;
}

// The verdict on all indices. Tries the indices one by one, and then all that depend on the loop
// joined into one mixed-radix number, in which fused loops become one term again.
Verdict SeparatesAny(const std::vector<Expr>& indices, const Buffer& buffer,
                     const std::vector<const For*>& loops, size_t at, Analyzer& analyzer) {
  const Var* var = loops[at]->var.get();
  bool unknown = false;
  Expr joined;
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!UsesVar(indices[k], var)) continue;
    const Verdict verdict = Separates(indices[k], loops, at, analyzer);
    if (verdict == Verdict::kDisjoint) return verdict;
    unknown |= verdict == Verdict::kUnknown;
    joined = joined ? joined * Int(buffer.shape[k]) + indices[k] : indices[k];
  }
  if (!joined) return Verdict::kOverlap;
  const Verdict verdict = Separates(joined, loops, at, analyzer);
  return verdict == Verdict::kOverlap && unknown ? Verdict::kUnknown : verdict;
}

}  // namespace

CommonLoops FindCommonLoops(const Program& program) {
  CommonLoopFinder finder;
  finder.Visit(program.body);
  return std::move(finder.result);
}

bool WritesOverlap(const std::vector<Expr>& indices, const Buffer& buffer,
                   const std::vector<const For*>& loops, size_t at, Analyzer& analyzer) {
  const auto range = analyzer.Bounds(VarExpr(loops[at]->var));
  if (range && range->min == range->max)
    return false;  // one iteration, or a guard that lets only one pass
  return SeparatesAny(indices, buffer, loops, at, analyzer) == Verdict::kOverlap;
}

bool WritesApart(const std::vector<Expr>& indices, const Buffer& buffer,
                 const std::vector<const For*>& loops) {
  Analyzer analyzer;
  for (const For* loop : loops) analyzer.Bind(loop->var.get(), {0, loop->extent - 1});
  return SeparatesAny(indices, buffer, loops, 0, analyzer) == Verdict::kDisjoint;
}

}  // namespace heddle::ir
