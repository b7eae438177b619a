#include "tests/codegen/typed_programs.h"

#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "compiler/tensor/expression.h"

namespace heddle::testing {
namespace {

using ir::DType;
using ir::Expr;
using ir::Op;
using tensor::Iters;
using tensor::Tensor;

class Generator {
 public:
  explicit Generator(schedule::Rng& rng) : rng_(rng), builder_("typed") {}

  absl::StatusOr<ir::Program> Run(bool* any_order) {
    const std::vector<int64_t> shape = {1 + Below(7), 1 + Below(21)};
    Tensor result;
    for (int k = 0; k < 2; ++k) {
      tensors_.push_back(builder_.Input("x" + std::to_string(k), StoredType(), shape));
    }
    for (int64_t k = 0, stages = 1 + Below(2); k < stages; ++k) {
      const DType dtype = StoredType();
      result = builder_.Compute("y" + std::to_string(k), shape, [&](Iters i) {
        at_ = {i.begin(), i.end()};
        return ir::IsHalf(dtype) ? ir::Cast(dtype, Value(DType::kF32, 3)) : Value(dtype, 3);
      });
      tensors_.push_back(result);
    }
    *any_order = true;
    if (result.dtype() != DType::kBool && Below(2)) {
      static constexpr ir::ReduceOp kOps[] = {ir::ReduceOp::kSum, ir::ReduceOp::kMax,
                                              ir::ReduceOp::kMin, ir::ReduceOp::kProd};
      // A product of floats rounds.
      const ir::ReduceOp op = kOps[Below(ir::IsFloat(result.dtype()) ? 3 : 4)];
      *any_order = !ir::IsFloat(result.dtype()) || op == ir::ReduceOp::kSum;
      result = builder_.Reduce("row", {shape[0]}, {shape[1]}, op,
                               [&](Iters s, Iters r) { return result(s[0], r[0]); });
    }
    auto program = builder_.Build({result});
    if (!program.ok()) return program.status();
    return tensor::LowerToLoops(*program);
  }

 private:
  int64_t Below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(rng_); }
  DType AnyType() {
    static constexpr DType kTypes[] = {DType::kBool, DType::kI8,  DType::kU8,  DType::kI16,
                                       DType::kU16,  DType::kI32, DType::kU32, DType::kI64,
                                       DType::kU64,  DType::kF32, DType::kF64};
    return kTypes[Below(std::size(kTypes))];
  }
  // Also the types that only memory has.
  DType StoredType() { return Below(6) == 0 ? (Below(2) ? DType::kF16 : DType::kBF16) : AnyType(); }
  static Expr Binary(Op op, Expr a, Expr b) { return ir::Make(op, {std::move(a), std::move(b)}); }

  Expr Literal(DType dtype) {
    if (dtype == DType::kBool) return ir::Bool(Below(2));
    if (ir::IsFloat(dtype)) return ir::Float(static_cast<double>(Below(9) - 4) / 4, dtype);
    return ir::Int(ir::IsUnsigned(dtype) ? Below(9) : Below(9) - 4, dtype);
  }

  // An element of one of the tensors, converted if it has another type.
  Expr Leaf(DType dtype) {
    if (Below(5) == 0) return Literal(dtype);
    const Tensor& tensor = tensors_[Below(static_cast<int64_t>(tensors_.size()))];
    Expr value = tensor.At(at_);
    // i64 must not overflow, not even after a few products of what an earlier stage computed.
    if (value->dtype == DType::kI64) value = Binary(Op::kFloorMod, value, ir::Int(100));
    return Convert(std::move(value), dtype);
  }

  Expr Convert(Expr value, DType to) {
    if (value->dtype == to) return value;
    // Large integers would round, in sums by their order, or overflow in products.
    if (ir::IsInteger(value->dtype) && (ir::IsFloat(to) || to == DType::kI64)) {
      value = Binary(Op::kFloorMod, value, ir::Int(16, value->dtype));
    }
    if (ir::IsFloat(value->dtype) && to == DType::kI64) {  // infinities saturate elsewhere
      const DType from = value->dtype;
      value = Binary(Op::kMax, ir::Float(-100, from), std::move(value));
      value = Binary(Op::kMin, ir::Float(100, from), std::move(value));
    }
    return ir::Cast(to, std::move(value));
  }

  Expr Condition(int depth) {
    if (depth > 0 && Below(3) == 0) {
      const Op op = Below(2) ? Op::kAnd : Op::kOr;
      return Binary(op, Condition(depth - 1), Condition(depth - 1));
    }
    if (Below(5) == 0) return ir::Make(Op::kNot, {Leaf(DType::kBool)});
    static constexpr Op kCompare[] = {Op::kLt, Op::kLe, Op::kEq, Op::kNe};
    const DType dtype = AnyType();
    const int below = depth > 0 ? depth - 1 : 0;
    return Binary(kCompare[Below(4)], Value(dtype, below), Value(dtype, below));
  }

  Expr Value(DType dtype, int depth) {
    if (depth == 0) return Leaf(dtype);
    if (Below(6) == 0) {
      return ir::Select(Condition(depth - 1), Value(dtype, depth - 1), Value(dtype, depth - 1));
    }
    if (Below(6) == 0) return Convert(Value(AnyType(), depth - 1), dtype);
    if (dtype == DType::kBool) return Condition(depth);
    return ir::IsFloat(dtype) ? FloatValue(dtype, depth) : IntValue(dtype, depth);
  }

  Expr IntValue(DType dtype, int depth) {
    static constexpr Op kUnary[] = {Op::kNeg, Op::kAbs, Op::kSign};
    static constexpr Op kBinary[] = {Op::kAdd,      Op::kSub, Op::kMul, Op::kDiv, Op::kFloorDiv,
                                     Op::kFloorMod, Op::kMin, Op::kMax, Op::kPow};
    // What is unsigned has no negation.
    if (Below(5) == 0)
      return ir::Make(kUnary[ir::IsUnsigned(dtype) ? 1 + Below(2) : Below(3)],
                      {Value(dtype, depth - 1)});
    const size_t all = std::size(kBinary) - (dtype == DType::kI64);  // a power overflows
    return Binary(kBinary[Below(static_cast<int64_t>(all))], Value(dtype, depth - 1),
                  Value(dtype, depth - 1));
  }

  Expr FloatValue(DType dtype, int depth) {
    static constexpr Op kUnary[] = {Op::kNeg, Op::kAbs, Op::kSign, Op::kFloor, Op::kCeil};
    static constexpr Op kBinary[] = {Op::kAdd, Op::kSub, Op::kMin, Op::kMax};
    switch (Below(4)) {
      case 0:
        return ir::Make(kUnary[Below(std::size(kUnary))], {Value(dtype, depth - 1)});
      case 1:
        return Value(dtype, depth - 1) * ir::Float(Below(2) ? 0.5 : -2, dtype);
      default:
        return Binary(kBinary[Below(std::size(kBinary))], Value(dtype, depth - 1),
                      Value(dtype, depth - 1));
    }
  }

  schedule::Rng& rng_;
  tensor::Builder builder_;
  std::vector<Tensor> tensors_;
  std::vector<Expr> at_;
};

}  // namespace

absl::StatusOr<ir::Program> RandomTypedProgram(schedule::Rng& rng, bool* any_order) {
  return Generator(rng).Run(any_order);
}

}  // namespace heddle::testing
