#include "compiler/pass/prefetch_epilogue.h"

#include <algorithm>
#include <set>

#include "compiler/ir/visit.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

namespace {

using namespace ir;

// A serial loop around nothing but updates of local buffers.
bool IsReduction(const Stmt& s) {
  auto* loop = As<For>(s);
  if (loop == nullptr || loop->kind != LoopKind::kSerial) return false;
  bool updates = true;
  VisitStmt(loop->body, [&](const Stmt& x) {
    auto* store = As<Store>(x);
    updates &= store == nullptr || store->buffer->scope == Scope::kLocal;
    return true;
  });
  return updates;
}

// Turns a nest of unrolled and vectorized loops around stores into one of prefetches, of the first
// lane; null if it is none, or asks for nothing.
class Requests {
 public:
  Requests(const Program& program, FreshNames& names) : program_(program), names_(names) {}

  Stmt Of(const Stmt& s) {
    lines_ = 0;
    const Stmt requests = Turn(s, {}, 1);
    if (requests == nullptr || lines_ > kMaxEpilogueLines) return nullptr;
    return names_.Clone(requests);
  }

 private:
  Stmt Turn(const Stmt& s, const std::set<const Var*>& lanes, int64_t times) {
    if (auto* seq = As<Seq>(s)) {
      std::vector<Stmt> all;
      for (const Stmt& child : seq->stmts) {
        if (Stmt turned = Turn(child, lanes, times)) all.push_back(turned);
      }
      return all.empty() ? nullptr : MakeSeq(std::move(all));
    }
    if (auto* branch = As<If>(s)) return Turn(branch->body, lanes, times);
    if (auto* loop = As<For>(s)) {
      if (loop->kind == LoopKind::kVectorized) {
        std::set<const Var*> inside = lanes;
        inside.insert(loop->var.get());
        return Turn(loop->body, inside, times);
      }
      if (loop->kind != LoopKind::kUnrolled) return nullptr;
      const Stmt body = Turn(loop->body, lanes, times * loop->extent);
      return body == nullptr ? nullptr
                             : MakeStmt(For{loop->var, loop->extent, LoopKind::kUnrolled, body});
    }
    auto* store = As<Store>(s);
    return store == nullptr ? nullptr : Requested(*store, lanes, times);
  }

  Stmt Requested(const Store& store, const std::set<const Var*>& lanes, int64_t times) {
    Substitution first;
    for (const Var* lane : lanes) first[lane] = Int(0);
    std::vector<Stmt> all;
    const auto request = [&](const Expr& element) {
      if (element->buffer->SizeBytes() < kMinEpilogueBytes || !FollowsLanes(*element, lanes))
        return;
      const Expr asked = Substitute(element, first);
      const bool known = std::any_of(all.begin(), all.end(), [&](const Stmt& other) {
        return StructuralEqual(As<Prefetch>(other)->element, asked);
      });
      if (!known) all.push_back(MakeStmt(Prefetch{asked}));
    };
    VisitExpr(store.value, [&](const Expr& e) {
      if (e->kind == ExprKind::kLoad && !e->buffer->constant && Has(program_.inputs, *e->buffer))
        request(e);
    });
    // Beside what is read, writing waits too: a line is fetched before a part of it is written.
    if (!all.empty() && Has(program_.outputs, *store.buffer))
      request(Load(store.buffer, store.indices));
    lines_ += times * static_cast<int64_t>(all.size());
    return all.empty() ? nullptr : MakeSeq(std::move(all));
  }

  static bool Has(const std::vector<BufferRef>& buffers, const Buffer& buffer) {
    return std::any_of(buffers.begin(), buffers.end(),
                       [&](const BufferRef& b) { return b.get() == &buffer; });
  }

  // All lanes lie in a line or two: they walk the last dimension.
  static bool FollowsLanes(const ExprNode& load, const std::set<const Var*>& lanes) {
    for (const Var* lane : lanes) {
      for (size_t d = 0; d + 1 < load.args.size(); ++d) {
        if (UsesVar(load.args[d], lane)) return false;
      }
    }
    return true;
  }

  const Program& program_;
  FreshNames& names_;
  int64_t lines_ = 0;
};

}  // namespace

Program PrefetchEpilogue(const Program& program) {
  FreshNames names(program);
  Requests requests(program, names);
  Program result = program;
  result.body = RewriteStmt(program.body, [&](const Stmt& s) -> Stmt {
    auto* seq = As<Seq>(s);
    if (seq == nullptr) return s;
    std::vector<Stmt> stmts = seq->stmts;
    const auto reduction = std::find_if(stmts.begin(), stmts.end(), IsReduction);
    if (reduction == stmts.end()) return s;
    std::vector<Stmt> asked;
    for (auto it = reduction + 1; it != stmts.end(); ++it) {
      if (Stmt request = requests.Of(*it)) asked.push_back(std::move(request));
    }
    if (asked.empty()) return s;
    stmts.insert(reduction, asked.begin(), asked.end());
    return MakeSeq(std::move(stmts));
  });
  return result;
}

}  // namespace heddle::pass
