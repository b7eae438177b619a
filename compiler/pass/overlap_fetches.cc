#include "compiler/pass/overlap_fetches.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "compiler/ir/analysis/group_product.h"
#include "compiler/ir/visit.h"
#include "compiler/machine/group_products.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

using namespace ir;

namespace {

using Buffers = std::unordered_set<const Buffer*>;

constexpr int64_t kMaxParts = 3;
constexpr int64_t kMaxGroupParts = 4;  // with products of four warps

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
  VisitLoads(s, [&](const Expr& load) { read.insert(load->buffer.get()); });
  return read;
}

bool IsBlockLoop(const Stmt& s) {
  const For* loop = As<For>(s);
  return loop && IsGpuBlock(loop->kind);
}

bool IsLoopOfThreads(const Stmt& s) {
  const For* loop = As<For>(s);
  return loop && IsGpuThread(loop->kind);
}

using Loops = std::unordered_set<const For*>;

// The thread loops that are products of four warps.
Loops GroupLoops(const Stmt& s) {
  Analyzer analyzer;
  Loops loops;
  VisitStmt(s, [&](const Stmt& node) {
    const For* loop = As<For>(node);
    if (loop == nullptr) return true;
    analyzer.Bind(loop->var.get(), {0, loop->extent - 1});
    if (MatchGroupProduct(*loop, analyzer)) loops.insert(loop);
    return true;
  });
  return loops;
}

class Overlapper {
 public:
  Overlapper(const Program& program, const machine::TargetInfo& target)
      : names_(program), target_(target) {}

  Stmt EachLaunch(const Stmt& s) {
    return RewriteStmt(s, [&](const Stmt& node) -> Stmt {
      if (!IsBlockLoop(node) || Any(As<For>(node)->body, IsBlockLoop)) return node;
      written_ = Written(node);
      groups_ = machine::MakesGroupProducts(target_) ? GroupLoops(node) : Loops();
      shared_bytes_ = 0;
      limit_ = kMaxDoubledBytes;
      VisitStmt(node, [&](const Stmt& x) {
        const For* inner = As<For>(x);
        if (inner && inner->kind == LoopKind::kTensor) limit_ = kMaxDoubledTensorBytes;
        const Alloc* alloc = As<Alloc>(x);
        if (alloc && alloc->buffer->scope == Scope::kShared)
          shared_bytes_ += alloc->buffer->SizeBytes();
        return true;
      });
      return MapChildren(node, [&](const Stmt& body) { return Visit(body); });
    });
  }

 private:
  // Rewrites loops outside of thread loops. Of nested loops that can be rewritten, only the
  // outermost is.
  Stmt Visit(const Stmt& s) {
    if (As<If>(s) || IsLoopOfThreads(s)) return s;
    if (const For* loop = As<For>(s)) {
      if (std::optional<Stmt> result = Overlap(*loop)) return *result;
    }
    return MapChildren(s, [&](const Stmt& child) { return Visit(child); });
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
    if (buffers.empty() || seq == nullptr) return std::nullopt;
    std::vector<Stmt> fetches, rest;
    for (const Stmt& s : seq->stmts) {
      const bool fetch = rest.empty() && FetchesOnly(s, own);
      (fetch ? fetches : rest).push_back(s);
    }
    if (fetches.empty() || rest.empty()) return std::nullopt;
    for (const Stmt& s : rest) {
      for (const Buffer* buffer : Written(s)) {
        if (own.count(buffer)) return std::nullopt;
      }
    }
    const bool plain = std::all_of(fetches.begin(), fetches.end(), IsLoopOfThreads);
    const bool groups = plain && rest.size() == 1 && groups_.count(As<For>(rest[0])) > 0;
    const auto fits = [&](int64_t parts, int64_t limit) {
      return plain && loop.extent > parts && shared_bytes_ + (parts - 1) * bytes <= limit;
    };
    Plan plan;
    const auto alignment = kPanelAlignment * static_cast<int64_t>(buffers.size());
    for (int64_t parts = kMaxGroupParts; groups && parts > 2 && !plan.late_product; --parts) {
      if (fits(parts, target_.shared_bytes_per_block - alignment)) plan = {parts, parts - 2, true};
    }
    if (!plan.late_product && limit_ == kMaxDoubledTensorBytes && fits(kMaxParts, limit_))
      plan = {kMaxParts, kMaxParts - 1, false};
    if (!plan.late_product && shared_bytes_ + bytes > limit_) return std::nullopt;
    shared_bytes_ += (plan.parts - 1) * bytes;
    return Rebuild(loop, buffers, plan, fetches, MakeSeq(std::move(rest)));
  }

