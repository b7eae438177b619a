// Reductions that one thread would compute alone are shared among the threads of the first warp.
#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/launch.h"
#include "compiler/ir/visit.h"

namespace heddle::codegen {

using namespace ir;

namespace {

constexpr int64_t kWarp = 32;
constexpr int64_t kMinTerms = 16;  // one thread adds fewer terms as fast

std::string Combine(Op op, const std::string& type, const std::string& a, const std::string& b) {
  if (op == Op::kAdd) return absl::StrCat(a, " + ", b);
  return absl::StrCat(op == Op::kMax ? "h_max<" : "h_min<", type, ">(", a, ", ", b, ")");
}

// Whether the expression loads local memory. Only the first thread has the values that it stored
// there.
bool LoadsLocal(const Expr& e) {
  bool found = false;
  VisitExpr(e, [&](const Expr& x) {
    found |= x->kind == ExprKind::kLoad && x->buffer->scope == Scope::kLocal;
  });
  return found;
}

}  // namespace

// Matches for k in n { sum[i] = op(sum[i], value(k)) } outside of thread loops, with the sum in
// local memory.
bool CudaLaunch::WarpReduction(const For& loop) {
  const Store* store = As<Store>(loop.body);
  const bool threads = extents_[3] >= kWarp && !bound_[3] && extents_[4] == 1 && extents_[5] == 1;
  if (store == nullptr || !threads || guarded_ || loop.extent < kMinTerms) return false;
  if (loop.kind != LoopKind::kSerial && loop.kind != LoopKind::kUnrolled) return false;
  for (int axis = 0; axis < 3; ++axis) {
    if (extents_[axis] > 1 && !bound_[axis]) return false;
  }
  const Expr& value = store->value;
  const bool fits = store->buffer->scope == Scope::kLocal && store->buffer->dtype == DType::kF32 &&
                    value->kind == ExprKind::kOp &&
                    (value->op == Op::kAdd || value->op == Op::kMax || value->op == Op::kMin) &&
                    value->args[0]->kind == ExprKind::kLoad &&
                    value->args[0]->buffer == store->buffer && !LoadsLocal(value->args[1]);
  if (!fits) return false;
  for (size_t d = 0; d < store->indices.size(); ++d) {
    if (UsesVar(store->indices[d], loop.var.get()) ||
        !StructuralEqual(store->indices[d], value->args[0]->args[d])) {
      return false;
    }
  }
  const ReduceOp reduce = value->op == Op::kAdd   ? ReduceOp::kSum
                          : value->op == Op::kMax ? ReduceOp::kMax
                                                  : ReduceOp::kMin;
  const std::string type = CudaType(store->buffer->dtype);
  const std::string name = exprs_.Declare(loop.var->name);
  exprs_.Bind(loop.var.get(), name, loop.extent);
  Open(absl::StrCat("if (threadIdx.x < ", kWarp, ") "));
  Line(absl::StrCat(type, " h_r = ", exprs_.Value(Identity(reduce, store->buffer->dtype)), ";"));
  Line(absl::StrCat("for (int ", name, " = (int)threadIdx.x; ", name, " < ", loop.extent, "; ",
                    name, " += ", kWarp, ") h_r = ",
                    Combine(value->op, type, "h_r", exprs_.Value(value->args[1])), ";"));
  Line("#pragma unroll");
  Line(absl::StrCat("for (int h_o = ", kWarp / 2, "; h_o > 0; h_o /= 2) h_r = ",
                    Combine(value->op, type, "h_r", "__shfl_xor_sync(0xffffffffu, h_r, h_o)"),
                    ";"));
  const std::string sum = exprs_.Access(*store->buffer, store->indices);
  Line(absl::StrCat("if (threadIdx.x == 0) ", sum, " = ", Combine(value->op, type, sum, "h_r"),
                    ";"));
  Close();
  return true;
}

}  // namespace heddle::codegen
