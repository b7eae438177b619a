#include "compiler/schedule/tree.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/visit.h"

namespace heddle::schedule {

using ir::As;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::For;
using ir::Stmt;

namespace {

template <typename Match>
bool FindTrail(const Stmt& s, const Match& match, std::vector<const Stmt*>& trail) {
  trail.push_back(&s);
  if (match(s)) return true;
  if (ir::AnyChild(s, [&](const Stmt& child) { return FindTrail(child, match, trail); }))
    return true;
  trail.pop_back();
  return false;
}

// Down to the first statement that matches; empty if none does.
template <typename Match>
Path FindPath(const Stmt& root, const Match& match) {
  std::vector<const Stmt*> trail;
  Path path;
  if (!FindTrail(root, match, trail)) return path;
  path.nodes.reserve(trail.size());
  for (const Stmt* s : trail) path.nodes.push_back(*s);
  return path;
}

void CollectBlocks(const Stmt& s, std::vector<Stmt>& nodes, std::vector<Path>& out) {
  nodes.push_back(s);
  if (As<Block>(s)) out.push_back(Path{nodes});
  ir::ForEachChild(s, [&](const Stmt& child) { CollectBlocks(child, nodes, out); });
  nodes.pop_back();
}

// Calls fn(name) for every name below a statement.
template <typename F>
void ForEachName(const Stmt& s, const F& fn) {
  if (const auto* loop = As<For>(s)) fn(loop->var->name);
  if (const auto* alloc = As<ir::Alloc>(s)) fn(alloc->buffer->name);
  if (const auto* block = As<Block>(s)) {
    fn(block->name);
    for (const ir::BlockIter& iter : block->iters) fn(iter.var->name);
  }
  ir::AnyChild(s, [&](const Stmt& child) {
    ForEachName(child, fn);
    return false;
  });
}

bool Loads(const Expr& e, const ir::Buffer* buffer) {
  return ir::Any(e, [&](const Expr& part) {
    return part->kind == ExprKind::kLoad && part->buffer.get() == buffer;
  });
}

void AddConjuncts(const Expr& e, std::vector<Expr>& out) {
  if (e->kind == ExprKind::kOp && e->op == ir::Op::kAnd) {
    AddConjuncts(e->args[0], out);
    AddConjuncts(e->args[1], out);
  } else {
    out.push_back(e);
  }
}

bool UsesAny(const Expr& e, const std::unordered_set<const ir::Var*>& vars) {
  return ir::Any(e, [&](const Expr& part) {
    return part->kind == ExprKind::kVar && vars.count(part->var.get()) > 0;
  });
}

}  // namespace

std::vector<const For*> Path::Loops(size_t from) const {
  std::vector<const For*> loops;
  for (size_t i = from; i + 1 < nodes.size(); ++i) {
    if (const auto* loop = As<For>(nodes[i])) loops.push_back(loop);
  }
  return loops;
}

bool Path::Contains(const ir::StmtNode* node) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const Stmt& s) { return s.get() == node; });
}

absl::StatusOr<Path> FindLoop(const Stmt& root, const std::string& name) {
  Path path = FindPath(root, [&](const Stmt& s) {
    const auto* loop = As<For>(s);
    return loop != nullptr && loop->var->name == name;
  });
  if (!path.nodes.empty()) return path;
  return absl::NotFoundError(absl::StrCat("no loop ", Quoted(name)));
}

absl::StatusOr<Path> FindBlock(const Stmt& root, const std::string& name) {
  Path path = FindPath(root, [&](const Stmt& s) {
    const auto* block = As<Block>(s);
    return block != nullptr && block->name == name;
  });
  if (!path.nodes.empty()) return path;
  return absl::NotFoundError(absl::StrCat("no block ", Quoted(name)));
}

std::vector<Path> AllBlocks(const Stmt& root) {
  std::vector<Path> blocks;
  std::vector<Stmt> nodes;
  CollectBlocks(root, nodes, blocks);
  return blocks;
}