  bool FetchesOnly(const Stmt& s, const Buffers& own) const {
    if (!Any(s, IsLoopOfThreads)) return false;
    for (const Buffer* buffer : Written(s)) {
      if (!own.count(buffer)) return false;
    }
    for (const Buffer* buffer : Read(s)) {
      if (written_.count(buffer) || buffer->scope != Scope::kGlobal) return false;
    }
    return true;
  }

  struct Plan {
    int64_t parts = 2;
    int64_t ahead = 1;          // iterations between a fetch and its use
    bool late_product = false;  // the product of an iteration may run during the next one
  };

  Stmt Rebuild(const For& loop, const std::vector<BufferRef>& buffers, const Plan& plan,
               const std::vector<Stmt>& fetches, const Stmt& rest) {
    const int64_t parts = plan.parts;
    std::vector<BufferRef> copies;
    for (const BufferRef& buffer : buffers) {
      auto all = std::make_shared<Buffer>(*buffer);
      all->shape.insert(all->shape.begin(), parts);
      copies.push_back(std::move(all));
    }
    const auto at = [&](const Stmt& s, const Expr& iteration, const Expr& part) {
      Stmt moved = Substitute(s, Substitution{{loop.var.get(), iteration}});
      for (size_t i = 0; i < buffers.size(); ++i) moved = Part(moved, *buffers[i], copies[i], part);
      return moved;
    };
    const Expr k = VarExpr(loop.var), next = k + Int(plan.ahead);
    std::vector<Stmt> first, body;
    for (int64_t i = 0; i < plan.ahead; ++i) {
      for (const Stmt& fetch : fetches) first.push_back(names_.Clone(at(fetch, Int(i), Int(i))));
    }
    const int late = static_cast<int>((plan.ahead - 1) * static_cast<int64_t>(fetches.size()));
    const Stmt use = at(rest, k, FloorMod(k, Int(parts)));
    body.push_back(MakeStmt(Barrier{late}));
    if (plan.late_product) body.push_back(use);
    // If the barrier counts fetches, each one needs a condition of its own.
    std::vector<Stmt> groups = fetches;
    if (late == 0) groups = {MakeSeq(fetches)};
    for (const Stmt& group : groups) {
      body.push_back(
          MakeStmt(If{Lt(next, Int(loop.extent)), at(group, next, FloorMod(next, Int(parts)))}));
    }
    if (!plan.late_product) body.push_back(use);
    first.push_back(MakeStmt(For{loop.var, loop.extent, loop.kind, MakeSeq(std::move(body))}));
    Stmt result = MakeSeq(std::move(first));
    for (size_t i = buffers.size(); i-- > 0;)
      result = MakeStmt(Alloc{copies[i], std::move(result)});
    return result;
  }

  static Stmt Part(const Stmt& s, const Buffer& from, const BufferRef& to, const Expr& part) {
    return MapElements(s, [&](const BufferRef& buffer, const std::vector<Expr>& indices) {
      std::optional<Element> moved;
      if (buffer.get() != &from) return moved;
      moved = {to, indices};
      moved->indices.insert(moved->indices.begin(), part);
      return moved;
    });
  }

  FreshNames names_;
  const machine::TargetInfo& target_;
  Buffers written_;           // buffers that the launch writes
  Loops groups_;              // thread loops that are products of four warps
  int64_t shared_bytes_ = 0;  // shared memory of the launch
  int64_t limit_ = kMaxDoubledBytes;
};

}  // namespace

Program OverlapFetches(const Program& program, const machine::TargetInfo& target) {
  Program result = program;
  result.body = Overlapper(program, target).EachLaunch(program.body);
  return result;
}

}  // namespace heddle::pass
