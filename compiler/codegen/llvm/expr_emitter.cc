#include "compiler/codegen/llvm/expr_emitter.h"

#include <algorithm>

#include "compiler/codegen/llvm/half_emitter.h"
#include "compiler/codegen/llvm/math_emitter.h"
#include "compiler/ir/analysis/index.h"
#include "compiler/ir/arithmetic.h"
#include "compiler/ir/visit.h"
#include "llvm/IR/Intrinsics.h"

namespace heddle::codegen {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::ExprNode;
using ir::Op;
using llvm::Type;
using llvm::Value;

Type* ExprEmitter::RegisterType(DType dtype) {
  return dtype == DType::kBool ? b_.getInt1Ty() : MemoryType(dtype);
}

Type* ExprEmitter::MemoryType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kI8:
    case DType::kU8:
      return b_.getInt8Ty();
    case DType::kI16:
    case DType::kU16:
    case DType::kF16:  // as bits
    case DType::kBF16:
      return b_.getInt16Ty();
    case DType::kI32:
    case DType::kU32:
      return b_.getInt32Ty();
    case DType::kI64:
    case DType::kU64:
      return b_.getInt64Ty();
    case DType::kF32:
      return b_.getFloatTy();
    case DType::kF64:
      return b_.getDoubleTy();
  }
  return nullptr;
}

Value* ExprEmitter::Broadcast(Value* v) {
  return v->getType()->isVectorTy() ? v : b_.CreateVectorSplat(static_cast<unsigned>(c_.lanes), v);
}

void ExprEmitter::Unify(Value*& a, Value*& b) {
  if (a->getType()->isVectorTy() == b->getType()->isVectorTy()) return;
  a = Broadcast(a);
  b = Broadcast(b);
}

Value* ExprEmitter::LaneNumbers(Type* element) {
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < c_.lanes; ++i)
    numbers.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(i)));
  return llvm::ConstantVector::get(numbers);
}

Value* ExprEmitter::AllLanes() { return llvm::ConstantInt::getTrue(Widen(b_.getInt1Ty())); }

Value* ExprEmitter::Restrict(Value* condition) {
  return c_.mask ? b_.CreateAnd(c_.mask, condition) : condition;
}

Value* ExprEmitter::Emit(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kInt:
      return llvm::ConstantInt::getSigned(RegisterType(e->dtype), e->int_value);
    case ExprKind::kFloat:
      if (ir::IsHalf(e->dtype))
        return b_.getInt16(ir::HalfBits(static_cast<float>(e->float_value), e->dtype));
      return llvm::ConstantFP::get(RegisterType(e->dtype), e->float_value);
    case ExprKind::kVar:
      return e->var.get() == c_.lane_var ? LaneNumbers(b_.getInt64Ty()) : c_.vars.at(e->var.get());
    case ExprKind::kLoad:
      return EmitLoad(*e);
    case ExprKind::kOp:
      return EmitOp(*e);
    case ExprKind::kCast:
      return EmitCast(*e);
  }
  return nullptr;
}

Value* ExprEmitter::EmitOp(const ExprNode& e) {
  switch (e.op) {
    case Op::kSelect:
      return EmitSelect(e);
    case Op::kAnd:
    case Op::kOr:
      return EmitLogic(e);
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
      return EmitCompare(e);
    default:
      return e.args.size() == 1 ? EmitUnary(e) : EmitArithmetic(e);
  }
}

Value* ExprEmitter::EmitArithmetic(const ExprNode& e) {
  Value* x = Emit(e.args[0]);
  Value* y = Emit(e.args[1]);
  Unify(x, y);
  return ir::IsFloat(e.dtype) ? EmitFloatBinary(e.op, x, y) : EmitIntBinary(e, x, y);
}

Value* ExprEmitter::EmitFloatBinary(Op op, Value* x, Value* y) {
  switch (op) {
    case Op::kAdd:
      return b_.CreateFAdd(x, y);
    case Op::kSub:
      return b_.CreateFSub(x, y);
    case Op::kMul:
      return b_.CreateFMul(x, y);
    case Op::kDiv:
      return b_.CreateFDiv(x, y);
    // One instruction on x86 computes a < b ? b : a.
    case Op::kMax:
      return b_.CreateSelect(b_.CreateFCmpOLT(x, y), y, x);
    case Op::kMin:
      return b_.CreateSelect(b_.CreateFCmpOLT(y, x), y, x);
    default:
      return EmitPow(b_, x, y);
  }
}

