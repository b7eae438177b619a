#include "compiler/pass/insert_barriers.h"

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/visit.h"

namespace heddle::pass {

using namespace ir;

namespace {

struct Access {
  const Buffer* buffer;
  std::vector<Expr> indices;  // empty: all of it
  bool write;
  const void* origin = nullptr;  // the load or store; null for all of a buffer
};
using Accesses = std::vector<Access>;

// With more pending accesses than this, those to one buffer are merged into an access to all of it,
// because the work is quadratic.
constexpr size_t kMaxAccesses = 256;

bool IsGpuLoop(const Stmt& s) {
  const For* loop = As<For>(s);
  return loop && (IsGpuBlock(loop->kind) || IsGpuThread(loop->kind));
}

bool IsThreadLoop(const Stmt& s) {
  const For* loop = As<For>(s);
  return loop && IsGpuThread(loop->kind);
}

bool IsBarrier(const Stmt& s) { return As<Barrier>(s) != nullptr; }

class Inserter {
 public:
  Stmt Launch(const Stmt& s) {
    written_.clear();
    VisitStmt(s, [&](const Stmt& node) {
      if (const Store* store = As<Store>(node)) written_.insert(store->buffer.get());
      return true;
    });
    Accesses pending;
    return Run(s, pending);
  }

 private:
  // The statement with barriers. `pending` holds the accesses since the last barrier; on return it
  // includes those of the statement.
  Stmt Run(const Stmt& s, Accesses& pending) {
    if (IsBarrier(s)) {
      pending.clear();
      return s;
    }
    if (As<Seq>(s) || As<Alloc>(s))
      return MapChildren(s, [&](const Stmt& child) { return Run(child, pending); });
    if (const For* loop = As<For>(s); loop && !IsGpuThread(loop->kind))
      return RunLoop(s, *loop, pending);
    if (const If* branch = As<If>(s); branch && Any(branch->body, IsThreadLoop)) {
      Accesses own;
      Collect(branch->condition, own);
      const bool wait = Conflict(pending, own);
      if (wait) pending.clear();
      Append(own, {}, pending);
      Accesses inside = pending;
      Stmt result = MapChildren(s, [&](const Stmt& body) { return Run(body, inside); });
      Append(inside, {}, pending);
      return wait ? MakeSeq({MakeStmt(Barrier{}), std::move(result)}) : result;
    }
    // Threads run other statements without waiting for each other.
    BindLoops(s);
    Accesses own;
    Collect(s, own);
    const bool wait = Conflict(pending, own);
    if (wait) pending.clear();
    // A later access may meet these accesses in any thread and iteration.
    Append(own, OtherValues(s), pending);
    return wait ? MakeSeq({MakeStmt(Barrier{}), s}) : s;
  }

  void BindLoops(const Stmt& s) {
    VisitStmt(s, [&](const Stmt& node) {
      if (const For* loop = As<For>(node)) analyzer_.Bind(loop->var.get(), {0, loop->extent - 1});
      return true;
    });
  }
  Expr OtherValue(const For& loop) {
    auto var = std::make_shared<const Var>(Var{loop.var->name + "'"});
    analyzer_.Bind(var.get(), {0, loop.extent - 1});
    others_.push_back(var);
    return VarExpr(var);
  }
  // Maps the variables of all loops in the statement to new variables with the same ranges.
  Substitution OtherValues(const Stmt& s) {
    Substitution map;
    VisitStmt(s, [&](const Stmt& node) {
      if (const For* loop = As<For>(node)) map[loop->var.get()] = OtherValue(*loop);
      return true;
    });
    return map;
  }
  static void Append(const Accesses& more, const Substitution& map, Accesses& to) {
    for (Access access : more) {
      for (Expr& index : access.indices) index = Substitute(index, map);
      to.push_back(std::move(access));
    }
    Limit(to);
  }

  // `s` is the loop.
  Stmt RunLoop(const Stmt& s, const For& loop, Accesses& pending) {
    Accesses own;
    Collect(s, own);
    const bool writes =
        std::any_of(own.begin(), own.end(), [](const Access& access) { return access.write; });
    if (writes || Any(s, IsBarrier)) return RunWritingLoop(s, loop, pending);
    // A loop that only reads needs at most one barrier, before it.
    BindLoops(s);
    const bool wait = Conflict(pending, own);
    if (wait) pending.clear();
    Append(own, OtherValues(s), pending);
    return wait ? MakeSeq({MakeStmt(Barrier{}), s}) : s;
  }

