// Primitives that take reductions apart.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives/allocation.h"
#include "compiler/schedule/primitives/copy_out.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::BufferRef;
using ir::Expr;
using ir::For;
using ir::IterKind;
using ir::Stmt;

namespace {

// The block that keeps one partial result per value of the loop.
struct Partial {
  Block block;
  BufferRef buffer;
};

// `block` with the loop's variable as a spatial iterator before all others, and each other reduce
// loop as an iterator of its own.
Partial MakePartial(const Block& block, const For& split_off,
                    const std::vector<const For*>& reduce_loops) {
  const std::string name = absl::StrCat(block.name, ".rf");
  const ir::Buffer& old = *block.store.buffer;
  std::vector<int64_t> shape = old.shape;
  shape.push_back(split_off.extent);
  Partial partial;
  partial.buffer = std::make_shared<const ir::Buffer>(
      ir::Buffer{name + "_buf", old.dtype, std::move(shape), ir::Scope::kGlobal});

  NewIters iters;
  iters.Add(name, split_off.extent, IterKind::kSpatial, ir::VarExpr(split_off.var));
  ir::Substitution loop_to_iter{{split_off.var.get(), iters.exprs[0]}};
  ir::Substitution old_to_new;
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.kind != IterKind::kSpatial) continue;
    iters.Add(name, iter.extent, iter.kind, iter.binding);
    old_to_new.emplace(iter.var.get(), iters.exprs.back());
  }
  bool reduces = false;
  for (const For* loop : reduce_loops) {
    if (loop->var == split_off.var) continue;
    iters.Add(name, loop->extent, IterKind::kReduce, ir::VarExpr(loop->var));
    loop_to_iter.emplace(loop->var.get(), iters.exprs.back());
    reduces = true;
  }
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.kind != IterKind::kReduce) continue;
    old_to_new.emplace(iter.var.get(), ir::Substitute(iter.binding, loop_to_iter));
  }
  std::vector<Expr> indices;
  for (const Expr& index : block.store.indices)
    indices.push_back(ir::Substitute(index, old_to_new));
  indices.push_back(iters.exprs[0]);
  partial.block =
      Block{name,
            iters.iters,
            nullptr,
            std::nullopt,
            {partial.buffer, std::move(indices), ir::Substitute(block.store.value, old_to_new)}};
  if (reduces) {
    partial.block.reducer =
        ir::Reducer{block.reducer->op, ir::Identity(block.reducer->op, old.dtype)};
  }
  return partial;
}

}  // namespace

absl::StatusOr<Rewritten> DecomposeReduction(const Program& p, const std::string& block_name,
                                             const std::string& loop_name) {
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(p.body, block_name));
  HEDDLE_ASSIGN_OR_RETURN(Path loop_path, FindLoop(p.body, loop_name));
  const Block& block = path.block();
  if (!block.reducer) return Illegal(block, "is not a reduction");
  if (!block.reducer->init) return Illegal(block, "is decomposed already");
  if (!path.Contains(loop_path.target().get())) {
    return Illegal(block, absl::StrCat("is not under loop ", Quoted(loop_name)));
  }
  for (const For* outer : loop_path.Loops()) {
    Role role = RoleOf(block, outer->var.get());
    if (outer->extent > 1 && (role == Role::kReduce || role == Role::kMixed)) {
      return Illegal(block, absl::StrCat("has a reduce loop ", Quoted(outer->var->name),
                                         " outside loop ", Quoted(loop_name)));
    }
  }
  const size_t depth = loop_path.nodes.size() - 1;
  std::vector<const For*> loops = path.Loops(depth);
  HEDDLE_ASSIGN_OR_RETURN(Mirror mirror, MirrorSpatial(block, loops, [](int, const For& loop) {
                            return absl::StrCat(loop.var->name, ".init");
                          }));
  for (const For* inner : loops) {
    if (inner->extent == 1 || RoleOf(block, inner->var.get()) != Role::kFree) continue;
    return Illegal(block,
                   absl::StrCat("is computed again in every iteration of loop ",
                                Quoted(inner->var->name), ", each with its own initialisation"));
  }
  // The copies run the way their originals do: an unrolled register tile is initialised unrolled.
  size_t k = 0;
  for (const For* loop : loops) {
    if (RoleOf(block, loop->var.get()) == Role::kSpatial) mirror.loops[k++].kind = loop->kind;
  }
  const std::string name = absl::StrCat(block_name, ".init");
  std::vector<std::string> names{name};
  for (const FreshLoop& loop : mirror.loops) names.push_back(loop.var->name);
  NewIters iters;
  ir::Substitution map;
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.kind != IterKind::kSpatial) continue;
    iters.Add(name, iter.extent, iter.kind, mirror.iter_bindings.at(iter.var.get()));
    names.push_back(iters.iters.back().var->name);
    map.emplace(iter.var.get(), iters.exprs.back());
  }
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, names));
  Block init{name,
             iters.iters,
             mirror.where,
             std::nullopt,
             {block.store.buffer, {}, ir::Substitute(block.reducer->init, map)}};
  for (const Expr& index : block.store.indices)
    init.store.indices.push_back(ir::Substitute(index, map));

  Block update = block;
  update.reducer->init = nullptr;
  Path below{std::vector<Stmt>(path.nodes.begin() + depth, path.nodes.end())};
  Stmt rest = ReplaceTarget(below, ir::MakeStmt(std::move(update)));
  Stmt both = ir::MakeSeq({Nest(mirror.loops, ir::MakeStmt(std::move(init))), rest});
  Allocations allocs;
  Stmt body = StripAllocs(ReplaceAt(path, depth, both), &allocs);
  HEDDLE_ASSIGN_OR_RETURN(Program decomposed, Finish(p, std::move(body), allocs));
  return Rewritten(std::move(decomposed), {}, {{name, CursorsOf(mirror.loops)}});
}

