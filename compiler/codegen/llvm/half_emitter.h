// Conversions between f32 and the 16-bit floats, which registers hold as their bits (i16). Private
// to this folder: includes LLVM.
#pragma once

#include "compiler/ir/ir.h"
#include "llvm/IR/IRBuilder.h"

namespace heddle::codegen {

// The f32 of an f16 or bf16, a scalar or a vector. Exact. `native`: the CPU has instructions
// between f16 and f32; without them, integer instructions do it.
llvm::Value* WidenHalf(llvm::IRBuilder<>& b, llvm::Value* bits, ir::DType from, bool native);
// The f16 or bf16 nearest to an f32, ties to even. A NaN stays one.
llvm::Value* NarrowToHalf(llvm::IRBuilder<>& b, llvm::Value* x, ir::DType to, bool native);

}  // namespace heddle::codegen
