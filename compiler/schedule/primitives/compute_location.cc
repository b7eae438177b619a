// Primitives that move a block under a loop of another one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives/allocation.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/required_region.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::Expr;
using ir::For;
using ir::Stmt;

namespace {

// A body without its allocations, and what a primitive looks for in it.
struct Scene {
  Stmt body;
  Allocations allocs;
  Path block;
  Path loop;
  std::vector<Path> blocks;
};

absl::StatusOr<Scene> SetScene(const Program& p, const std::string& block,
                               const std::string& loop) {
  Scene scene;
  scene.body = StripAllocs(p.body, &scene.allocs);
  HEDDLE_ASSIGN_OR_RETURN(scene.block, FindBlock(scene.body, block));
  HEDDLE_ASSIGN_OR_RETURN(scene.loop, FindLoop(scene.body, loop));
  if (scene.block.Contains(scene.loop.target().get())) {
    return Illegal(scene.block.block(), absl::StrCat("is under loop ", Quoted(loop), " already"));
  }
  if (scene.loop.loop().kind == ir::LoopKind::kVectorized) {
    return Illegal(scene.block.block(),
                   absl::StrCat("cannot move into loop ", Quoted(loop), ", which is vectorized"));
  }
  scene.blocks = AllBlocks(scene.body);
  return scene;
}

// Everything the block reads must be finished at the loop as it was at the block's old place: its
// producers come before the loop and share no loop with it that they do not share with the block.
absl::Status CheckProducersFinished(const Scene& scene, const Path* exempt) {
  const Block& block = scene.block.block();
  size_t first_under_loop = scene.blocks.size();
  for (size_t i = 0; i < scene.blocks.size(); ++i) {
    if (scene.blocks[i].Contains(scene.loop.target().get())) {
      first_under_loop = i;
      break;
    }
  }
  for (size_t i = 0; i < scene.blocks.size(); ++i) {
    const Path& producer = scene.blocks[i];
    const ir::Buffer* written = producer.block().store.buffer.get();
    if (producer.target() == scene.block.target() || !Reads(block, written)) continue;
    if (exempt != nullptr && written == exempt->block().store.buffer.get()) continue;
    if (producer.Contains(scene.loop.target().get()) || i > first_under_loop) {
      return Illegal(block, absl::StrCat("reads what block ", Quoted(producer.block().name),
                                         " produces under loop ",
                                         Quoted(scene.loop.loop().var->name), " or after it"));
    }
    int with_loop = RealLoops(producer, CommonDepth(producer, scene.loop));
    int with_block = RealLoops(producer, CommonDepth(producer, scene.block));
    if (with_loop > with_block) {
      return Illegal(block, absl::StrCat("reads what block ", Quoted(producer.block().name),
                                         " has only partly produced at loop ",
                                         Quoted(scene.loop.loop().var->name)));
    }
  }
  return absl::OkStatus();
}

// Whether something that the block reads is produced within the loops that it is moved into.
bool MeetsProducers(const Scene& scene) {
  for (const Path& path : scene.blocks) {
    if (path.target() == scene.block.target()) continue;
    if (!Reads(scene.block.block(), path.block().store.buffer.get())) continue;
    if (RealLoops(path, CommonDepth(path, scene.loop)) > 0) return true;
  }
  return false;
}

// The loop with `moved` at the head or at the end of its body.
Stmt Insert(const Path& loop_path, Stmt moved, bool at_head) {
  const For& loop = loop_path.loop();
  std::vector<Stmt> stmts = at_head ? std::vector<Stmt>{std::move(moved), loop.body}
                                    : std::vector<Stmt>{loop.body, std::move(moved)};
  return ir::MakeStmt(For{loop.var, loop.extent, loop.kind, ir::MakeSeq(std::move(stmts))});
}

absl::Status CheckFreshLoops(const Program& p, const std::vector<FreshLoop>& loops) {
  std::vector<std::string> names;
  for (const FreshLoop& loop : loops) names.push_back(loop.var->name);
  return CheckNamesFree(p, names);
}

// Deletes the block from its old place, then puts `moved` into the loop.
absl::StatusOr<Program> Move(const Program& p, const Scene& scene, Stmt moved, bool at_head) {
  Stmt without = ReplaceTarget(scene.block, nullptr);
  HEDDLE_ASSIGN_OR_RETURN(Path loop, FindLoop(without, scene.loop.loop().var->name));
  return Finish(p, ReplaceTarget(loop, Insert(loop, std::move(moved), at_head)), scene.allocs);
}

std::string FreshName(const Scene& scene, size_t k) {
  return absl::StrCat(scene.block.block().name, "@", scene.loop.loop().var->name, ".", k);
}

// ---- reverse_compute_at ----

// The block under the loop that produces what the consumer reads; the last writer, if an
// initialisation was split off.
absl::StatusOr<const Path*> FindProducer(const Scene& scene) {
  const Path* found = nullptr;
  for (const Path& path : scene.blocks) {
    if (!path.Contains(scene.loop.target().get())) continue;
    if (!Reads(scene.block.block(), path.block().store.buffer.get())) continue;
    if (found != nullptr && found->block().store.buffer != path.block().store.buffer) {
      return Illegal(scene.block.block(), absl::StrCat("reads several buffers produced under loop ",
                                                       Quoted(scene.loop.loop().var->name)));
    }
    found = &path;
  }
  if (found == nullptr) {
    return Illegal(scene.block.block(), absl::StrCat("reads nothing that is produced under loop ",
                                                     Quoted(scene.loop.loop().var->name)));
  }
  return found;
}

absl::Status CheckFinal(const Scene& scene, const Path& producer) {
  const Block& block = producer.block();
  for (const Path& path : scene.blocks) {
    if (path.block().store.buffer == block.store.buffer &&
        !path.Contains(scene.loop.target().get())) {
      return Illegal(scene.block.block(),
                     absl::StrCat("reads what block ", Quoted(path.block().name),
                                  " produces outside the loop"));
    }
  }
  for (const Stmt& s : scene.loop.nodes) {
    const auto* loop = As<For>(s);
    if (loop == nullptr || loop->extent == 1) continue;
    Role role = RoleOf(block, loop->var.get());
    if (role == Role::kReduce || role == Role::kMixed) {
      return Illegal(block,
                     absl::StrCat("is not final in loop ", Quoted(scene.loop.loop().var->name),
                                  ": its reduce loop ", Quoted(loop->var->name), " is outside"));
    }
    if (role == Role::kFree) {
      return Illegal(block, absl::StrCat("is computed again in every iteration of loop ",
                                         Quoted(loop->var->name), "; its consumer would be too"));
    }
  }
  if (!CoversDomainOnce(scene.block)) {
    return Illegal(scene.block.block(), "has a guard or loops over a part of its domain only");
  }
  // Roles do not show repetition by fused loops; the number of instances does.
  if (!block.where && !CoversDomainOnce(producer)) {
    return Illegal(block, "computes some elements several times; its consumer would too");
  }
  if (RealLoops(producer, CommonDepth(producer, scene.block)) > 0) {
    return Illegal(scene.block.block(), absl::StrCat("shares a loop with its producer ",
                                                     Quoted(block.name), " already"));
  }
  return absl::OkStatus();
}

// For every dimension of the producer's buffer, the consumer's spatial iterator that reads it (null
// for constant zero).
absl::StatusOr<std::vector<const ir::BlockIter*>> MatchIterators(const Block& consumer,
                                                                 const Block& producer) {
  const ir::Buffer* buffer = producer.store.buffer.get();
  std::vector<Expr> loads;
  ForEachLoad(consumer, [&](const Expr& load) {
    if (load->buffer.get() == buffer) loads.push_back(load);
  });
  auto refuse = [&] {
    return Illegal(consumer, absl::StrCat("does not read each element of block ",
                                          Quoted(producer.name), " at a point of its own"));
  };
  std::vector<const ir::BlockIter*> dims;
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    const Expr& index = loads[0]->args[d];
    for (const Expr& other : loads) {
      if (!ir::StructuralEqual(other->args[d], index)) return refuse();
    }
    if (buffer->shape[d] == 1 && ir::IsConstInt(index)) {
      dims.push_back(nullptr);
      continue;
    }
    auto it =
        std::find_if(consumer.iters.begin(), consumer.iters.end(), [&](const ir::BlockIter& iter) {
          return index->kind == ir::ExprKind::kVar && iter.var == index->var;
        });
    if (it == consumer.iters.end() || it->kind != ir::IterKind::kSpatial ||
        it->extent != buffer->shape[d] || std::find(dims.begin(), dims.end(), &*it) != dims.end()) {
      return refuse();
    }
    dims.push_back(&*it);
  }
  return dims;
}

}  // namespace

