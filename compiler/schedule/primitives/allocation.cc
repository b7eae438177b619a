#include "compiler/schedule/primitives/allocation.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/independence.h"
#include "compiler/ir/analysis/region.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::BufferRef;
using ir::For;
using ir::LoopKind;
using ir::Stmt;

namespace {

// Which blocks use a buffer.
struct Access {
  size_t first = 0;        // index of the first block that uses it
  size_t last = SIZE_MAX;  // of the last one so far
  size_t depth = 0;        // number of enclosing statements that its users share
  int users = 0;
};

using Places = std::unordered_map<const ir::StmtNode*, std::vector<BufferRef>>;

// The statement, and those inside of it, with the allocations that `places` puts around them.
Stmt Wrap(const Stmt& s, const Places& places, const Allocations& allocs) {
  const auto found = allocs.originals.find(s.get());
  const Stmt& original = found == allocs.originals.end() ? s : found->second.second;
  Stmt old = original;  // without the allocations around it
  std::vector<BufferRef> around;
  while (const auto* alloc = As<ir::Alloc>(old)) {
    around.push_back(alloc->buffer);
    Stmt body = alloc->body;
    old = std::move(body);
  }
  std::vector<const Stmt*> old_children;
  if (old != s) {
    ir::AnyChild(old, [&](const Stmt& child) {
      old_children.push_back(&child);
      return false;
    });
  }
  size_t visited = 0, as_before = 0;
  Stmt result = ir::MapChildren(s, [&](const Stmt& child) {
    Stmt wrapped = Wrap(child, places, allocs);
    as_before += visited < old_children.size() && wrapped == *old_children[visited];
    ++visited;
    return wrapped;
  });
  if (visited > 0 && visited == old_children.size() && as_before == visited) result = old;
  const auto here = places.find(s.get());
  const std::vector<BufferRef> wanted =
      here == places.end() ? std::vector<BufferRef>() : here->second;
  if (result == old && wanted == around) return original;
  for (auto buffer = wanted.rbegin(); buffer != wanted.rend(); ++buffer) {
    result = ir::MakeStmt(ir::Alloc{*buffer, std::move(result)});
  }
  return result;
}

void CollectInside(const Stmt& s, std::unordered_set<const ir::Buffer*>& allocated,
                   std::vector<const Block*>& blocks, std::vector<const For*>& loops) {
  ir::VisitStmt(s, [&](const Stmt& node) {
    if (const auto* loop = As<For>(node)) loops.push_back(loop);
    if (const auto* alloc = As<ir::Alloc>(node)) allocated.insert(alloc->buffer.get());
    if (const auto* block = As<Block>(node)) blocks.push_back(block);
    return true;
  });
}

// Whether the first two iterations store to the same elements. This happens if the loop was fused
// with one that the block does not use, for example.
bool RepeatsElements(const std::vector<ir::Expr>& indices, const ir::Var* var) {
  for (const ir::Expr& index : indices) {
    const ir::Expr first = ir::Simplify(ir::Substitute(index, {{var, ir::Int(0)}}), {});
    const ir::Expr second = ir::Simplify(ir::Substitute(index, {{var, ir::Int(1)}}), {});
    if (!ir::StructuralEqual(first, second)) return false;
  }
  return true;
}

// Whether two iterations store to different elements: in some dimension the loop variable moves
// the index further than all inner loops together, or it only occurs under divisions and moduli (a
// fused loop, whose parts address the elements together).
bool WritesDisjoint(const Block& block, const ir::Var* var, const ir::RunningLoops& inner) {
  ir::Substitution bindings;
  for (const ir::BlockIter& iter : block.iters) bindings.emplace(iter.var.get(), iter.binding);
  bool only_fused = true;
  std::vector<ir::Expr> indices;
  for (const ir::Expr& index : block.store.indices) {
    indices.push_back(ir::Substitute(index, bindings));
    auto reach = ir::ReachOf(indices.back(), inner);
    if (!reach) continue;
    for (const auto& [term, coefficient] : reach->terms) {
      if (!ir::UsesVar(term, var)) continue;
      if (term->kind != ir::ExprKind::kVar) continue;
      only_fused = false;
      if (reach->hi - reach->lo < std::abs(coefficient)) return true;
    }
  }
  return only_fused && !RepeatsElements(indices, var);
}

// The same for GPU loops. Their stores are also apart if they differ within a period of the terms
// that other loops add.
bool WritesApart(const Block& block, const std::vector<const For*>& loops) {
  ir::Substitution bindings;
  for (const ir::BlockIter& iter : block.iters) bindings.emplace(iter.var.get(), iter.binding);
  std::vector<ir::Expr> indices;
  for (const ir::Expr& index : block.store.indices)
    indices.push_back(ir::Substitute(index, bindings));
  return ir::WritesApart(indices, *block.store.buffer, loops);
}

// Whether a local buffer around a loop of this kind is spread over the iterations, so that each
// element belongs to one of them.
bool SpreadsLocals(LoopKind kind) {
  return kind == LoopKind::kVectorized || kind == LoopKind::kVThread || ir::IsGpuThread(kind);
}

// Tensor loops have rules of their own (ir/analysis/tensor_product.h).
bool Concurrent(LoopKind kind) {
  return kind != LoopKind::kSerial && kind != LoopKind::kUnrolled && kind != LoopKind::kTensor;
}

// Kinds of the loops around a statement.
struct Around {
  bool parallel = false;
  bool vectorized = false;
};

absl::Status CheckNesting(const For& loop, const Around& around) {
  if (around.vectorized &&
      (loop.kind == LoopKind::kParallel || loop.kind == LoopKind::kVectorized)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "loop ", Quoted(loop.var->name), " would be ",
        loop.kind == LoopKind::kParallel ? "parallel" : "vectorized", " inside a vectorized loop"));
  }
  if (around.parallel && loop.kind == LoopKind::kParallel) {
    return absl::FailedPreconditionError(
        absl::StrCat("loop ", Quoted(loop.var->name), " would be parallel inside a parallel loop"));
  }
  return absl::OkStatus();
}