const Block* OtherWriter(const Stmt& root, const Path& block) {
  for (const Path& path : AllBlocks(root)) {
    if (path.target() == block.target()) continue;
    if (path.block().store.buffer == block.block().store.buffer) {
      return &path.block();
    }
  }
  return nullptr;
}

bool CoversDomainOnce(const Path& path) {
  const Block& block = path.block();
  if (block.where) return false;
  int64_t instances = 1;
  int64_t elements = 1;
  for (const For* loop : path.Loops()) {
    if (RoleOf(block, loop->var.get()) != Role::kReduce) instances *= loop->extent;
  }
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.kind == ir::IterKind::kSpatial) elements *= iter.extent;
  }
  return instances == elements;
}

size_t CommonDepth(const Path& a, const Path& b) {
  size_t limit = std::min(a.nodes.size(), b.nodes.size());
  size_t depth = 0;
  while (depth < limit && a.nodes[depth] == b.nodes[depth]) ++depth;
  return depth;
}

int RealLoops(const Path& path, size_t depth) {
  int count = 0;
  for (size_t i = 0; i < depth; ++i) {
    const auto* loop = As<For>(path.nodes[i]);
    if (loop != nullptr && loop->extent > 1) ++count;
  }
  return count;
}

Stmt ReplaceAt(const Path& path, size_t depth, Stmt replacement) {
  Stmt current = std::move(replacement);
  for (size_t i = depth; i > 0; --i) {
    current = ir::MapChildren(path.nodes[i - 1], [&](const Stmt& child) {
      return child == path.nodes[i] ? current : child;
    });
  }
  return current;
}

Stmt MapBlocks(const Stmt& s, const std::function<Stmt(const Stmt&)>& fn) {
  if (As<Block>(s)) return fn(s);
  return ir::MapChildren(s, [&](const Stmt& child) { return MapBlocks(child, fn); });
}

bool Reads(const Block& block, const ir::Buffer* buffer) {
  return Loads(block.store.value, buffer) ||
         std::any_of(block.store.indices.begin(), block.store.indices.end(),
                     [&](const Expr& index) { return Loads(index, buffer); });
}

bool IsOutput(const ir::Program& p, const ir::Buffer* buffer) {
  return std::any_of(p.outputs.begin(), p.outputs.end(),
                     [&](const ir::BufferRef& b) { return b.get() == buffer; });
}

bool IsInput(const ir::Program& p, const ir::Buffer* buffer) {
  return std::any_of(p.inputs.begin(), p.inputs.end(),
                     [&](const ir::BufferRef& b) { return b.get() == buffer; });
}

absl::Status CheckNamesFree(const ir::Program& p, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, int> times;  // of the new names
  for (const std::string& name : names) ++times[name];
  const auto count = [&](const std::string& name) {
    if (const auto it = times.find(name); it != times.end()) ++it->second;
  };
  for (const ir::BufferRef& b : p.inputs) count(b->name);
  for (const ir::BufferRef& b : p.outputs) count(b->name);
  ForEachName(p.body, count);
  for (const std::string& name : names) {
    if (times[name] > 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("name ", Quoted(name), " exists already in the program"));
    }
  }
  return absl::OkStatus();
}

Role RoleOf(const Block& block, const ir::Var* loop_var) {
  bool spatial = false;
  bool reduce = false;
  for (const ir::BlockIter& iter : block.iters) {
    if (!ir::UsesVar(iter.binding, loop_var)) continue;
    (iter.kind == ir::IterKind::kReduce ? reduce : spatial) = true;
  }
  if (spatial && reduce) return Role::kMixed;
  if (spatial) return Role::kSpatial;
  return reduce ? Role::kReduce : Role::kFree;
}

StoreShape StoreShapeOf(const Block& block) {
  StoreShape shape;
  std::vector<const ir::BlockIter*> unused;
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.kind == ir::IterKind::kSpatial) unused.push_back(&iter);
  }
  for (size_t d = 0; d < block.store.indices.size(); ++d) {
    const Expr& index = block.store.indices[d];
    if (block.store.buffer->shape[d] == 1 && ir::IsConstInt(index)) {
      shape.dims.push_back(nullptr);
      continue;
    }
    if (index->kind != ExprKind::kVar) return shape;
    auto it = std::find_if(unused.begin(), unused.end(),
                           [&](const ir::BlockIter* iter) { return iter->var == index->var; });
    if (it == unused.end() || (*it)->extent != block.store.buffer->shape[d]) return shape;
    shape.dims.push_back(*it);
    unused.erase(it);
  }
  shape.exact = unused.empty();
  return shape;
}