absl::StatusOr<Rewritten> ComputeAt(const Program& p, const std::string& block_name,
                                    const std::string& loop_name) {
  HEDDLE_ASSIGN_OR_RETURN(Scene scene, SetScene(p, block_name, loop_name));
  const Block& block = scene.block.block();
  const ir::Buffer* buffer = block.store.buffer.get();
  if (IsOutput(p, buffer)) return Illegal(block, "writes an output");
  if (block.reducer && !block.reducer->init)
    return Illegal(block, "is a reduction decomposed already");
  std::vector<Path> consumers;
  for (const Path& path : scene.blocks) {
    if (path.target() == scene.block.target()) continue;
    if (path.block().store.buffer.get() == buffer) {
      return Illegal(block,
                     absl::StrCat("shares its buffer with block ", Quoted(path.block().name)));
    }
    if (!Reads(path.block(), buffer)) continue;
    if (!path.Contains(scene.loop.target().get())) {
      return Illegal(block, absl::StrCat("has a consumer outside loop ", Quoted(loop_name),
                                         ": block ", Quoted(path.block().name)));
    }
    consumers.push_back(path);
  }
  if (consumers.empty()) return Illegal(block, "has no consumer");
  HEDDLE_RETURN_IF_ERROR(CheckProducersFinished(scene, nullptr));
  HEDDLE_ASSIGN_OR_RETURN(
      RegionNest nest,
      ComputeRegion(block, consumers, scene.loop.nodes.size(), scene.loop.nodes,
                    MeetsProducers(scene), [&](size_t k) { return FreshName(scene, k); }));
  HEDDLE_RETURN_IF_ERROR(CheckFreshLoops(p, nest.loops));
  HEDDLE_ASSIGN_OR_RETURN(
      Program moved,
      Move(p, scene, Nest(nest.loops, ir::MakeStmt(std::move(nest.block))), /*at_head=*/true));
  return Rewritten(std::move(moved), CursorsOf(nest.loops));
}