// `known(s)`: the iterations of loop `s` are known to be independent.
template <typename Known>
absl::Status CheckUnder(const Stmt& s, Around around, const Known& known) {
  if (const auto* loop = As<For>(s)) {
    HEDDLE_RETURN_IF_ERROR(CheckNesting(*loop, around));
    if (Concurrent(loop->kind) && !known(s))
      HEDDLE_RETURN_IF_ERROR(CheckIndependent(s, loop->kind));
    around.parallel |= loop->kind == LoopKind::kParallel;
    around.vectorized |= loop->kind == LoopKind::kVectorized;
  }
  absl::Status status;
  ir::ForEachChild(s, [&](const Stmt& child) {
    if (status.ok()) status = CheckUnder(child, around, known);
  });
  return status;
}

void CollectConcurrent(const Stmt& s, std::unordered_set<const ir::StmtNode*>& loops) {
  ir::VisitStmt(s, [&](const Stmt& node) {
    if (const auto* loop = As<For>(node); loop && Concurrent(loop->kind)) loops.insert(node.get());
    return true;
  });
}

}  // namespace

Stmt StripAllocs(const Stmt& s, Allocations* allocs) {
  const auto* alloc = As<ir::Alloc>(s);
  if (alloc != nullptr) allocs->buffers.push_back(alloc->buffer);
  Stmt result =
      alloc != nullptr
          ? StripAllocs(alloc->body, allocs)
          : ir::MapChildren(s, [&](const Stmt& child) { return StripAllocs(child, allocs); });
  // Of nested allocations the outermost is recorded last, and wins.
  if (result != s) allocs->originals[result.get()] = {result, s};
  return result;
}