Stmt Nest(const std::vector<FreshLoop>& loops, Stmt body) {
  for (size_t i = loops.size(); i > 0; --i) {
    const FreshLoop& loop = loops[i - 1];
    body = ir::MakeStmt(For{loop.var, loop.extent, loop.kind, std::move(body)});
  }
  return body;
}

std::vector<Loop> CursorsOf(const std::vector<FreshLoop>& loops) {
  std::vector<Loop> cursors;
  cursors.reserve(loops.size());
  for (const FreshLoop& loop : loops) cursors.push_back({loop.var->name, loop.extent});
  return cursors;
}

ir::VarRef MakeVar(std::string name) {
  return std::make_shared<const ir::Var>(ir::Var{std::move(name)});
}

absl::StatusOr<Mirror> MirrorSpatial(const Block& block, const std::vector<const For*>& loops,
                                     const std::function<std::string(int, const For&)>& name) {
  Mirror mirror;
  std::unordered_set<const ir::Var*> reduce_vars;
  std::unordered_set<const ir::Var*> spatial_vars;
  for (const For* loop : loops) {
    Role role = RoleOf(block, loop->var.get());
    if (role == Role::kMixed) {
      return absl::FailedPreconditionError(absl::StrCat(
          "loop ", Quoted(loop->var->name), " feeds spatial and reduce iterators of block ",
          Quoted(block.name), " at once"));
    }
    if (role == Role::kReduce) reduce_vars.insert(loop->var.get());
    if (role != Role::kSpatial) continue;
    spatial_vars.insert(loop->var.get());
    ir::VarRef copy = MakeVar(name(static_cast<int>(mirror.loops.size()), *loop));
    mirror.loops.push_back({copy, loop->extent, ir::LoopKind::kSerial});
    mirror.renamed.emplace(loop->var.get(), ir::VarExpr(copy));
  }
  for (const ir::BlockIter& iter : block.iters) {
    if (iter.kind != ir::IterKind::kSpatial) continue;
    mirror.iter_bindings.emplace(iter.var.get(), ir::Substitute(iter.binding, mirror.renamed));
  }
  if (block.where) {
    for (const Expr& part : Conjuncts(block.where)) {
      if (UsesAny(part, reduce_vars)) {
        if (UsesAny(part, spatial_vars)) {
          return absl::FailedPreconditionError(absl::StrCat(
              "the guard of block ", Quoted(block.name), " mixes spatial and reduce loops"));
        }
        continue;
      }
      mirror.where = AndMaybe(mirror.where, ir::Substitute(part, mirror.renamed));
    }
  }
  return mirror;
}

void NewIters::Add(const std::string& block, int64_t extent, ir::IterKind kind, Expr binding) {
  ir::VarRef var = MakeVar(absl::StrCat(block, ".v", iters.size()));
  exprs.push_back(ir::VarExpr(var));
  iters.push_back({std::move(var), extent, kind, std::move(binding)});
}

std::string ScopeWord(ir::Scope scope) {
  switch (scope) {
    case ir::Scope::kGlobal:
      return "global";
    case ir::Scope::kShared:
      return "shared";
    case ir::Scope::kLocal:
      return "local";
  }
  return "";
}

std::string Quoted(const std::string& name) { return absl::StrCat("`", name, "`"); }

absl::Status Illegal(const ir::Block& block, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("block ", Quoted(block.name), " ", why));
}

std::vector<Expr> Conjuncts(const Expr& condition) {
  std::vector<Expr> parts;
  if (condition) AddConjuncts(condition, parts);
  return parts;
}

Expr AndMaybe(Expr a, Expr b) {
  if (!a) return b;
  if (!b) return a;
  return ir::And(std::move(a), std::move(b));
}

}  // namespace heddle::schedule
