// Primitives that rewrite loops and leave blocks where they are.
#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/primitives/allocation.h"
#include "compiler/schedule/primitives/primitives.h"
#include "compiler/schedule/tree.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::Expr;
using ir::For;
using ir::LoopKind;
using ir::Stmt;

namespace {

// More vector lanes and copies than these only cost code size.
constexpr int64_t kMaxLanes = 64;
constexpr int64_t kMaxUnroll = 4096;
// The verifier allows no loop more. Below it, no product of two extents overflows.
constexpr int64_t kMostIterations = int64_t{1} << 40;

absl::string_view Word(LoopKind kind) {
  std::string_view name = ir::Name(kind);
  return kind == LoopKind::kSerial ? "serial" : absl::string_view(name.data(), name.size());
}

absl::Status IllegalLoop(const For& loop, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("loop ", Quoted(loop.var->name), " ", why));
}

Program WithBody(const Program& p, Stmt body) {
  return Program{p.name, p.inputs, p.outputs, std::move(body)};
}

// Replaces loop variables in every block, and adds the guard, if there is one.
Stmt Rebind(const Stmt& body, const ir::Substitution& map, const Expr& guard) {
  return MapBlocks(body, [&](const Stmt& s) -> Stmt {
    Block block = *As<Block>(s);
    for (ir::BlockIter& iter : block.iters) iter.binding = ir::Substitute(iter.binding, map);
    if (block.where) block.where = ir::Substitute(block.where, map);
    if (guard) block.where = AndMaybe(guard, block.where);
    return ir::MakeStmt(std::move(block));
  });
}

bool UnderDivision(const Expr& e, const ir::Var* var) {
  if (e->kind != ir::ExprKind::kOp) return false;
  const bool divides = e->op == ir::Op::kFloorDiv || e->op == ir::Op::kFloorMod;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& arg) {
    return (divides && ir::UsesVar(arg, var)) || UnderDivision(arg, var);
  });
}

// A block below the loop that takes the loop's variable apart by divisions, as fusing does; null if
// there is none.
const Block* DividesVariable(const For& loop) {
  const Block* found = nullptr;
  ir::VisitStmt(loop.body, [&](const Stmt& s) {
    const auto* block = As<Block>(s);
    if (block == nullptr) return true;
    for (const ir::BlockIter& iter : block->iters) {
      if (UnderDivision(iter.binding, loop.var.get())) found = block;
    }
    return true;
  });
  return found;
}

// The product of the factors if it is in [extent, 2 * extent].
absl::StatusOr<int64_t> CheckFactors(const For& loop, const std::vector<int64_t>& factors) {
  if (factors.empty()) return absl::InvalidArgumentError("split needs at least one factor");
  int64_t product = 1;
  for (int64_t factor : factors) {
    if (factor <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("split factor ", factor, " is not positive"));
    }
    // Factors that overflow are over twice the extent anyway.
    if (factor > 2 * loop.extent || product > 2 * loop.extent) {
      product = 2 * loop.extent + 1;
      break;
    }
    product *= factor;
  }
  if (product < loop.extent) {
    return IllegalLoop(loop, absl::StrCat("of extent ", loop.extent,
                                          " is not covered by factors of product ", product));
  }
  if (product > 2 * loop.extent) {
    return IllegalLoop(loop, absl::StrCat("of extent ", loop.extent,
                                          " is split into more than twice its iterations"));
  }
  return product;
}

absl::StatusOr<Program> SetKind(const Program& p, const Path& path, LoopKind kind) {
  const For& loop = path.loop();
  if (ir::IsGpu(loop.kind)) return IllegalLoop(loop, "is bound to a GPU axis");
  Stmt changed = ir::MakeStmt(For{loop.var, loop.extent, kind, loop.body});
  Program result = WithBody(p, ReplaceTarget(path, changed));
  HEDDLE_RETURN_IF_ERROR(CheckKind(result.body, changed));
  return result;
}

