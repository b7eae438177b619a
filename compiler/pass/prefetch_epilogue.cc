#include "compiler/pass/prefetch_epilogue.h"

#include <algorithm>
#include <set>

#include "compiler/ir/analysis/index.h"
#include "compiler/ir/analysis/linear.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

namespace {

using namespace ir;

// A serial loop that stores to local buffers only.
bool IsReduction(const Stmt& s) {
  auto* loop = As<For>(s);
  if (loop == nullptr || loop->kind != LoopKind::kSerial) return false;
  return !Any(loop->body, [](const Stmt& x) {
    auto* store = As<Store>(x);
    return store != nullptr && store->buffer->scope != Scope::kLocal;
  });
}

int64_t CountRequests(const Stmt& s) {
  int64_t requests = As<Prefetch>(s) != nullptr;
  ForEachChild(s, [&](const Stmt& child) { requests += CountRequests(child); });
  auto* loop = As<For>(s);
  return loop ? loop->extent * requests : requests;
}

// For how many iterations over `var` all requests in `s` stay within the length of a line.
int64_t IterationsOfALine(const Stmt& s, const VarRef& var, int64_t line_bytes) {
  int64_t iterations = INT64_MAX;
  VisitStmtExprs(s, [&](const Expr& element) {
    const Linear linear = LinearIndex(*element->buffer, element->args, {});
    int64_t bytes = line_bytes;  // unless the address grows linearly with the variable
    for (const auto& [term, stride] : linear.terms) {
      if (term->kind == ExprKind::kVar && term->var == var && stride > 0)
        bytes = stride * SizeOf(element->dtype);
    }
    iterations = std::min(iterations, std::max<int64_t>(line_bytes / bytes, 1));
  });
  return iterations;
}

// Turns a nest of unrolled and vectorized loops around stores into a nest of prefetches for the
// first vector lane. Null if the statement is no such nest, or if it requests no line or too many.
class Requests {
 public:
  Requests(const Program& program, const machine::TargetInfo& target, FreshNames& names)
      : program_(program), line_bytes_(target.line_bytes), fit_(target.code.fetch), names_(names) {}

  Stmt Of(const Stmt& s) {
    const Stmt requests = Turn(s, {});
    if (requests == nullptr || CountRequests(requests) > fit_.max_epilogue_lines) return nullptr;
    return names_.Clone(requests);
  }

 private:
  Stmt Turn(const Stmt& s, const std::set<const Var*>& lanes) {
    if (As<Seq>(s) || As<If>(s)) {
      std::vector<Stmt> all;
      ForEachChild(s, [&](const Stmt& child) {
        if (Stmt turned = Turn(child, lanes)) all.push_back(std::move(turned));
      });
      return all.empty() ? nullptr : MakeSeq(std::move(all));
    }
    if (auto* loop = As<For>(s)) {
      if (loop->kind == LoopKind::kVectorized) {
        std::set<const Var*> inside = lanes;
        inside.insert(loop->var.get());
        return Turn(loop->body, inside);
      }
      if (loop->kind != LoopKind::kUnrolled) return nullptr;
      const Stmt body = Turn(loop->body, lanes);
      return body == nullptr ? nullptr : EveryLine(*loop, body);
    }
    auto* store = As<Store>(s);
    return store == nullptr ? nullptr : Requested(*store, lanes);
  }

  // The loop around the requests. It steps by a line if its own steps are shorter.
  Stmt EveryLine(const For& loop, const Stmt& body) const {
    const int64_t step = std::min(IterationsOfALine(body, loop.var, line_bytes_), loop.extent);
    const Stmt moved =
        step == 1 ? body : Substitute(body, {{loop.var.get(), VarExpr(loop.var) * Int(step)}});
    return MakeStmt(For{loop.var, (loop.extent + step - 1) / step, LoopKind::kUnrolled, moved});
  }

  Stmt Requested(const Store& store, const std::set<const Var*>& lanes) {
    Substitution first;
    for (const Var* lane : lanes) first[lane] = Int(0);
    std::vector<Stmt> all;
    const auto request = [&](const Expr& element) {
      if (element->buffer->SizeBytes() < fit_.min_epilogue_bytes ||
          !FollowsLanes(*element, lanes) || IndexIsLoaded(*element)) {
        return;
      }
      const Expr asked = Substitute(element, first);
      const bool known = std::any_of(all.begin(), all.end(), [&](const Stmt& other) {
        return StructuralEqual(As<Prefetch>(other)->element, asked);
      });
      if (!known) all.push_back(MakeStmt(Prefetch{asked}));
    };
    VisitLoads(store.value, [&](const Expr& load) {
      if (!load->buffer->constant && Has(program_.inputs, *load->buffer)) request(load);
    });
    // Writes wait, too, because a line is fetched before a part of it is written.
    if (!all.empty() && Has(program_.outputs, *store.buffer))
      request(Load(store.buffer, store.indices));
    return all.empty() ? nullptr : MakeSeq(std::move(all));
  }

  // A prefetch of such an element would load its index at once, without the condition around it.
  static bool IndexIsLoaded(const ExprNode& element) {
    return std::any_of(element.args.begin(), element.args.end(), HasLoad);
  }

  static bool Has(const std::vector<BufferRef>& buffers, const Buffer& buffer) {
    return std::any_of(buffers.begin(), buffers.end(),
                       [&](const BufferRef& b) { return b.get() == &buffer; });
  }

  // Whether all vector lanes lie in a line or two, because they move along the last dimension only.
  static bool FollowsLanes(const ExprNode& load, const std::set<const Var*>& lanes) {
    for (const Var* lane : lanes) {
      for (size_t d = 0; d + 1 < load.args.size(); ++d) {
        if (UsesVar(load.args[d], lane)) return false;
      }
    }
    return true;
  }

  const Program& program_;
  int64_t line_bytes_;
  machine::FetchFit fit_;
  FreshNames& names_;
};

}  // namespace

Program PrefetchEpilogue(const Program& program, const machine::TargetInfo& target) {
  FreshNames names(program);
  Requests requests(program, target, names);
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
