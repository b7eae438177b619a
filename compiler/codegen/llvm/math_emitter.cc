#include "compiler/codegen/llvm/math_emitter.h"

#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace heddle::codegen {

namespace {

using ir::Op;
using llvm::Type;
using llvm::Value;

// libm's function on doubles; the one on floats has an f at the end.
const char* LibmName(Op op) {
  switch (op) {
    case Op::kExp:
      return "exp";
    case Op::kLog:
      return "log";
    case Op::kTanh:
      return "tanh";
    case Op::kErf:
      return "erf";
    case Op::kSin:
      return "sin";
    case Op::kCos:
      return "cos";
    case Op::kTan:
      return "tan";
    case Op::kAsin:
      return "asin";
    case Op::kAcos:
      return "acos";
    case Op::kAtan:
      return "atan";
    case Op::kSinh:
      return "sinh";
    case Op::kCosh:
      return "cosh";
    case Op::kAsinh:
      return "asinh";
    case Op::kAcosh:
      return "acosh";
    case Op::kAtanh:
      return "atanh";
    case Op::kPow:
      return "pow";
    default:
      return nullptr;
  }
}

llvm::Intrinsic::ID IntrinsicOf(Op op) {
  switch (op) {
    case Op::kSqrt:
      return llvm::Intrinsic::sqrt;
    case Op::kFloor:
      return llvm::Intrinsic::floor;
    case Op::kCeil:
      return llvm::Intrinsic::ceil;
    case Op::kRound:
      return llvm::Intrinsic::roundeven;
    default:
      return llvm::Intrinsic::not_intrinsic;
  }
}

// Calls libm, once for each lane of a vector.
Value* CallLibm(llvm::IRBuilder<>& b, Op op, const std::vector<Value*>& args) {
  Type* type = args[0]->getType();
  Type* scalar = type->getScalarType();
  std::string name = std::string(LibmName(op)) + (scalar->isFloatTy() ? "f" : "");
  std::vector<Type*> params(args.size(), scalar);
  llvm::FunctionCallee callee = b.GetInsertBlock()->getModule()->getOrInsertFunction(
      name, llvm::FunctionType::get(scalar, params, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->setDoesNotAccessMemory();  // nobody reads errno
  function->setDoesNotThrow();
  function->setWillReturn();
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (!vector) return b.CreateCall(callee, args);
  Value* result = llvm::PoisonValue::get(type);
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    std::vector<Value*> lane_args;
    for (Value* arg : args) lane_args.push_back(b.CreateExtractElement(arg, lane));
    result = b.CreateInsertElement(result, b.CreateCall(callee, lane_args), lane);
  }
  return result;
}

// ---- Single precision ----
//
// These functions do not call libm, so that vectors stay vectors and LLVM can vectorize plain
// loops. Relative errors are below 3e-7. The polynomials are interpolated at Chebyshev nodes of the
// interval that is named beside each.

Value* Constant(Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }

// c[0] + c[1] x + c[2] x^2 + ..
Value* Polynomial(llvm::IRBuilder<>& b, Value* x, std::initializer_list<double> coefficients) {
  Value* sum = nullptr;
  for (auto c = std::rbegin(coefficients); c != std::rend(coefficients); ++c) {
    sum = sum ? b.CreateFAdd(b.CreateFMul(sum, x), Constant(x, *c)) : Constant(x, *c);
  }
  return sum;
}

// 2^n for integers n in [-126, 127].
Value* PowerOfTwo(llvm::IRBuilder<>& b, Value* n, Type* type) {
  Value* biased = b.CreateAdd(n, llvm::ConstantInt::get(n->getType(), 127));
  return b.CreateBitCast(b.CreateShl(biased, 23), type);
}

// e^x = 2^n e^r with n = round(x / ln 2), so |r| <= ln(2) / 2.
Value* EmitExp(llvm::IRBuilder<>& b, Value* x) {
  Type* type = x->getType();
  // Beyond these limits the result is 0 or infinity; a NaN passes both comparisons. Arguments whose
  // result is 0, such as masked scores of attention, are replaced, because an underflow costs a
  // hundred times as much as a product.
  Value* vanishes = b.CreateFCmpOLT(x, Constant(x, -104.0));
  x = b.CreateSelect(vanishes, Constant(x, 0.0), x);
  x = b.CreateSelect(b.CreateFCmpOGT(x, Constant(x, 89.0)), Constant(x, 89.0), x);
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
  constexpr double kShift = 12582912.0;
  Value* shifted =
      b.CreateFAdd(b.CreateFMul(x, Constant(x, 1.44269504088896341)), Constant(x, kShift));
  Type* integer = type->getWithNewType(b.getInt32Ty());
  Value* n =
      b.CreateSub(b.CreateBitCast(shifted, integer), llvm::ConstantInt::get(integer, 0x4B400000));
  Value* rounded = b.CreateFSub(shifted, Constant(x, kShift));
  // ln 2 is split in two parts. The first has so few bits that its product with n is exact.
  Value* r = b.CreateFSub(x, b.CreateFMul(rounded, Constant(x, 0.693359375)));
  r = b.CreateFSub(r, b.CreateFMul(rounded, Constant(x, -2.12194440054690583e-4)));
  // (e^r - 1 - r) / r^2 on [-0.35, 0.35].
  Value* p = Polynomial(b, r, {0.5, 0.166665734, 0.0416665501, 0.00836377387, 0.00139269266});
  p = b.CreateFAdd(b.CreateFMul(b.CreateFMul(r, r), p), r);
  p = b.CreateFAdd(p, Constant(x, 1.0));
  // The scaling takes two steps, because n exceeds the exponent range of a float where the result
  // is subnormal or overflows.
  Value* half = b.CreateAShr(n, 1);
  p = b.CreateFMul(p, PowerOfTwo(b, half, type));
  p = b.CreateFMul(p, PowerOfTwo(b, b.CreateSub(n, half), type));
  return b.CreateSelect(vanishes, Constant(x, 0.0), p);
}

Value* EmitTanh(llvm::IRBuilder<>& b, Value* x) {
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  // |x| < 0.625: x + x^3 (tanh(x) / x - 1) / x^2.
  Value* square = b.CreateFMul(x, x);
  Value* p = Polynomial(b, square,
                        {-0.333333289, 0.133327697, -0.0538509096, 0.0209971792, -0.00609671436});
  Value* small = b.CreateFAdd(b.CreateFMul(b.CreateFMul(x, square), p), x);
  // Else 1 - 2 / (e^(2 |x|) + 1).
  Value* e = EmitExp(b, b.CreateFAdd(magnitude, magnitude));
  Value* large = b.CreateFSub(Constant(x, 1.0),
                              b.CreateFDiv(Constant(x, 2.0), b.CreateFAdd(e, Constant(x, 1.0))));
  large = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, large, x);
  return b.CreateSelect(b.CreateFCmpOLT(magnitude, Constant(x, 0.625)), small, large);
}

Value* EmitErf(llvm::IRBuilder<>& b, Value* x) {
  Value* magnitude = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  // |x| < 1: x (erf(x) / x).
  Value* square = b.CreateFMul(x, x);
  Value* small = b.CreateFMul(x, Polynomial(b, square,
                                            {1.12837917, -0.376126267, 0.112835947, -0.026854212,
                                             0.00518908742, -0.000801686428, 7.87587505e-05}));
  // Else 1 - e^(-x^2) q(1 / (1 + x / 2)) with q interpolated over |x| in [0, 4]. For larger |x|,
  // erf is 1.
  Value* limit = Constant(x, 4.0);
  Value* clamped = b.CreateSelect(b.CreateFCmpOGT(magnitude, limit), limit, magnitude);
  Value* t = b.CreateFDiv(Constant(x, 1.0),
                          b.CreateFAdd(b.CreateFMul(clamped, Constant(x, 0.5)), Constant(x, 1.0)));
  Value* q = Polynomial(b, t,
                        {0.000605118391, 0.27363434, 0.330757134, 0.101495412, 0.403495053,
                         -0.0570652, -0.053630428});
  Value* e = EmitExp(b, b.CreateFNeg(b.CreateFMul(clamped, clamped)));
  Value* large = b.CreateFSub(Constant(x, 1.0), b.CreateFMul(e, q));
  large = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, large, x);
  return b.CreateSelect(b.CreateFCmpOLT(magnitude, Constant(x, 1.0)), small, large);
}