// Reductions below a statement.
std::vector<const Block*> ReductionsIn(const Stmt& s) {
  std::vector<const Block*> reductions;
  ir::VisitStmt(s, [&](const Stmt& node) {
    const auto* block = As<Block>(node);
    if (block != nullptr && block->reducer) reductions.push_back(block);
    return true;
  });
  return reductions;
}

// FailedPrecondition if the loops have different roles in a reduction. A fused loop does not show
// which part is which, and a later split and reorder could run updates of an element before its
// initialisation.
absl::Status CheckSameRoles(const std::vector<const For*>& chain) {
  for (const Block* block : ReductionsIn(chain.back()->body)) {
    const For* first = nullptr;
    for (const For* loop : chain) {
      if (loop->extent == 1) continue;
      if (first == nullptr) first = loop;
      if (RoleOf(*block, first->var.get()) == RoleOf(*block, loop->var.get())) continue;
      return IllegalLoop(
          *first, absl::StrCat("and loop ", Quoted(loop->var->name),
                               " mean different things to the reduction ", Quoted(block->name)));
    }
  }
  return absl::OkStatus();
}

// A loop that repeats a reduction must stay outside the reduce loops. Otherwise the updates of one
// element would run twice after one initialisation.
absl::Status CheckRepeatsOutside(const std::vector<const For*>& order, const Stmt& body) {
  for (const Block* block : ReductionsIn(body)) {
    const For* reduce = nullptr;
    for (const For* loop : order) {
      if (loop->extent == 1) continue;
      Role role = RoleOf(*block, loop->var.get());
      if (role == Role::kReduce || role == Role::kMixed) reduce = loop;
      if (role != Role::kFree || reduce == nullptr) continue;
      return IllegalLoop(
          *loop, absl::StrCat("repeats block ", Quoted(block->name),
                              " and cannot go inside its reduce loop ", Quoted(reduce->var->name)));
    }
  }
  return absl::OkStatus();
}

// The chain of directly nested loops from the topmost to the bottommost of `names`; an error if
// something else lies between.
absl::StatusOr<std::vector<Stmt>> ChainOf(const Stmt& root, const std::vector<std::string>& names,
                                          Path* top) {
  std::vector<Path> paths;
  for (const std::string& name : names) {
    HEDDLE_ASSIGN_OR_RETURN(Path path, FindLoop(root, name));
    paths.push_back(std::move(path));
  }
  auto deeper = [](const Path& a, const Path& b) { return a.nodes.size() < b.nodes.size(); };
  const Path& bottom = *std::max_element(paths.begin(), paths.end(), deeper);
  *top = *std::min_element(paths.begin(), paths.end(), deeper);
  for (const Path& path : paths) {
    if (!bottom.Contains(path.target().get())) {
      return IllegalLoop(path.loop(), absl::StrCat("does not lie on one chain with loop ",
                                                   Quoted(bottom.loop().var->name)));
    }
  }
  std::vector<Stmt> chain(bottom.nodes.begin() + (top->nodes.size() - 1), bottom.nodes.end());
  for (const Stmt& s : chain) {
    if (!As<For>(s)) {
      return IllegalLoop(top->loop(), absl::StrCat("and loop ", Quoted(bottom.loop().var->name),
                                                   " have something else between them"));
    }
  }
  return chain;
}

}  // namespace

