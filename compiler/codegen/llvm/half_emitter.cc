#include "compiler/codegen/llvm/half_emitter.h"

#include <cmath>

#include "llvm/IR/Intrinsics.h"

namespace heddle::codegen {

namespace {

using ir::DType;
using llvm::Type;
using llvm::Value;

constexpr uint32_t kInfinity32 = 0x7f800000;

Type* Like(Value* v, Type* element) { return v->getType()->getWithNewType(element); }

Value* Word(Value* like, uint32_t value) { return llvm::ConstantInt::get(like->getType(), value); }

// Bits of an f16 to an f32. The mantissa and the exponent are moved to their places in an f32. A
// product with the quotient of the two scales then gives numbers, also subnormal ones.
Value* WidenF16(llvm::IRBuilder<>& b, Value* bits) {
  Value* word = b.CreateZExt(bits, Like(bits, b.getInt32Ty()));
  Value* magnitude = b.CreateShl(b.CreateAnd(word, Word(word, 0x7fff)), 13);
  Type* single = Like(bits, b.getFloatTy());
  Value* number =
      b.CreateFMul(b.CreateBitCast(magnitude, single), llvm::ConstantFP::get(single, 0x1p112));
  Value* is_finite = b.CreateICmpULT(magnitude, Word(word, 0x7c00 << 13));
  Value* special = b.CreateOr(magnitude, Word(word, kInfinity32));  // infinity or NaN
  Value* found = b.CreateSelect(is_finite, b.CreateBitCast(number, word->getType()), special);
  Value* sign = b.CreateShl(b.CreateAnd(word, Word(word, 0x8000)), 16);
  return b.CreateBitCast(b.CreateOr(found, sign), single);
}

Value* NarrowToF16(llvm::IRBuilder<>& b, Value* x) {
  Type* single = x->getType();
  Value* word = b.CreateBitCast(x, Like(x, b.getInt32Ty()));
  Value* magnitude = b.CreateAnd(word, Word(word, 0x7fffffff));
  Value* sign = b.CreateLShr(b.CreateXor(word, magnitude), 16);
  // Normal results: the mantissa loses 13 bits, rounded half to even, and the exponent is rebased.
  // A carry out of the mantissa is right, too, and so is one to infinity.
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, 13), Word(word, 1));
  Value* rebased = b.CreateAdd(magnitude, Word(word, 0xfffu - (uint32_t{127 - 15} << 23)));
  Value* normal = b.CreateLShr(b.CreateAdd(rebased, odd), 13);
  // Subnormal results: the sum with 0.5, whose last place is that of subnormal f16s, rounds.
  Value* sum = b.CreateFAdd(b.CreateBitCast(magnitude, single), llvm::ConstantFP::get(single, 0.5));
  Value* subnormal = b.CreateSub(b.CreateBitCast(sum, word->getType()), Word(word, 0x3f000000));
  Value* is_nan = b.CreateICmpUGT(magnitude, Word(word, kInfinity32));
  Value* special = b.CreateSelect(is_nan, Word(word, 0x7e00), Word(word, 0x7c00));
  Value* is_large = b.CreateICmpUGE(magnitude, Word(word, 0x47800000));  // 65536
  Value* is_small = b.CreateICmpULT(magnitude, Word(word, 0x38800000));  // 2^-14
  Value* found = b.CreateSelect(is_small, subnormal, b.CreateSelect(is_large, special, normal));
  return b.CreateTrunc(b.CreateOr(found, sign), Like(x, b.getInt16Ty()));
}

// The upper half of the f32, rounded half to even.
Value* NarrowToBf16(llvm::IRBuilder<>& b, Value* x) {
  Value* word = b.CreateBitCast(x, Like(x, b.getInt32Ty()));
  Value* upper = b.CreateLShr(word, 16);
  Value* odd = b.CreateAnd(upper, Word(word, 1));
  Value* rounded = b.CreateLShr(b.CreateAdd(b.CreateAdd(word, Word(word, 0x7fff)), odd), 16);
  Value* quiet = b.CreateOr(upper, Word(word, 0x40));
  Value* found = b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded);
  return b.CreateTrunc(found, Like(x, b.getInt16Ty()));
}

}  // namespace

Value* WidenHalf(llvm::IRBuilder<>& b, Value* bits, DType from, bool native) {
  if (from == DType::kBF16) {
    Value* word = b.CreateZExt(bits, Like(bits, b.getInt32Ty()));
    return b.CreateBitCast(b.CreateShl(word, 16), Like(bits, b.getFloatTy()));
  }
  if (!native) return WidenF16(b, bits);
  return b.CreateFPExt(b.CreateBitCast(bits, Like(bits, b.getHalfTy())),
                       Like(bits, b.getFloatTy()));
}

Value* NarrowToHalf(llvm::IRBuilder<>& b, Value* x, DType to, bool native) {
  if (to == DType::kBF16) return NarrowToBf16(b, x);
  if (!native) return NarrowToF16(b, x);
  return b.CreateBitCast(b.CreateFPTrunc(x, Like(x, b.getHalfTy())), Like(x, b.getInt16Ty()));
}

}  // namespace heddle::codegen