  Stmt RunWritingLoop(const Stmt& s, const For& loop, Accesses& pending) {
    analyzer_.Bind(loop.var.get(), {0, loop.extent - 1});
    const auto run = [&] {
      return MapChildren(s, [&](const Stmt& body) { return Run(body, pending); });
    };
    const Accesses before = pending;
    Stmt once = run();
    // Blocks share nothing but global memory, which no barrier orders between them.
    if (loop.extent == 1 || IsGpuBlock(loop.kind)) return once;
    // `left` holds the accesses that the previous iteration leaves pending. If an iteration may run
    // without meeting a barrier, those of all previous iterations count (`any`). A barrier that
    // they require early in the body may make a later one superfluous, so that an iteration leaves
    // more behind than assumed. Then the body runs once more with these, too. Each round adds an
    // access, so this ends.
    Accesses left = pending;
    bool any = false;
    while (true) {
      Substitution map = OtherValues(loop.body);
      map[loop.var.get()] = VarExpr(loop.var) - Int(1);
      if (any && loop.extent > 2) {
        const For further{loop.var, loop.extent - 1, loop.kind, nullptr};
        map[loop.var.get()] = VarExpr(loop.var) - Int(1) - OtherValue(further);
      }
      pending = before;
      Append(left, map, pending);
      Stmt again = run();
      if (Include(pending, left)) continue;
      if (any || AlwaysWaits(again)) return again;
      any = true;
    }
  }

  // Adds the accesses of `more` whose load or store is not in `all` yet. False if there are none.
  static bool Include(const Accesses& more, Accesses& all) {
    const size_t before = all.size();
    for (const Access& access : more) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const Access& other) {
        return other.buffer == access.buffer && other.write == access.write &&
               (other.indices.empty() || other.origin == access.origin);
      });
      if (!known) all.push_back(access);
    }
    return all.size() > before;
  }

  // Whether every run of the statement meets a barrier.
  static bool AlwaysWaits(const Stmt& s) {
    bool waits = IsBarrier(s);
    if (As<If>(s)) return false;
    ForEachChild(s, [&](const Stmt& child) { waits = waits || AlwaysWaits(child); });
    return waits;
  }

  bool Watched(const Buffer* buffer) const {
    return buffer->scope != Scope::kLocal && written_.count(buffer) > 0;
  }
  void Collect(const Expr& e, Accesses& out) const {
    VisitLoads(e, [&](const Expr& load) {
      if (Watched(load->buffer.get()))
        out.push_back({load->buffer.get(), load->args, false, load.get()});
    });
  }
  void Collect(const Stmt& s, Accesses& out) const {
    VisitStmt(s, [&](const Stmt& node) {
      const Store* store = As<Store>(node);
      if (store && Watched(store->buffer.get()))
        out.push_back({store->buffer.get(), store->indices, true, store});
      return true;
    });
    VisitStmtExprs(s, [&](const Expr& e) { Collect(e, out); });
  }

  static void Limit(Accesses& accesses) {
    if (accesses.size() <= kMaxAccesses) return;
    Accesses whole;
    for (const Access& access : accesses) {
      const bool known = std::any_of(whole.begin(), whole.end(), [&](const Access& other) {
        return other.buffer == access.buffer && other.write == access.write;
      });
      if (!known) whole.push_back({access.buffer, {}, access.write});
    }
    accesses = std::move(whole);
  }

  bool Conflict(const Accesses& before, const Accesses& now) {
    for (const Access& a : now) {
      for (const Access& b : before) {
        if (a.buffer == b.buffer && (a.write || b.write) && !Apart(a, b)) return true;
      }
    }
    return false;
  }

  // Whether the accesses are proven to touch different elements.
  bool Apart(const Access& a, const Access& b) {
    for (size_t d = 0; d < a.indices.size() && d < b.indices.size(); ++d) {
      const auto difference = analyzer_.Bounds(a.indices[d] - b.indices[d]);
      if (difference && (difference->min > 0 || difference->max < 0)) return true;
      if (InTurns(a.indices[d], b.indices[d])) return true;
    }
    return false;
  }
  // Whether the indices are x % m and (x + c) % m, where m does not divide c.
  bool InTurns(const Expr& a, const Expr& b) {
    int64_t modulus = 0, other = 0, shift = 0;
    const auto is_mod = [](const Expr& e, int64_t* m) {
      return e->kind == ExprKind::kOp && e->op == Op::kFloorMod && IsConstInt(e->args[1], m);
    };
    if (!is_mod(a, &modulus) || !is_mod(b, &other) || modulus != other || other <= 0) return false;
    return IsConstInt(analyzer_.Simplify(a->args[0] - b->args[0]), &shift) && shift % other != 0;
  }

  Analyzer analyzer_;
  std::vector<VarRef> others_;  // keeps them alive
  std::unordered_set<const Buffer*> written_;
};

Stmt EachLaunch(const Stmt& s) {
  const For* loop = As<For>(s);
  if (loop && IsGpuBlock(loop->kind)) return Inserter().Launch(s);
  // Each launch inside a loop is handled by itself.
  if (As<If>(s) || !Any(s, IsGpuLoop)) return s;
  return MapChildren(s, EachLaunch);
}

}  // namespace

Program InsertBarriers(const Program& program) {
  Program result = program;
  result.body = EachLaunch(program.body);
  return result;
}

}  // namespace heddle::pass
