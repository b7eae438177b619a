#include "compiler/codegen/math_emitter.h"

#include <string>
#include <vector>

#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace heddle::codegen {

namespace {

using ir::Op;
using llvm::Type;
using llvm::Value;

// libm's name for double; float's has an f behind.
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

// Calls libm, lane by lane for vectors.
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

// i64 @heddle.ipow(i64, i64) of the module, made on first use: repeated squaring.
llvm::Function* IntPowFunction(llvm::Module& module) {
  constexpr char kName[] = "heddle.ipow";
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
  b.CreateCondBr(b.CreateICmpSLT(y, b.getInt64(0)), negative, loop);
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
  return CallLibm(b, op, {x});
}

Value* EmitPow(llvm::IRBuilder<>& b, Value* x, Value* y) { return CallLibm(b, Op::kPow, {x, y}); }

Value* EmitIntPow(llvm::IRBuilder<>& b, Value* x, Value* y, bool is_unsigned) {
  llvm::Function* function = IntPowFunction(*b.GetInsertBlock()->getModule());
  Type* type = x->getType();
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
