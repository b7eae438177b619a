// Expression constructors with local folding.
#include <cassert>
#include <cmath>

#include "compiler/ir/arithmetic.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

namespace {

Expr NewInt(int64_t value, DType dtype) {
  ExprNode node{ExprKind::kInt, dtype, WrapInt(value, dtype)};
  return std::make_shared<const ExprNode>(std::move(node));
}

// Index arithmetic is full of small constants; sharing their nodes saves a good part of all
// allocations.
constexpr int64_t kSharedInts = 256;

const std::vector<Expr>& SharedInts() {
  static const auto* ints = [] {
    auto* list = new std::vector<Expr>;
    for (int64_t value = 0; value < kSharedInts; ++value)
      list->push_back(NewInt(value, DType::kI64));
    return list;
  }();
  return *ints;
}

}  // namespace

Expr Int(int64_t value, DType dtype) {
  assert(!IsFloat(dtype));
  if (dtype == DType::kI64 && value >= 0 && value < kSharedInts) return SharedInts()[value];
  return NewInt(value, dtype);
}

Expr Bool(bool value) { return Int(value, DType::kBool); }

Expr Float(double value, DType dtype) {
  assert(IsFloat(dtype));
  ExprNode node{ExprKind::kFloat, dtype, 0, RoundFloat(value, dtype)};
  return std::make_shared<const ExprNode>(std::move(node));
}

Expr VarExpr(VarRef var) {
  ExprNode node{ExprKind::kVar, DType::kI64};
  node.var = std::move(var);
  return std::make_shared<const ExprNode>(std::move(node));
}

Expr Load(BufferRef buffer, std::vector<Expr> indices) {
  ExprNode node{ExprKind::kLoad, buffer->dtype};
  node.buffer = std::move(buffer);
  node.args = std::move(indices);
  return std::make_shared<const ExprNode>(std::move(node));
}

Expr Zero(DType dtype) { return IsFloat(dtype) ? Float(0, dtype) : Int(0, dtype); }

Expr Select(Expr condition, Expr then_value, Expr else_value) {
  return Make(Op::kSelect, {std::move(condition), std::move(then_value), std::move(else_value)});
}

bool IsConstInt(const Expr& e, int64_t* value) {
  if (e->kind != ExprKind::kInt) return false;
  if (value != nullptr) *value = e->int_value;
  return true;
}

namespace {

bool IsComparison(Op op) { return op >= Op::kLt && op <= Op::kNe; }

DType ResultType(Op op, const std::vector<Expr>& args) {
  if (op == Op::kSelect) return args[1]->dtype;
  if (IsComparison(op) || op == Op::kIsNan || op == Op::kIsInf) return DType::kBool;
  return args[0]->dtype;
}

bool IsInt(const Expr& e, int64_t value) {
  return e->kind == ExprKind::kInt && e->int_value == value;
}

// Functions whose result may differ by an ulp between libraries stay symbolic, so that folding
// never changes a result.
bool FoldsExactly(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kMin:
    case Op::kMax:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kSign:
    case Op::kSqrt:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTf32:
      return true;
    default:
      return false;
  }
}

Expr FoldConstants(Op op, DType dtype, const std::vector<Expr>& args) {
  for (const Expr& a : args) {
    if (a->kind != ExprKind::kInt && a->kind != ExprKind::kFloat) return nullptr;
  }
  if (op == Op::kSelect) return nullptr;
  const Expr& b = args.back();
  if (args[0]->kind == ExprKind::kInt) {
    auto v = EvalInt(op, args[0]->dtype, args[0]->int_value, b->int_value);
    return v && !IsFloat(dtype) ? Int(*v, dtype) : nullptr;
  }
  if (dtype == DType::kBool) {
    auto v = EvalFloatTest(op, args[0]->float_value, b->float_value);
    return v ? Bool(*v) : nullptr;
  }
  if (!FoldsExactly(op)) return nullptr;
  auto v = EvalFloat(op, dtype, args[0]->float_value, b->float_value);
  return v ? Float(*v, dtype) : nullptr;
}

// x*1, x/1 and x-0 are exact in floating point; x+0 is not (it turns -0 into 0) and stays.
Expr DropNeutralFloat(Op op, const std::vector<Expr>& args) {
  const auto is = [](const Expr& e, double v) {
    return e->kind == ExprKind::kFloat && e->float_value == v && !std::signbit(e->float_value);
  };
  if (op == Op::kMul && is(args[1], 1)) return args[0];
  if (op == Op::kMul && is(args[0], 1)) return args[1];
  if (op == Op::kDiv && is(args[1], 1)) return args[0];
  if (op == Op::kSub && is(args[1], 0)) return args[0];
  return nullptr;
}

