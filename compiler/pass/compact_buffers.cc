#include "compiler/pass/compact_buffers.h"

#include <algorithm>
#include <unordered_set>

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/visit.h"

namespace heddle::pass {

using namespace ir;

namespace {

// The tile of one dimension: [base + lo, base + hi].
struct Reach {
  bool known = false;  // some access has been seen
  bool whole = false;  // not a tile but the whole dimension
  Linear base;         // in variables of the loops outside the allocation
  int64_t lo = 0;
  int64_t hi = 0;
};

bool SameTerms(const Linear& a, const Linear& b) {
  auto has = [&](const std::pair<Expr, int64_t>& term) {
    return std::any_of(b.terms.begin(), b.terms.end(), [&](const auto& other) {
      return other.second == term.second && StructuralEqual(other.first, term.first);
    });
  };
  return a.terms.size() == b.terms.size() && std::all_of(a.terms.begin(), a.terms.end(), has);
}

// Calls `fn` with the indices of every access of `buffer`.
void VisitAccesses(const Stmt& s, const Buffer* buffer,
                   absl::FunctionRef<void(const std::vector<Expr>&)> fn) {
  VisitStmt(s, [&](const Stmt& x) {
    if (auto* store = As<Store>(x); store && store->buffer.get() == buffer) fn(store->indices);
    return true;
  });
  VisitLoads(s, [&](const Expr& load) {
    if (load->buffer.get() == buffer) fn(load->args);
  });
}

class Compactor {
 public:
  Stmt Run(const Stmt& s) {
    if (auto* alloc = As<Alloc>(s)) return RunAlloc(s, *alloc);
    auto* loop = As<For>(s);
    if (loop) outer_[loop->var.get()] = {0, loop->extent - 1};
    Stmt result = RunChildren(s);
    if (loop) outer_.erase(loop->var.get());
    return result;
  }

 private:
  Stmt RunChildren(const Stmt& s) {
    return MapChildren(s, [&](const Stmt& child) { return Run(child); });
  }

  // `s` is the allocation.
  Stmt RunAlloc(const Stmt& s, const Alloc& alloc) {
    const Buffer& buffer = *alloc.buffer;
    inner_.clear();
    VisitStmt(alloc.body, [&](const Stmt& x) {
      if (auto* loop = As<For>(x)) inner_[loop->var.get()] = {0, loop->extent - 1};
      return true;
    });
    std::vector<Reach> tile(buffer.shape.size());
    VisitAccesses(alloc.body, &buffer, [&](const std::vector<Expr>& indices) {
      for (size_t d = 0; d < indices.size(); ++d) Include(indices[d], &tile[d]);
    });
    auto compact = std::make_shared<Buffer>(buffer);
    std::vector<Expr> corner;
    bool changed = false;
    for (size_t d = 0; d < tile.size(); ++d) {
      const Reach& reach = tile[d];
      const int64_t extent = reach.hi - reach.lo + 1;
      // Vector lanes that a guard keeps from running over the end of a local row get elements of
      // their own, so that every row fills whole registers.
      const bool widen =
          buffer.scope == Scope::kLocal && d + 1 == tile.size() && extent <= 2 * buffer.shape[d];
      const bool resize = reach.known && !reach.whole && extent != buffer.shape[d] &&
                          (extent < buffer.shape[d] || widen);
      corner.push_back(resize ? FromLinear(reach.base) + Int(reach.lo) : Int(0));
      if (resize) compact->shape[d] = extent;
      changed |= resize;
    }
    if (!changed) return RunChildren(s);
    return Run(MakeStmt(Alloc{compact, Rebased(alloc.body, &buffer, compact, corner)}));
  }

  // Widens `reach` by one access.
  void Include(const Expr& index, Reach* reach) {
    Ranges all = outer_;
    all.insert(inner_.begin(), inner_.end());
    Linear linear = Analyzer(&all).SimplifyToLinear(index);
    Linear outer, inner;
    inner.constant = linear.constant;
    for (auto& term : linear.terms) (OnlyOuter(term.first) ? outer : inner).terms.push_back(term);
    std::optional<Interval> bounds = ir::Bounds(FromLinear(inner), inner_);
    if (!bounds || (reach->known && !SameTerms(outer, reach->base))) {
      reach->known = reach->whole = true;
      return;
    }
    if (!reach->known) {
      *reach = Reach{true, false, outer, bounds->min, bounds->max};
      return;
    }
    reach->lo = std::min(reach->lo, bounds->min);
    reach->hi = std::max(reach->hi, bounds->max);
  }

  bool OnlyOuter(const Expr& e) {
    return !Any(e, [&](const Expr& x) {
      return x->kind == ExprKind::kLoad ||
             (x->kind == ExprKind::kVar && !outer_.count(x->var.get()));
    });
  }

  // The body with accesses of `from` replaced by accesses of `to`, whose indices count from
  // `corner`.
  static Stmt Rebased(const Stmt& body, const Buffer* from, const BufferRef& to,
                      const std::vector<Expr>& corner) {
    return MapElements(body, [&](const BufferRef& buffer, const std::vector<Expr>& indices) {
      std::optional<Element> moved;
      if (buffer.get() != from) return moved;
      moved = {to, {}};
      for (size_t d = 0; d < indices.size(); ++d) moved->indices.push_back(indices[d] - corner[d]);
      return moved;
    });
  }

  Ranges outer_;  // loops around the current statement
  Ranges inner_;  // loops inside the current allocation
};

}  // namespace

Program CompactBuffers(const Program& program) {
  Program result = program;
  result.body = Compactor().Run(program.body);
  return result;
}

}  // namespace heddle::pass