Value* ExprEmitter::EmitIntBinary(const ExprNode& e, Value* x, Value* y) {
  const bool is_unsigned = ir::IsUnsigned(e.dtype) || e.dtype == DType::kBool;
  const bool no_wrap = in_index_ && e.dtype == DType::kI64;  // indices never overflow; data wraps
  switch (e.op) {
    case Op::kAdd:
      return b_.CreateAdd(x, y, "", false, no_wrap);
    case Op::kSub:
      return b_.CreateSub(x, y, "", false, no_wrap);
    case Op::kMul:
      return b_.CreateMul(x, y, "", false, no_wrap);
    case Op::kMin:
      return b_.CreateBinaryIntrinsic(is_unsigned ? llvm::Intrinsic::umin : llvm::Intrinsic::smin,
                                      x, y);
    case Op::kMax:
      return b_.CreateBinaryIntrinsic(is_unsigned ? llvm::Intrinsic::umax : llvm::Intrinsic::smax,
                                      x, y);
    case Op::kPow:
      return EmitIntPow(b_, x, y, is_unsigned);
    default:
      return EmitIntDivision(e, x, y);
  }
}

Value* ExprEmitter::EmitIntDivision(const ExprNode& e, Value* x, Value* y) {
  int64_t divisor = 0;
  const bool positive_constant = ir::IsConstInt(e.args[1], &divisor) && divisor > 0;
  const bool is_unsigned = ir::IsUnsigned(e.dtype);
  bool non_negative = is_unsigned;
  if (positive_constant && !non_negative) {
    std::optional<ir::Interval> bounds = ir::Bounds(e.args[0], c_.ranges);
    non_negative = bounds && bounds->min >= 0;
  }
  if (!positive_constant) {
    // Data may hold operands on which the hardware traps. The IR defines their results: division
    // and remainder by zero give 0, and division by -1 gives the negation.
    Type* type = x->getType();
    Value* by_zero = b_.CreateICmpEQ(y, llvm::Constant::getNullValue(type));
    Value* trapping = by_zero;
    Value* by_minus_one = nullptr;
    if (!is_unsigned) {
      by_minus_one = b_.CreateICmpEQ(y, llvm::Constant::getAllOnesValue(type));
      trapping = b_.CreateOr(by_zero, by_minus_one);
    }
    Value* safe = b_.CreateSelect(trapping, llvm::ConstantInt::get(type, 1), y);
    Value* zero = llvm::Constant::getNullValue(type);
    Value* quotient = non_negative ? b_.CreateUDiv(x, safe) : b_.CreateSDiv(x, safe);
    Value* remainder = b_.CreateSub(x, b_.CreateMul(quotient, safe));
    if (e.op != Op::kDiv && !non_negative) {
      Value* adjust = b_.CreateAnd(b_.CreateICmpNE(remainder, zero),
                                   b_.CreateICmpSLT(b_.CreateXor(remainder, safe), zero));
      quotient = b_.CreateSub(quotient, b_.CreateZExt(adjust, type));
      remainder = b_.CreateSelect(adjust, b_.CreateAdd(remainder, safe), remainder);
    }
    if (by_minus_one) quotient = b_.CreateSelect(by_minus_one, b_.CreateNeg(x), quotient);
    return b_.CreateSelect(by_zero, zero, e.op == Op::kFloorMod ? remainder : quotient);
  }
  if (non_negative) return e.op == Op::kFloorMod ? b_.CreateURem(x, y) : b_.CreateUDiv(x, y);
  if (e.op == Op::kDiv) return b_.CreateSDiv(x, y);
  Value* remainder = b_.CreateSRem(x, y);
  Value* negative = b_.CreateICmpSLT(remainder, llvm::Constant::getNullValue(x->getType()));
  if (e.op == Op::kFloorMod)
    return b_.CreateSelect(negative, b_.CreateAdd(remainder, y), remainder);
  return b_.CreateSub(b_.CreateSDiv(x, y), b_.CreateZExt(negative, x->getType()));
}