Expr DropNeutral(Op op, DType dtype, const std::vector<Expr>& args) {
  if (op == Op::kSelect) {
    if (args[0]->kind == ExprKind::kInt) return args[0]->int_value ? args[1] : args[2];
    return nullptr;
  }
  if (args.size() != 2) return nullptr;
  const Expr &a = args[0], &b = args[1];
  if (IsFloat(a->dtype)) return DropNeutralFloat(op, args);
  switch (op) {
    case Op::kAdd:
      return IsInt(b, 0) ? a : (IsInt(a, 0) ? b : nullptr);
    case Op::kSub:
      return IsInt(b, 0) ? a : nullptr;
    case Op::kMul:
      if (IsInt(b, 1) || IsInt(a, 0)) return a;
      return IsInt(a, 1) || IsInt(b, 0) ? b : nullptr;
    case Op::kDiv:
      return IsInt(b, 1) ? a : nullptr;
    case Op::kFloorDiv:
      return IsInt(b, 1) ? a : nullptr;
    case Op::kFloorMod:
      return IsInt(b, 1) ? Int(0, dtype) : nullptr;
    case Op::kAnd:
      if (IsInt(a, 1) || IsInt(b, 0)) return b;
      return IsInt(b, 1) || IsInt(a, 0) ? a : nullptr;
    case Op::kOr:
      if (IsInt(a, 0) || IsInt(b, 1)) return b;
      return IsInt(b, 0) || IsInt(a, 1) ? a : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

Expr Make(Op op, std::vector<Expr> args) {
  assert(static_cast<int>(args.size()) == Arity(op));
  const DType dtype = ResultType(op, args);
  assert(args.size() != 2 || args[0]->dtype == args[1]->dtype);
  assert(op != Op::kSelect || (args[0]->dtype == DType::kBool && args[1]->dtype == args[2]->dtype));
  if (Expr folded = FoldConstants(op, dtype, args)) return folded;
  if (Expr simpler = DropNeutral(op, dtype, args)) return simpler;
  ExprNode node{ExprKind::kOp, dtype};
  node.op = op;
  node.args = std::move(args);
  return std::make_shared<const ExprNode>(std::move(node));
}

Expr Make(Op op, Expr a, Expr b) {
  std::vector<Expr> args;
  args.reserve(2);
  args.push_back(std::move(a));
  args.push_back(std::move(b));
  return Make(op, std::move(args));
}

Expr Cast(DType dtype, Expr operand) {
  if (operand->dtype == dtype) return operand;
  // The operand is an f32 that was widened from this 16-bit type: the two casts cancel.
  const bool read = operand->kind == ExprKind::kCast && operand->dtype == DType::kF32;
  if (read && IsHalf(dtype) && operand->args[0]->dtype == dtype) return operand->args[0];
  if (operand->kind == ExprKind::kInt) {
    return IsFloat(dtype) ? Float(IntToFloat(operand->int_value, operand->dtype, dtype), dtype)
                          : Int(operand->int_value, dtype);
  }
  if (operand->kind == ExprKind::kFloat) {
    return IsFloat(dtype) ? Float(operand->float_value, dtype)
                          : Int(FloatToInt(operand->float_value, dtype), dtype);
  }
  ExprNode node{ExprKind::kCast, dtype};
  node.args.push_back(std::move(operand));
  return std::make_shared<const ExprNode>(std::move(node));
}

bool StructuralEqual(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->dtype != b->dtype || a->args.size() != b->args.size()) return false;
  switch (a->kind) {
    case ExprKind::kInt:
      return a->int_value == b->int_value;
    case ExprKind::kFloat:
      // The same as comparing bits: NaN equals itself, and the zeros differ.
      return (a->float_value == b->float_value &&
              std::signbit(a->float_value) == std::signbit(b->float_value)) ||
             (std::isnan(a->float_value) && std::isnan(b->float_value));
    case ExprKind::kVar:
      return a->var == b->var;
    case ExprKind::kLoad:
      if (a->buffer != b->buffer) return false;
      break;
    case ExprKind::kOp:
      if (a->op != b->op) return false;
      break;
    case ExprKind::kCast:
      break;
  }
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (!StructuralEqual(a->args[i], b->args[i])) return false;
  }
  return true;
}

}  // namespace heddle::ir