absl::StatusOr<Rewritten> Split(const Program& p, const std::string& loop_name,
                                const std::vector<int64_t>& factors) {
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindLoop(p.body, loop_name));
  const For& loop = path.loop();
  HEDDLE_ASSIGN_OR_RETURN(int64_t product, CheckFactors(loop, factors));
  if (ir::IsGpu(loop.kind)) return IllegalLoop(loop, "is bound to a GPU axis and cannot be split");
  if (loop.kind == LoopKind::kVectorized)
    return IllegalLoop(loop, "is vectorized and cannot be split");
  if (product > loop.extent) {
    if (const Block* block = DividesVariable(loop)) {
      return IllegalLoop(loop,
                         absl::StrCat("was fused and needs factors that divide it: a guard would "
                                      "not bound the iterators of block ",
                                      Quoted(block->name)));
    }
  }

  std::vector<FreshLoop> loops;
  std::vector<std::string> names;
  loops.reserve(factors.size());
  names.reserve(factors.size());
  Expr value = ir::Int(0);
  for (size_t k = 0; k < factors.size(); ++k) {
    names.push_back(absl::StrCat(loop_name, ".", k));
    // Only the outermost part of a parallel loop stays parallel; every part of an unrolled loop is
    // unrolled.
    LoopKind kind = k == 0 || loop.kind == LoopKind::kUnrolled ? loop.kind : LoopKind::kSerial;
    loops.push_back({MakeVar(names.back()), factors[k], kind});
    value = value * ir::Int(factors[k]) + ir::VarExpr(loops.back().var);
  }
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, names));
  Expr guard = product > loop.extent ? ir::Lt(value, ir::Int(loop.extent)) : nullptr;
  Stmt body = Rebind(loop.body, {{loop.var.get(), value}}, guard);
  return Rewritten(WithBody(p, ReplaceTarget(path, Nest(loops, std::move(body)))),
                   CursorsOf(loops));
}

absl::StatusOr<Rewritten> Fuse(const Program& p, const std::vector<std::string>& loops) {
  if (loops.size() < 2) return absl::InvalidArgumentError("fuse needs at least two loops");
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindLoop(p.body, loops[0]));
  std::vector<const For*> chain{&path.loop()};
  std::string name = loops[0];
  int64_t extent = chain[0]->extent;
  for (size_t k = 1; k < loops.size(); ++k) {
    const auto* next = As<For>(chain.back()->body);
    if (next == nullptr || next->var->name != loops[k]) {
      HEDDLE_RETURN_IF_ERROR(FindLoop(p.body, loops[k]).status());
      return IllegalLoop(*chain.back(),
                         absl::StrCat("has not loop ", Quoted(loops[k]), " directly inside it"));
    }
    chain.push_back(next);
    absl::StrAppend(&name, "*", loops[k]);
    if (extent < 1 || next->extent > kMostIterations / extent)
      return IllegalLoop(*next, "would make a loop of more than 2^40 iterations");
    extent *= next->extent;
  }
  for (const For* loop : chain) {
    if (loop->kind != LoopKind::kSerial) {
      return IllegalLoop(*loop, absl::StrCat("is ", Word(loop->kind), "; only serial loops fuse"));
    }
  }
  HEDDLE_RETURN_IF_ERROR(CheckSameRoles(chain));
  HEDDLE_RETURN_IF_ERROR(CheckNamesFree(p, {name}));
  ir::VarRef fused = MakeVar(name);
  ir::Substitution map;
  int64_t inner = extent;
  for (size_t k = 0; k < chain.size(); ++k) {
    inner /= chain[k]->extent;
    Expr value = ir::VarExpr(fused);
    if (inner > 1) value = ir::FloorDiv(value, ir::Int(inner));
    if (chain[k]->extent == 1) {
      value = ir::Int(0);
    } else if (chain[k]->extent * inner < extent) {
      value = ir::FloorMod(value, ir::Int(chain[k]->extent));
    }
    map.emplace(chain[k]->var.get(), value);
  }
  Stmt body = Rebind(chain.back()->body, map, nullptr);
  return Rewritten(WithBody(p, ReplaceTarget(path, Nest({{fused, extent}}, std::move(body)))),
                   {{name, extent}});
}

