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

}  // namespace

Value* EmitMath(llvm::IRBuilder<>& b, Op op, Value* x) {
  if (llvm::Intrinsic::ID id = IntrinsicOf(op)) return b.CreateUnaryIntrinsic(id, x);
  return CallLibm(b, op, {x});
}

Value* EmitPow(llvm::IRBuilder<>& b, Value* x, Value* y) { return CallLibm(b, Op::kPow, {x, y}); }

}  // namespace heddle::codegen