// The module's function i64 @heddle.ipow(i64, i64) or, for an unsigned exponent, @heddle.upow, made
// on first use. It squares repeatedly.
llvm::Function* IntPowFunction(llvm::Module& module, bool is_unsigned) {
  const char* kName = is_unsigned ? "heddle.upow" : "heddle.ipow";
  if (llvm::Function* made = module.getFunction(kName)) return made;
  llvm::LLVMContext& context = module.getContext();
  llvm::IRBuilder<> b(context);
  Type* i64 = b.getInt64Ty();
  auto* function = llvm::Function::Create(llvm::FunctionType::get(i64, {i64, i64}, false),
                                          llvm::Function::InternalLinkage, kName, module);
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(context, name, function); };
  auto *entry = block("entry"), *negative = block("negative"), *loop = block("loop"),
       *done = block("done");
  Value *x = function->getArg(0), *y = function->getArg(1);
  b.SetInsertPoint(entry);
  Value* is_negative = is_unsigned ? b.getFalse() : b.CreateICmpSLT(y, b.getInt64(0));
  b.CreateCondBr(is_negative, negative, loop);
  b.SetInsertPoint(negative);
  Value* odd = b.CreateTrunc(y, b.getInt1Ty());
  Value* sign = b.CreateSelect(odd, llvm::ConstantInt::getSigned(i64, -1), b.getInt64(1));
  Value* minus_one = b.CreateICmpEQ(x, llvm::ConstantInt::getSigned(i64, -1));
  Value* one = b.CreateZExt(b.CreateICmpEQ(x, b.getInt64(1)), i64);
  b.CreateRet(b.CreateSelect(minus_one, sign, one));
  b.SetInsertPoint(loop);
  llvm::PHINode *result = b.CreatePHI(i64, 2), *base = b.CreatePHI(i64, 2),
                *exponent = b.CreatePHI(i64, 2);
  Value* product =
      b.CreateSelect(b.CreateTrunc(exponent, b.getInt1Ty()), b.CreateMul(result, base), result);
  Value* rest = b.CreateLShr(exponent, 1);
  result->addIncoming(b.getInt64(1), entry);
  base->addIncoming(x, entry);
  exponent->addIncoming(y, entry);
  result->addIncoming(product, loop);
  base->addIncoming(b.CreateMul(base, base), loop);
  exponent->addIncoming(rest, loop);
  b.CreateCondBr(b.CreateICmpNE(rest, b.getInt64(0)), loop, done);
  b.SetInsertPoint(done);
  b.CreateRet(product);
  return function;
}

}  // namespace