absl::StatusOr<Rewritten> ReverseComputeAt(const Program& p, const std::string& block_name,
                                           const std::string& loop_name) {
  HEDDLE_ASSIGN_OR_RETURN(Scene scene, SetScene(p, block_name, loop_name));
  const Block& consumer = scene.block.block();
  if (consumer.reducer && !consumer.reducer->init) {
    return Illegal(consumer, "is a reduction decomposed already");
  }
  HEDDLE_ASSIGN_OR_RETURN(const Path* producer, FindProducer(scene));
  HEDDLE_RETURN_IF_ERROR(CheckFinal(scene, *producer));
  HEDDLE_RETURN_IF_ERROR(CheckProducersFinished(scene, producer));
  const Block& source = producer->block();
  StoreShape shape = StoreShapeOf(source);
  if (!shape.exact) return Illegal(source, "does not store exactly at its iterators");
  HEDDLE_ASSIGN_OR_RETURN(std::vector<const ir::BlockIter*> dims, MatchIterators(consumer, source));

  // The consumer visits the points that its producer has just finished. It does so in the same
  // loops, renamed; iterators that the producer does not have get their own loops.
  HEDDLE_ASSIGN_OR_RETURN(
      Mirror mirror,
      MirrorSpatial(source, producer->Loops(scene.loop.nodes.size()),
                    [&](int k, const For&) { return FreshName(scene, static_cast<size_t>(k)); }));
  Block moved = consumer;
  moved.where = mirror.where;
  for (ir::BlockIter& iter : moved.iters) {
    size_t d = 0;
    while (d < dims.size() && (dims[d] == nullptr || dims[d]->var != iter.var)) ++d;
    if (d == dims.size()) {
      mirror.loops.push_back({MakeVar(FreshName(scene, mirror.loops.size())), iter.extent});
      iter.binding = ir::VarExpr(mirror.loops.back().var);
    } else {
      iter.binding =
          shape.dims[d] == nullptr ? ir::Int(0) : mirror.iter_bindings.at(shape.dims[d]->var.get());
    }
  }
  HEDDLE_RETURN_IF_ERROR(CheckFreshLoops(p, mirror.loops));
  HEDDLE_ASSIGN_OR_RETURN(
      Program rewritten,
      Move(p, scene, Nest(mirror.loops, ir::MakeStmt(std::move(moved))), /*at_head=*/false));
  return Rewritten(std::move(rewritten), CursorsOf(mirror.loops));
}

}  // namespace heddle::schedule