Stmt PlaceAllocs(const Stmt& s, const Allocations& allocs) {
  std::vector<Path> blocks = AllBlocks(s);
  std::unordered_map<const ir::Buffer*, Access> accesses;
  for (const BufferRef& buffer : allocs.buffers) accesses.try_emplace(buffer.get());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto use = [&](const ir::Buffer* buffer) {
      const auto it = accesses.find(buffer);
      if (it == accesses.end() || it->second.last == i) return;
      Access& access = it->second;
      access.last = i;
      if (access.users++ == 0) {
        access.first = i;
        access.depth = blocks[i].nodes.size();
      } else {
        access.depth = std::min(access.depth, CommonDepth(blocks[access.first], blocks[i]));
      }
    };
    use(blocks[i].block().store.buffer.get());
    ForEachLoad(blocks[i].block(), [&](const ir::Expr& load) { use(load->buffer.get()); });
  }
  Places places;
  for (const BufferRef& buffer : allocs.buffers) {
    const Access& access = accesses.at(buffer.get());
    if (access.users == 0) continue;
    const Stmt& place =
        access.users == 1 ? s : blocks[access.first].nodes[std::max<size_t>(access.depth, 1) - 1];
    places[place.get()].push_back(buffer);
  }
  return Wrap(s, places, allocs);
}

absl::Status CheckIndependent(const Stmt& loop_stmt, LoopKind kind) {
  const For& loop = *As<For>(loop_stmt);
  std::unordered_set<const ir::Buffer*> allocated;
  std::vector<const Block*> blocks;
  std::vector<const For*> loops{&loop};
  CollectInside(loop.body, allocated, blocks, loops);
  ir::RunningLoops inner;
  for (size_t i = 1; i < loops.size(); ++i) inner.emplace(loops[i]->var.get(), loops[i]->extent);
  const bool gpu = ir::IsGpu(kind);
  auto refuse = [&](const Block& block, std::string_view why) {
    return absl::FailedPreconditionError(
        absl::StrCat("iterations of loop ", Quoted(loop.var->name), " are not independent: block ",
                     Quoted(block.name), " ", absl::string_view(why.data(), why.size())));
  };
  for (const Block* block : blocks) {
    Role role = RoleOf(*block, loop.var.get());
    if (role == Role::kReduce || role == Role::kMixed) return refuse(*block, "reduces over it");
    const ir::Buffer* written = block->store.buffer.get();
    if (allocated.count(written)) continue;
    if (loop.extent > 1 &&
        (role == Role::kFree || !WritesDisjoint(*block, loop.var.get(), inner)) &&
        !(gpu && WritesApart(*block, loops))) {
      return refuse(*block, "writes the same element in several of them");
    }
    if (written->scope == ir::Scope::kLocal && !SpreadsLocals(kind)) {
      return refuse(*block, "writes a local buffer that they would share");
    }
  }
  if (SpreadsLocals(kind)) return absl::OkStatus();
  for (const Block* block : blocks) {
    bool shares = false;
    ForEachLoad(*block, [&](const ir::Expr& load) {
      shares |= load->buffer->scope == ir::Scope::kLocal && !allocated.count(load->buffer.get());
    });
    if (shares) return refuse(*block, "reads a local buffer that they would share");
  }
  return absl::OkStatus();
}

absl::Status CheckConcurrency(const Stmt& root, const Stmt& before) {
  std::unordered_set<const ir::StmtNode*> checked;
  CollectConcurrent(before, checked);
  return CheckUnder(root, {}, [&](const Stmt& loop) { return checked.count(loop.get()) > 0; });
}

absl::Status CheckKind(const Stmt& root, const Stmt& changed) {
  return CheckUnder(root, {}, [&](const Stmt& loop) { return loop != changed; });
}

absl::StatusOr<ir::Program> Finish(const ir::Program& p, Stmt body, const Allocations& allocs) {
  ir::Program result{p.name, p.inputs, p.outputs, PlaceAllocs(body, allocs)};
  HEDDLE_RETURN_IF_ERROR(CheckConcurrency(result.body, p.body));
  return result;
}

}  // namespace heddle::schedule