Value* EmitMath(llvm::IRBuilder<>& b, Op op, Value* x) {
  if (llvm::Intrinsic::ID id = IntrinsicOf(op)) return b.CreateUnaryIntrinsic(id, x);
  if (x->getType()->getScalarType()->isFloatTy()) {
    if (op == Op::kExp) return EmitExp(b, x);
    if (op == Op::kTanh) return EmitTanh(b, x);
    if (op == Op::kErf) return EmitErf(b, x);
  }
  return CallLibm(b, op, {x});
}

Value* EmitPow(llvm::IRBuilder<>& b, Value* x, Value* y) { return CallLibm(b, Op::kPow, {x, y}); }

Value* EmitIntPow(llvm::IRBuilder<>& b, Value* x, Value* y, bool is_unsigned) {
  Type* type = x->getType();
  // Widened, narrower unsigned exponents are not negative.
  const bool wide = is_unsigned && type->getScalarSizeInBits() == 64;
  llvm::Function* function = IntPowFunction(*b.GetInsertBlock()->getModule(), wide);
  auto lane_power = [&](Value* base, Value* exponent) {
    auto widen = [&](Value* v) {
      return is_unsigned ? b.CreateZExt(v, b.getInt64Ty()) : b.CreateSExt(v, b.getInt64Ty());
    };
    return b.CreateTrunc(b.CreateCall(function, {widen(base), widen(exponent)}),
                         type->getScalarType());
  };
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (!vector) return lane_power(x, y);
  Value* result = llvm::PoisonValue::get(type);
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    Value* power = lane_power(b.CreateExtractElement(x, lane), b.CreateExtractElement(y, lane));
    result = b.CreateInsertElement(result, power, lane);
  }
  return result;
}

}  // namespace heddle::codegen