Value* ExprEmitter::EmitUnary(const ExprNode& e) {
  Value* x = Emit(e.args[0]);
  const DType dtype = e.args[0]->dtype;
  Value* zero = llvm::Constant::getNullValue(x->getType());
  const bool is_float = ir::IsFloat(dtype);
  const bool is_unsigned = ir::IsUnsigned(dtype);
  switch (e.op) {
    case Op::kNot:
      return b_.CreateNot(x);
    case Op::kNeg:
      return is_float ? b_.CreateFNeg(x) : b_.CreateNeg(x);
    case Op::kAbs:
      if (is_float) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
      return is_unsigned ? x : b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b_.getFalse());
    case Op::kSign:
      if (is_float) {
        Value* one = llvm::ConstantFP::get(x->getType(), 1.0);
        Value* negative = b_.CreateSelect(b_.CreateFCmpOLT(x, zero), b_.CreateFNeg(one), zero);
        return b_.CreateSelect(b_.CreateFCmpOGT(x, zero), one, negative);
      }
      if (is_unsigned) return b_.CreateZExt(b_.CreateICmpNE(x, zero), x->getType());
      return b_.CreateSub(b_.CreateZExt(b_.CreateICmpSGT(x, zero), x->getType()),
                          b_.CreateZExt(b_.CreateICmpSLT(x, zero), x->getType()));
    case Op::kIsNan:
      return is_float ? b_.CreateFCmpUNO(x, x) : b_.CreateICmpNE(x, x);
    case Op::kIsInf:
      if (!is_float) return b_.CreateICmpNE(x, x);
      return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x),
                              llvm::ConstantFP::getInfinity(x->getType()));
    default:
      return is_float ? EmitMath(b_, e.op, x) : x;  // floor, ceil and round do not change integers
  }
}

Value* ExprEmitter::EmitCompare(const ExprNode& e) {
  const DType dtype = e.args[0]->dtype;
  if (c_.lane_var && dtype == DType::kI64) {
    if (Value* mask = EmitLaneCompare(e)) return mask;
  }
  Value* x = Emit(e.args[0]);
  Value* y = Emit(e.args[1]);
  Unify(x, y);
  if (ir::IsFloat(dtype)) {
    switch (e.op) {
      case Op::kLt:
        return b_.CreateFCmpOLT(x, y);
      case Op::kLe:
        return b_.CreateFCmpOLE(x, y);
      case Op::kEq:
        return b_.CreateFCmpOEQ(x, y);
      default:
        return b_.CreateFCmpUNE(x, y);
    }
  }
  const bool is_unsigned = ir::IsUnsigned(dtype) || dtype == DType::kBool;
  switch (e.op) {
    case Op::kLt:
      return is_unsigned ? b_.CreateICmpULT(x, y) : b_.CreateICmpSLT(x, y);
    case Op::kLe:
      return is_unsigned ? b_.CreateICmpULE(x, y) : b_.CreateICmpSLE(x, y);
    case Op::kEq:
      return b_.CreateICmpEQ(x, y);
    default:
      return b_.CreateICmpNE(x, y);
  }
}

// Emits comparisons of the forms s - lane > 0 and s + lane > 0. It clamps one scalar to [0, lanes]
// and compares it with narrow lane numbers, instead of comparing vectors of i64. Null for other
// comparisons.
Value* ExprEmitter::EmitLaneCompare(const ExprNode& e) {
  if (e.op != Op::kLt && e.op != Op::kLe) return nullptr;
  ir::Linear difference = ir::ToLinear(e.args[1] - e.args[0]);
  int64_t coefficient = 0;
  ir::Linear rest;
  rest.constant = difference.constant + (e.op == Op::kLe ? 1 : 0);
  for (const auto& [term, c] : difference.terms) {
    if (term->kind == ExprKind::kVar && term->var.get() == c_.lane_var) {
      coefficient = c;
    } else if (ir::UsesVar(term, c_.lane_var)) {
      return nullptr;
    } else {
      rest.terms.emplace_back(term, c);
    }
  }
  if (coefficient != 1 && coefficient != -1) return nullptr;
  // rest - lane > 0  <=>  lane < rest;   rest + lane > 0  <=>  lane >= 1 - rest.
  Expr limit = coefficient < 0 ? ir::FromLinear(rest) : ir::Int(1) - ir::FromLinear(rest);
  Value* scalar;
  int64_t known = 0;
  if (ir::IsConstInt(limit, &known)) {
    scalar = b_.getInt64(static_cast<uint64_t>(std::clamp<int64_t>(known, 0, c_.lanes)));
  } else {
    scalar = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, Emit(limit), b_.getInt64(0));
    scalar = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, scalar,
                                      b_.getInt64(static_cast<uint64_t>(c_.lanes)));
  }
  Value* bound = Broadcast(b_.CreateTrunc(scalar, b_.getInt32Ty()));
  Value* lanes = LaneNumbers(b_.getInt32Ty());
  return coefficient < 0 ? b_.CreateICmpULT(lanes, bound) : b_.CreateICmpUGE(lanes, bound);
}

Value* ExprEmitter::EmitUnderMask(Value* mask, const Expr& e) {
  Value* saved = c_.mask;
  c_.mask = mask;
  Value* value = Emit(e);
  c_.mask = saved;
  return value;
}

