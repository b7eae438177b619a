#include "compiler/pass/overlap_fetches.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "compiler/ir/visit.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

using namespace ir;

namespace {

using Buffers = std::unordered_set<const Buffer*>;

Buffers Written(const Stmt& s) {
  Buffers written;
  VisitStmt(s, [&](const Stmt& node) {
    if (const Store* store = As<Store>(node)) written.insert(store->buffer.get());
    return true;
  });
  return written;
}

Buffers Read(const Stmt& s) {
  Buffers read;
  VisitStmtExprs(s, [&](const Expr& e) {
    VisitExpr(e, [&](const Expr& x) {
      if (x->kind == ExprKind::kLoad) read.insert(x->buffer.get());
    });
  });
  return read;
}

bool HasThreadLoop(const Stmt& s) {
  bool found = false;
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    found |= loop && IsGpuThread(loop->kind);
    return !found;
  });
  return found;
}

class Overlapper {
 public:
  explicit Overlapper(const Program& program) : names_(program) {}

  Stmt EachLaunch(const Stmt& s) {
    return RewriteStmt(s, [&](const Stmt& node) -> Stmt {
      const For* loop = As<For>(node);
      if (loop == nullptr || !IsGpuBlock(loop->kind) || HasBlockLoop(loop->body)) return node;
      written_ = Written(node);
      shared_bytes_ = 0;
      VisitStmt(node, [&](const Stmt& x) {
        const Alloc* alloc = As<Alloc>(x);
        if (alloc && alloc->buffer->scope == Scope::kShared)
          shared_bytes_ += alloc->buffer->SizeBytes();
        return true;
      });
      return MakeStmt(For{loop->var, loop->extent, loop->kind, Visit(loop->body)});
    });
  }

 private:
  static bool HasBlockLoop(const Stmt& s) {
    bool found = false;
    VisitStmt(s, [&](const Stmt& node) {
      const For* loop = As<For>(node);
      found |= loop && IsGpuBlock(loop->kind);
      return !found;
    });
    return found;
  }

  // Outside of thread loops; the outermost loop that can be changed is.
  Stmt Visit(const Stmt& s) {
    if (const Seq* seq = As<Seq>(s)) {
      std::vector<Stmt> stmts;
      for (const Stmt& child : seq->stmts) stmts.push_back(Visit(child));
      return MakeSeq(std::move(stmts));
    }
    if (const Alloc* alloc = As<Alloc>(s))
      return MakeStmt(Alloc{alloc->buffer, Visit(alloc->body)});
    const For* loop = As<For>(s);
    if (loop == nullptr || IsGpuThread(loop->kind)) return s;
    if (std::optional<Stmt> result = Overlap(*loop)) return *result;
    return MakeStmt(For{loop->var, loop->extent, loop->kind, Visit(loop->body)});
  }

  std::optional<Stmt> Overlap(const For& loop) {
    if (loop.kind != LoopKind::kSerial || loop.extent < 2) return std::nullopt;
    std::vector<BufferRef> buffers;
    Buffers own;
    int64_t bytes = 0;
    Stmt body = loop.body;
    while (const Alloc* alloc = As<Alloc>(body)) {
      if (alloc->buffer->scope != Scope::kShared) return std::nullopt;
      buffers.push_back(alloc->buffer);
      own.insert(alloc->buffer.get());
      bytes += alloc->buffer->SizeBytes();
      body = alloc->body;
    }
    const Seq* seq = As<Seq>(body);
    if (buffers.empty() || seq == nullptr || shared_bytes_ + bytes > kMaxDoubledBytes)
      return std::nullopt;
    std::vector<Stmt> fetches, rest;
    for (const Stmt& s : seq->stmts) {
      const bool fetch = rest.empty() && IsFetch(s, own);
      (fetch ? fetches : rest).push_back(s);
    }
    if (fetches.empty() || rest.empty()) return std::nullopt;
    for (const Stmt& s : rest) {
      for (const Buffer* buffer : Written(s)) {
        if (own.count(buffer)) return std::nullopt;
      }
    }
    shared_bytes_ += bytes;
    return Rebuild(loop, buffers, MakeSeq(std::move(fetches)), MakeSeq(std::move(rest)));
  }

  bool IsFetch(const Stmt& s, const Buffers& own) const {
    if (!HasThreadLoop(s)) return false;
    for (const Buffer* buffer : Written(s)) {
      if (!own.count(buffer)) return false;
    }
    for (const Buffer* buffer : Read(s)) {
      if (written_.count(buffer) || buffer->scope != Scope::kGlobal) return false;
    }
    return true;
  }

  Stmt Rebuild(const For& loop, const std::vector<BufferRef>& buffers, const Stmt& fetch,
               const Stmt& rest) {
    std::vector<BufferRef> doubled;
    for (const BufferRef& buffer : buffers) {
      auto twice = std::make_shared<Buffer>(*buffer);
      twice->shape.insert(twice->shape.begin(), 2);
      doubled.push_back(std::move(twice));
    }
    const auto at = [&](const Stmt& s, const Expr& iteration, const Expr& half) {
      Stmt moved = Substitute(s, Substitution{{loop.var.get(), iteration}});
      for (size_t i = 0; i < buffers.size(); ++i)
        moved = Half(moved, *buffers[i], doubled[i], half);
      return moved;
    };
    const Expr k = VarExpr(loop.var), next = k + Int(1);
    Stmt first = names_.Clone(at(fetch, Int(0), Int(0)));
    Stmt body =
        MakeSeq({MakeStmt(Barrier{}),
                 MakeStmt(If{Lt(next, Int(loop.extent)), at(fetch, next, FloorMod(next, Int(2)))}),
                 at(rest, k, FloorMod(k, Int(2)))});
    Stmt result = MakeSeq(
        {std::move(first), MakeStmt(For{loop.var, loop.extent, loop.kind, std::move(body)})});
    for (size_t i = buffers.size(); i-- > 0;)
      result = MakeStmt(Alloc{doubled[i], std::move(result)});
    return result;
  }

  static Stmt Half(const Stmt& s, const Buffer& from, const BufferRef& to, const Expr& half) {
    const auto moved = [&](std::vector<Expr> indices) {
      indices.insert(indices.begin(), half);
      return indices;
    };
    return RewriteStmt(
        s,
        [&](const Stmt& node) -> Stmt {
          const Store* store = As<Store>(node);
          return store && store->buffer.get() == &from
                     ? MakeStmt(Store{to, moved(store->indices), store->value})
                     : node;
        },
        [&](const Expr& e) {
          return RewriteExpr(e, [&](const Expr& x) {
            return x->kind == ExprKind::kLoad && x->buffer.get() == &from ? Load(to, moved(x->args))
                                                                          : x;
          });
        });
  }

  FreshNames names_;
  Buffers written_;           // by the launch
  int64_t shared_bytes_ = 0;  // of the launch
};

}  // namespace

Program OverlapFetches(const Program& program) {
  Program result = program;
  result.body = Overlapper(program).EachLaunch(program.body);
  return result;
}

}  // namespace heddle::pass
