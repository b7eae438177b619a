#include "compiler/pass/lower_blocks.h"

#include <algorithm>
#include <unordered_set>

#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/fresh_names.h"

namespace heddle::pass {

using namespace ir;

namespace {

Stmt Guard(const Expr& condition, Stmt body) {
  return condition ? MakeStmt(If{condition, std::move(body)}) : body;
}

class Lowering {
 public:
  explicit Lowering(const Program& program) : names_(program) {}

  Stmt Run(const Stmt& s) {
    if (auto* block = As<Block>(s)) return LowerBlock(*block);
    path_.push_back(&s);
    Stmt result = MapChildren(s, [&](const Stmt& child) { return Run(child); });
    path_.pop_back();
    auto it = inits_.find(s.get());
    if (it == inits_.end()) return result;
    std::vector<Stmt> stmts = std::move(it->second);
    stmts.push_back(std::move(result));
    return MakeSeq(std::move(stmts));
  }

 private:
  Stmt LowerBlock(const Block& block) {
    Substitution bindings;
    for (const BlockIter& iter : block.iters) bindings[iter.var.get()] = iter.binding;
    std::vector<Expr> indices;
    for (const Expr& index : block.store.indices) indices.push_back(Substitute(index, bindings));
    Expr value = Substitute(block.store.value, bindings);
    if (!block.reducer)
      return Guard(block.where, MakeStmt(Store{block.store.buffer, indices, value}));

    Stmt update = MakeStmt(
        Store{block.store.buffer, indices,
              Make(CombineOp(block.reducer->op), {Load(block.store.buffer, indices), value})});
    if (!block.reducer->init) return Guard(block.where, std::move(update));

    Stmt init =
        MakeStmt(Store{block.store.buffer, indices, Substitute(block.reducer->init, bindings)});
    if (HoistInit(block, init)) return Guard(block.where, std::move(update));
    Expr first;
    for (const BlockIter& iter : block.iters) {
      if (iter.kind != IterKind::kReduce) continue;
      Expr zero = Make(Op::kEq, {iter.binding, Int(0)});
      first = first ? And(first, zero) : zero;
    }
    return Guard(block.where, MakeSeq({Guard(first, std::move(init)), std::move(update)}));
  }

  // Puts `init` before the outermost loop over the block's reduce iterators. Returns false and does
  // nothing if that could change the meaning.
  bool HoistInit(const Block& block, const Stmt& init) {
    std::unordered_set<const Var*> reduce_vars, spatial_vars;
    for (const BlockIter& iter : block.iters) {
      auto& vars = iter.kind == IterKind::kReduce ? reduce_vars : spatial_vars;
      for (const VarRef& v : FreeVars(iter.binding)) vars.insert(v.get());
    }
    for (const Var* v : reduce_vars) {
      if (spatial_vars.count(v)) return false;
    }
    auto is_reduce_loop = [&](const Stmt* s) {
      auto* loop = As<For>(*s);
      return loop && reduce_vars.count(loop->var.get());
    };
    auto outermost = std::find_if(path_.begin(), path_.end(), is_reduce_loop);
    if (outermost == path_.end() || !OnlyUser(block, **outermost)) return false;
    return PlaceInit(block, init, outermost - path_.begin(), reduce_vars);
  }

  // Whether `block` is the only statement under `loop` that touches the buffer it writes.
  static bool OnlyUser(const Block& block, const Stmt& loop) {
    const Buffer* buffer = block.store.buffer.get();
    int writes = 0, reads = 0;
    VisitStmt(loop, [&](const Stmt& s) {
      writes += WrittenBuffer(s) == buffer;
      if (auto* alloc = As<Alloc>(s)) writes += 2 * (alloc->buffer.get() == buffer);
      return true;
    });
    VisitLoads(loop, [&](const Expr& load) { reads += load->buffer.get() == buffer; });
    return writes == 1 && reads == 0;
  }

  bool PlaceInit(const Block& block, const Stmt& init, size_t outermost,
                 const std::unordered_set<const Var*>& reduce_vars) {
    // The first instance is the one with all reduce loops at zero.
    Substitution at_zero;
    for (const Var* v : reduce_vars) at_zero[v] = Int(0);
    for (const BlockIter& iter : block.iters) {
      int64_t value;
      if (iter.kind != IterKind::kReduce) continue;
      if (!IsConstInt(ir::Simplify(Substitute(iter.binding, at_zero), {}), &value) || value != 0)
        return false;
    }
    std::vector<std::pair<const For*, VarRef>> loops;
    Substitution map = at_zero;
    for (size_t i = outermost; i < path_.size(); ++i) {
      if (auto* branch = As<If>(*path_[i]); branch && HasLoad(branch->condition)) return false;
      auto* loop = As<For>(*path_[i]);
      if (!loop || reduce_vars.count(loop->var.get())) continue;
      loops.emplace_back(loop, std::make_shared<const Var>(Var{names_.Make(loop->var->name)}));
      map[loop->var.get()] = VarExpr(loops.back().second);
    }
    if (block.where && HasLoad(block.where)) return false;
    Stmt nest = Guard(block.where ? Substitute(block.where, map) : nullptr, Substitute(init, map));
    for (size_t i = path_.size(); i-- > outermost;) {
      if (auto* branch = As<If>(*path_[i]))
        nest = MakeStmt(If{Substitute(branch->condition, map), nest});
      auto* loop = As<For>(*path_[i]);
      if (!loop || reduce_vars.count(loop->var.get())) continue;
      nest = MakeStmt(For{loops.back().second, loop->extent, loop->kind, nest});
      loops.pop_back();
    }
    inits_[path_[outermost]->get()].push_back(std::move(nest));
    return true;
  }

  FreshNames names_;
  std::vector<const Stmt*> path_;  // enclosing statements
  // Initialisations to put before a loop.
  std::unordered_map<const StmtNode*, std::vector<Stmt>> inits_;
};

}  // namespace

Program LowerBlocks(const Program& program) {
  Program result = program;
  result.body = Lowering(program).Run(program.body);
  return result;
}

}  // namespace heddle::pass
