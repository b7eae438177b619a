#include "compiler/ir/analysis/tensor_product.h"

#include <algorithm>
#include <cstdlib>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/index.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier_rules.h"
#include "compiler/ir/visit.h"

namespace heddle::ir {

namespace {

absl::Status No(const std::string& why) { return absl::FailedPreconditionError(why); }

// The store inside a nest, in loop variables, and the term that it adds. The store is that of a
// block or a lowered update.
struct Update {
  Store store;
  Expr term;
};

absl::StatusOr<Update> UpdateOf(const Stmt& s) {
  if (const Block* block = As<Block>(s)) {
    if (!block->reducer || block->reducer->op != ReduceOp::kSum) return No("it is no sum");
    if (block->reducer->init) return No("it initialises its sums: decompose_reduction first");
    if (block->where) return No("it has a guard");
    Substitution map;
    for (const BlockIter& iter : block->iters) map[iter.var.get()] = iter.binding;
    Update update{{block->store.buffer, {}, nullptr}, Substitute(block->store.value, map)};
    for (const Expr& index : block->store.indices)
      update.store.indices.push_back(Substitute(index, map));
    return update;
  }
  const Store* store = As<Store>(s);
  if (store == nullptr) return No("its loops hold something else than one store");
  const Expr& value = store->value;
  const bool sum = value->kind == ExprKind::kOp && value->op == Op::kAdd &&
                   value->args[0]->kind == ExprKind::kLoad &&
                   value->args[0]->buffer == store->buffer;
  if (!sum) return No("it is no sum");
  for (size_t d = 0; d < store->indices.size(); ++d) {
    if (!StructuralEqual(store->indices[d], value->args[0]->args[d])) return No("it is no sum");
  }
  return Update{*store, value->args[1]};
}

// The load in f32(load) or tf32(load); null if the factor is neither.
Expr LoadOf(const Expr& factor) {
  const bool cast = factor->kind == ExprKind::kCast && factor->dtype == DType::kF32 &&
                    IsHalf(factor->args[0]->dtype);
  const bool round = factor->kind == ExprKind::kOp && factor->op == Op::kTf32;
  if ((!cast && !round) || factor->args[0]->kind != ExprKind::kLoad) return nullptr;
  return factor->args[0];
}

// The plain loop of this extent directly inside `outer`.
absl::StatusOr<const For*> Inside(const For& outer, int64_t extent) {
  const For* loop = As<For>(outer.body);
  const bool plain = loop && (loop->kind == LoopKind::kSerial || loop->kind == LoopKind::kUnrolled);
  if (plain && loop->extent == extent) return loop;
  return No("there is no plain loop of " + std::to_string(extent) + " inside of " +
            outer.var->name);
}

bool Uses(const std::vector<Expr>& indices, std::initializer_list<const Var*> vars) {
  return std::any_of(indices.begin(), indices.end(), [&](const Expr& index) {
    return std::any_of(vars.begin(), vars.end(),
                       [&](const Var* var) { return UsesVar(index, var); });
  });
}

// Whether `place` differs for all four values of (i, j) and does not depend on k.
bool FourSums(const Linear& place, const Var* i, const Var* j, const Var* k) {
  const auto row = Stride(place, i), column = Stride(place, j), term = Stride(place, k);
  if (!row || !column || term != 0) return false;
  return *row != 0 && *column != 0 && std::abs(*row) != std::abs(*column);
}

}  // namespace

ThreadParts BindThreadParts(const For& thread, Analyzer& analyzer) {
  ThreadParts parts;
  const auto bind = [&](const char* name, int64_t extent) {
    VarRef var = std::make_shared<const Var>(Var{thread.var->name + name});
    analyzer.Bind(var.get(), {0, extent - 1});
    return var;
  };
  parts.warp = bind(".warp", std::max<int64_t>(1, thread.extent / kWarpThreads));
  parts.group = bind(".group", 8);
  parts.quad = bind(".quad", 4);
  return parts;
}

Expr InThreadParts(const Expr& e, const For& thread, const ThreadParts& parts) {
  const Expr t =
      VarExpr(parts.warp) * Int(kWarpThreads) + VarExpr(parts.group) * Int(4) + VarExpr(parts.quad);
  return Substitute(e, {{thread.var.get(), t}});
}

absl::StatusOr<TensorProduct> MatchTensorProduct(const For& loop, const For& thread,
                                                 Analyzer& analyzer) {
  if (thread.kind != LoopKind::kThreadX || thread.extent % kWarpThreads != 0)
    return No("the threads around it are no whole warps of threadIdx.x");
  TensorProduct product;
  product.rows = &loop;
  if (loop.extent != kTensorRows / 8) return No("it has " + std::to_string(loop.extent) + " rows");
  HEDDLE_ASSIGN_OR_RETURN(product.columns, Inside(loop, kTensorColumns / 4));
  const For* terms = As<For>(product.columns->body);
  if (terms == nullptr) return No("there is no loop over terms");
  HEDDLE_ASSIGN_OR_RETURN(const Update update, UpdateOf(terms->body));
  const Expr& term = update.term;
  const bool is_product = term->kind == ExprKind::kOp && term->op == Op::kMul;
  product.a = is_product ? LoadOf(term->args[0]) : nullptr;
  product.b = is_product ? LoadOf(term->args[1]) : nullptr;
  if (!product.a || !product.b || product.a->dtype != product.b->dtype)
    return No("its term is no product of two elements of f16, bf16 or tf32");
  product.operand = product.a->dtype;
  HEDDLE_ASSIGN_OR_RETURN(product.terms, Inside(*product.columns, TensorTerms(product.operand)));
  product.sums = update.store.buffer;
  product.indices = update.store.indices;
  if (product.sums->dtype != DType::kF32 || product.sums->scope != Scope::kLocal)
    return No("its sums are not f32 in local memory");
  for (const Expr& load : {product.a, product.b}) {
    if (load->buffer->scope == Scope::kLocal)
      return No(load->buffer->name + " is local: other threads of the warp read it");
    const Buffer* buffer = load->buffer.get();
    if (Any(thread.body, [&](const Stmt& s) { return WrittenBuffer(s) == buffer; }))
      return No(load->buffer->name + " is written in the same thread loop");
  }

  const auto position = analyzer.Mark();
  for (const For* inner : {product.rows, product.columns, product.terms})
    analyzer.Bind(inner->var.get(), {0, inner->extent - 1});
  const ThreadParts parts = BindThreadParts(thread, analyzer);
  const auto apart = [&](const std::vector<Expr>& indices) {
    std::vector<Expr> result;
    for (const Expr& index : indices)
      result.push_back(analyzer.Simplify(InThreadParts(index, thread, parts)));
    return result;
  };
  const std::vector<Expr> x = apart(product.a->args), y = apart(product.b->args);
  Expr sum = Int(0);
  for (size_t d = 0; d < product.indices.size(); ++d)
    sum = sum * Int(product.sums->shape[d]) + product.indices[d];
  const Linear place = analyzer.SimplifyToLinear(InThreadParts(sum, thread, parts));
  analyzer.Restore(position);
  const Var *i = product.rows->var.get(), *j = product.columns->var.get();
  const auto of_rows = [&](const std::vector<Expr>& e) { return !Uses(e, {j, parts.quad.get()}); };
  const auto of_columns = [&](const std::vector<Expr>& e) {
    return !Uses(e, {i, parts.group.get()});
  };
  if (!of_rows(x) || !of_columns(y)) {
    if (!of_rows(y) || !of_columns(x)) return No("its factors are not of rows and of columns");
    std::swap(product.a, product.b);
  }
  if (!FourSums(place, i, j, product.terms->var.get()))
    return No("it has not one sum for each row and column");
  return product;
}

absl::Status CheckTensor(const For& loop, const std::vector<const For*>& loops, bool guarded,
                         Analyzer& analyzer) {
  const std::string where =
      "for " + loop.var->name + " in " + std::to_string(loop.extent) + " tensor";
  if (guarded) return RuleBroken("tensor", "a condition stands around it", where);
  const For* thread = nullptr;
  for (const For* outer : loops) {
    if (outer->kind == LoopKind::kThreadX) thread = outer;
    if (outer->kind == LoopKind::kThreadY || outer->kind == LoopKind::kThreadZ ||
        outer->kind == LoopKind::kTensor || outer->kind == LoopKind::kVectorized) {
      return RuleBroken("tensor", "it is inside of loop " + outer->var->name, where);
    }
  }
  if (thread == nullptr) return RuleBroken("tensor", "no threadIdx.x loop is around it", where);
  const absl::StatusOr<TensorProduct> product = MatchTensorProduct(loop, *thread, analyzer);
  if (product.ok()) return absl::OkStatus();
  return RuleBroken("tensor", std::string(product.status().message()), where);
}

}  // namespace heddle::ir