Value* ExprEmitter::EmitLogic(const ExprNode& e) {
  const bool is_and = e.op == Op::kAnd;
  Value* x = Emit(e.args[0]);
  if (x->getType()->isVectorTy()) {
    Value* decided_by_y = is_and ? x : b_.CreateNot(x);
    Value* y = EmitUnderMask(Restrict(decided_by_y), e.args[1]);
    Unify(x, y);
    return is_and ? b_.CreateAnd(x, y) : b_.CreateOr(x, y);
  }
  if (NeedsGuard(e.args[1], c_.ranges)) {
    return is_and ? EmitBranches(x, e.args[1], ir::Bool(false))
                  : EmitBranches(x, ir::Bool(true), e.args[1]);
  }
  Value* y = Emit(e.args[1]);
  Unify(x, y);
  return is_and ? b_.CreateAnd(x, y) : b_.CreateOr(x, y);
}

Value* ExprEmitter::EmitSelect(const ExprNode& e) {
  Value* condition = Emit(e.args[0]);
  if (condition->getType()->isVectorTy()) {
    Value* x = EmitUnderMask(Restrict(condition), e.args[1]);
    Value* y = EmitUnderMask(Restrict(b_.CreateNot(condition)), e.args[2]);
    return b_.CreateSelect(condition, Broadcast(x), Broadcast(y));
  }
  if (NeedsGuard(e.args[1], c_.ranges) || NeedsGuard(e.args[2], c_.ranges)) {
    Value* value = EmitGuardedLoads(condition, e);
    return value ? value : EmitBranches(condition, e.args[1], e.args[2]);
  }
  Value* x = Emit(e.args[1]);
  Value* y = Emit(e.args[2]);
  Unify(x, y);
  return b_.CreateSelect(condition, x, y);
}

Value* ExprEmitter::EmitBranches(Value* condition, const Expr& then_value, const Expr& else_value) {
  llvm::LLVMContext& context = b_.getContext();
  auto* then_block = llvm::BasicBlock::Create(context, "then", c_.function);
  auto* else_block = llvm::BasicBlock::Create(context, "else", c_.function);
  auto* after = llvm::BasicBlock::Create(context, "after", c_.function);
  b_.CreateCondBr(condition, then_block, else_block);
  b_.SetInsertPoint(then_block);
  Value* x = Emit(then_value);
  llvm::BasicBlock* x_end = b_.GetInsertBlock();
  b_.SetInsertPoint(else_block);
  Value* y = Emit(else_value);
  llvm::BasicBlock* y_end = b_.GetInsertBlock();
  const bool vector = x->getType()->isVectorTy() || y->getType()->isVectorTy();
  b_.SetInsertPoint(x_end);
  if (vector) x = Broadcast(x);
  b_.CreateBr(after);
  b_.SetInsertPoint(y_end);
  if (vector) y = Broadcast(y);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* phi = b_.CreatePHI(x->getType(), 2);
  phi->addIncoming(x, x_end);
  phi->addIncoming(y, y_end);
  return phi;
}

Value* ExprEmitter::EmitCast(const ExprNode& e) {
  return Convert(Emit(e.args[0]), e.args[0]->dtype, e.dtype);
}

Value* ExprEmitter::Convert(Value* x, DType from, DType to) {
  if (from == to) return x;
  if (ir::IsHalf(from)) return Convert(WidenHalf(b_, x, from, c_.converts_f16), DType::kF32, to);
  if (ir::IsHalf(to)) return NarrowToHalf(b_, Convert(x, from, DType::kF32), to, c_.converts_f16);
  Type* type = RegisterType(to);
  if (x->getType()->isVectorTy()) type = Widen(type);
  const bool from_unsigned = from == DType::kBool || ir::IsUnsigned(from);
  if (to == DType::kBool) {
    Value* zero = llvm::Constant::getNullValue(x->getType());
    return ir::IsFloat(from) ? b_.CreateFCmpUNE(x, zero) : b_.CreateICmpNE(x, zero);
  }
  if (ir::IsFloat(from) && ir::IsFloat(to)) return b_.CreateFPCast(x, type);
  if (ir::IsFloat(to)) return from_unsigned ? b_.CreateUIToFP(x, type) : b_.CreateSIToFP(x, type);
  if (ir::IsFloat(from)) {
    // The conversion saturates, and NaN becomes 0 (ir.h).
    auto id = ir::IsUnsigned(to) ? llvm::Intrinsic::fptoui_sat : llvm::Intrinsic::fptosi_sat;
    return b_.CreateIntrinsic(id, {type, x->getType()}, {x});
  }
  return from_unsigned ? b_.CreateZExtOrTrunc(x, type) : b_.CreateSExtOrTrunc(x, type);
}

}  // namespace heddle::codegen