absl::StatusOr<Rewritten> Rfactor(const Program& p, const std::string& block_name,
                                  const std::string& loop_name) {
  Allocations allocs;
  Stmt body = StripAllocs(p.body, &allocs);
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindBlock(body, block_name));
  HEDDLE_ASSIGN_OR_RETURN(Path loop_path, FindLoop(body, loop_name));
  const Block& block = path.block();
  if (!block.reducer) return Illegal(block, "is not a reduction");
  if (!block.reducer->init) return Illegal(block, "is decomposed already");
  if (block.where) return Illegal(block, "has a guard");
  if (!path.Contains(loop_path.target().get()) ||
      RoleOf(block, loop_path.loop().var.get()) != Role::kReduce) {
    return Illegal(block, absl::StrCat("does not reduce over loop ", Quoted(loop_name)));
  }
  std::vector<const For*> reduce_loops;
  for (const For* loop : path.Loops()) {
    Role role = RoleOf(block, loop->var.get());
    if (role == Role::kMixed) {
      return Illegal(block, absl::StrCat("has a loop ", Quoted(loop->var->name),
                                         " that is spatial and reduce at once"));
    }
    if (role == Role::kReduce) reduce_loops.push_back(loop);
  }
  const For& loop = loop_path.loop();
  Partial partial = MakePartial(block, loop, reduce_loops);
  // The merging block keeps the old name. Its loops and iterators are named after it with the
  // suffix .merge, because the partial block keeps the old loops.
  HEDDLE_ASSIGN_OR_RETURN(CopyNest nest, MakeCopyNest(path, block_name, ".merge"));
  NewIters iters;
  for (size_t k = 0; k < nest.iters.iters.size(); ++k) {
    iters.Add(absl::StrCat(block_name, ".merge"), nest.iters.iters[k].extent, IterKind::kSpatial,
              nest.iters.iters[k].binding);
  }
  FreshLoop merge_loop{MakeVar(absl::StrCat(block_name, ".merge.", nest.loops.size())),
                       loop.extent};
  iters.Add(absl::StrCat(block_name, ".merge"), loop.extent, IterKind::kReduce,
            ir::VarExpr(merge_loop.var));
  ir::Substitution rename;
  for (size_t k = 0; k < nest.iters.iters.size(); ++k) {
    rename.emplace(nest.iters.iters[k].var.get(), iters.exprs[k]);
  }
  nest.loops.push_back(merge_loop);
  std::vector<Expr> indices;
  for (const Expr& index : nest.indices) indices.push_back(ir::Substitute(index, rename));
  std::vector<Expr> partial_indices = indices;
  partial_indices.push_back(iters.exprs.back());
  // The initial value may depend on the spatial iterators.
  StoreShape shape = StoreShapeOf(block);
  if (!shape.exact) return Illegal(block, "does not store exactly at its iterators");
  ir::Substitution init_map;
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    if (shape.dims[d] != nullptr) init_map.emplace(shape.dims[d]->var.get(), indices[d]);
  }
  Block merge{block_name,
              iters.iters,
              nest.where,
              ir::Reducer{block.reducer->op, ir::Substitute(block.reducer->init, init_map)},
              {block.store.buffer, indices, ir::Load(partial.buffer, partial_indices)}};

  std::vector<std::string> names{partial.block.name, partial.buffer->name};
  for (const FreshLoop& fresh : nest.loops) names.push_back(fresh.var->name);
  for (const ir::BlockIter& iter : iters.iters) names.push_back(iter.var->name);
  for (const ir::BlockIter& iter : partial.block.iters) names.push_back(iter.var->name);
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, names));
  Path below{std::vector<Stmt>(path.nodes.begin() + nest.top, path.nodes.end())};
  const std::string partial_name = partial.block.name;
  Stmt first = ReplaceTarget(below, ir::MakeStmt(std::move(partial.block)));
  Stmt both = ir::MakeSeq({first, Nest(nest.loops, ir::MakeStmt(std::move(merge)))});
  allocs.buffers.push_back(partial.buffer);
  HEDDLE_ASSIGN_OR_RETURN(Program parted, Finish(p, ReplaceAt(path, nest.top, both), allocs));
  return Rewritten(std::move(parted), CursorsOf(nest.loops), {{partial_name, {}}});
}

}  // namespace heddle::schedule
