// Finding, naming and rebuilding parts of a scheduled program, for primitives and rules. Internal to
// this folder.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/cursor.h"

namespace heddle::schedule {

// The statements from the body's root down to one statement, both included.
struct Path {
  std::vector<ir::Stmt> nodes;

  const ir::Stmt& target() const { return nodes.back(); }
  const ir::For& loop() const { return *ir::As<ir::For>(nodes.back()); }
  const ir::Block& block() const { return *ir::As<ir::Block>(nodes.back()); }
  // Loops strictly above the target, outermost first, starting at depth `from` of `nodes`.
  std::vector<const ir::For*> Loops(size_t from = 0) const;
  bool Contains(const ir::StmtNode* node) const;
};

// NotFound naming what was asked for.
absl::StatusOr<Path> FindLoop(const ir::Stmt& root, const std::string& name);
absl::StatusOr<Path> FindBlock(const ir::Stmt& root, const std::string& name);

// Every block in program order.
std::vector<Path> AllBlocks(const ir::Stmt& root);
// The first other block that writes the buffer this one writes (an initialisation split off, or its
// update); null if none does.
const ir::Block* OtherWriter(const ir::Stmt& root, const Path& block);
// True if the block computes every element of its iterators' domain once, however its loops were
// split and fused: it has no guard, and runs as often as it has elements (times its reduce loops).
bool CoversDomainOnce(const Path& block);
// Number of leading statements that two paths share.
size_t CommonDepth(const Path& a, const Path& b);
// Number of loops of extent over one among the first `depth` statements of a path.
int RealLoops(const Path& path, size_t depth);

// The root with the statement at `depth` of the path replaced. A null replacement deletes the
// statement and whatever becomes empty; returns null if nothing is left.
ir::Stmt ReplaceAt(const Path& path, size_t depth, ir::Stmt replacement);
inline ir::Stmt ReplaceTarget(const Path& path, ir::Stmt replacement) {
  return ReplaceAt(path, path.nodes.size() - 1, std::move(replacement));
}

// Rebuilds every block of a statement; null from `fn` deletes it and whatever becomes empty.
ir::Stmt MapBlocks(const ir::Stmt& s, const std::function<ir::Stmt(const ir::Stmt&)>& fn);

// Calls fn(load node) for every load of an expression, outer loads first.
template <typename F>
void ForEachLoad(const ir::Expr& e, const F& fn) {
  if (e->kind == ir::ExprKind::kLoad) fn(e);
  for (const ir::Expr& arg : e->args) ForEachLoad(arg, fn);
}
// Loads of a block's value and of its store's indices.
template <typename F>
void ForEachLoad(const ir::Block& block, const F& fn) {
  ForEachLoad(block.store.value, fn);
  for (const ir::Expr& index : block.store.indices) ForEachLoad(index, fn);
}
bool Reads(const ir::Block& block, const ir::Buffer* buffer);
bool IsOutput(const ir::Program& p, const ir::Buffer* buffer);
bool IsInput(const ir::Program& p, const ir::Buffer* buffer);

// FailedPrecondition "name ... exists already" if a loop, iterator, block or buffer has one of
// these names.
absl::Status CheckNamesFree(const ir::Program& p, const std::vector<std::string>& names);

// What a loop means to a block: which kind of iterators its variable feeds.
enum class Role { kFree, kSpatial, kReduce, kMixed };
Role RoleOf(const ir::Block& block, const ir::Var* loop_var);

// The spatial iterator that each dimension of a block's buffer is stored at; null for a dimension
// of extent one stored at constant zero.
struct StoreShape {
  bool exact = false;  // false: indices are anything else, or a spatial iterator is missing
  std::vector<const ir::BlockIter*> dims;  // parallel to the buffer's dimensions
};
StoreShape StoreShapeOf(const ir::Block& block);

// A copy of a loop under another name.
struct FreshLoop {
  ir::VarRef var;
  int64_t extent;
  ir::LoopKind kind = ir::LoopKind::kSerial;
};
// loops[0] { loops[1] { .. body } }
ir::Stmt Nest(const std::vector<FreshLoop>& loops, ir::Stmt body);
ir::VarRef MakeVar(std::string name);
std::vector<Loop> CursorsOf(const std::vector<FreshLoop>& loops);

// The spatial half of a block's surroundings, renamed: copies of those of `loops` that feed spatial
// iterators, with bindings and guard rewritten for the copies. FailedPrecondition if a loop or a
// guard mixes spatial and reduce iterators.
struct Mirror {
  std::vector<FreshLoop> loops;
  std::unordered_map<const ir::Var*, ir::Expr> renamed;  // old loop variable -> copy
  std::unordered_map<const ir::Var*, ir::Expr>
      iter_bindings;  // spatial iterator -> binding in the copies
  ir::Expr where;     // null if none
};
absl::StatusOr<Mirror> MirrorSpatial(
    const ir::Block& block, const std::vector<const ir::For*>& loops,
    const std::function<std::string(int index, const ir::For&)>& name);

// A new block with fresh spatial iterators "<name>.v<k>", one per binding.
struct NewIters {
  std::vector<ir::BlockIter> iters;
  std::vector<ir::Expr> exprs;
  void Add(const std::string& block, int64_t extent, ir::IterKind kind, ir::Expr binding);
};

// "global", "shared" or "local", as traces and derived names spell it.
std::string ScopeWord(ir::Scope scope);

// "loop `x`", "block `x`" for messages.
std::string Quoted(const std::string& name);
// FailedPrecondition "block `x` <why>".
absl::Status Illegal(const ir::Block& block, absl::string_view why);

// The parts of a && b && ..; empty for null.
std::vector<ir::Expr> Conjuncts(const ir::Expr& condition);

// a && b, where either may be null.
ir::Expr AndMaybe(ir::Expr a, ir::Expr b);

}  // namespace heddle::schedule