absl::StatusOr<Rewritten> Reorder(const Program& p, const std::vector<std::string>& loops) {
  if (loops.size() < 2) return absl::InvalidArgumentError("reorder needs at least two loops");
  std::unordered_set<std::string> named(loops.begin(), loops.end());
  if (named.size() != loops.size()) {
    return absl::InvalidArgumentError("reorder names a loop twice");
  }
  Path top;
  HEDDLE_ASSIGN_OR_RETURN(std::vector<Stmt> chain, ChainOf(p.body, loops, &top));
  std::vector<const For*> order;
  size_t next = 0;
  for (const Stmt& s : chain) {
    const For* loop = As<For>(s);
    if (named.count(loop->var->name)) {
      const std::string& name = loops[next++];
      loop = As<For>(*std::find_if(chain.begin(), chain.end(), [&](const Stmt& candidate) {
        return As<For>(candidate)->var->name == name;
      }));
    }
    order.push_back(loop);
  }
  Stmt body = As<For>(chain.back())->body;
  HEDDLE_RETURN_IF_ERROR(CheckRepeatsOutside(order, body));
  bool concurrent = false;
  for (size_t i = order.size(); i > 0; --i) {
    const For& loop = *order[i - 1];
    concurrent |= loop.kind != LoopKind::kSerial && loop.kind != LoopKind::kUnrolled;
    body = ir::MakeStmt(For{loop.var, loop.extent, loop.kind, std::move(body)});
  }
  Program result = WithBody(p, ReplaceTarget(top, std::move(body)));
  if (concurrent) HEDDLE_RETURN_IF_ERROR(CheckConcurrency(result.body, p.body));
  return result;
}

absl::StatusOr<Rewritten> Parallel(const Program& p, const std::string& loop) {
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindLoop(p.body, loop));
  return SetKind(p, path, LoopKind::kParallel);
}

absl::StatusOr<Rewritten> Vectorize(const Program& p, const std::string& loop) {
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindLoop(p.body, loop));
  if (path.loop().extent > kMaxLanes) {
    return IllegalLoop(path.loop(), absl::StrCat("of extent ", path.loop().extent, " is over ",
                                                 kMaxLanes, ", too long to vectorize"));
  }
  return SetKind(p, path, LoopKind::kVectorized);
}

absl::StatusOr<Rewritten> Unroll(const Program& p, const std::string& loop) {
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindLoop(p.body, loop));
  if (path.loop().extent > kMaxUnroll) {
    return IllegalLoop(path.loop(), absl::StrCat("of extent ", path.loop().extent, " is over ",
                                                 kMaxUnroll, ", too long to unroll"));
  }
  return SetKind(p, path, LoopKind::kUnrolled);
}

absl::StatusOr<Rewritten> Bind(const Program& p, const std::string& loop_name, LoopKind axis) {
  if (!ir::IsGpu(axis) || axis == LoopKind::kTensor) {
    return absl::InvalidArgumentError(absl::StrCat("`", Word(axis), "` is not a GPU axis"));
  }
  HEDDLE_ASSIGN_OR_RETURN(Path path, FindLoop(p.body, loop_name));
  const For& loop = path.loop();
  auto bound_twice = [&] {
    return IllegalLoop(loop, absl::StrCat("cannot be bound to ", Word(axis),
                                          ": the axis is bound already on its path"));
  };
  auto block_in_thread = [&] {
    return IllegalLoop(loop, absl::StrCat("cannot be bound to ", Word(axis),
                                          ": a block axis would lie inside a thread axis"));
  };
  for (const For* outer : path.Loops()) {
    if (outer->kind == axis && axis != LoopKind::kVThread) return bound_twice();
    if (ir::IsGpuBlock(axis) && ir::IsGpuThread(outer->kind)) return block_in_thread();
  }
  bool twice = false;
  bool inverted = false;
  ir::VisitStmt(loop.body, [&](const Stmt& s) {
    if (const auto* inner = As<For>(s)) {
      twice |= inner->kind == axis && axis != LoopKind::kVThread;
      inverted |= ir::IsGpuThread(axis) && ir::IsGpuBlock(inner->kind);
    }
    return true;
  });
  if (twice) return bound_twice();
  if (inverted) return block_in_thread();
  return SetKind(p, path, axis);
}

}  // namespace heddle::schedule
