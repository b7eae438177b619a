// Writes elementary functions in LLVM IR. Private to this folder: includes LLVM.
#pragma once

#include "compiler/ir/ir.h"
#include "llvm/IR/IRBuilder.h"

namespace heddle::codegen {

// `op`(x) for a unary float operator other than neg, abs, sign, is_nan, is_inf; x is a float or
// double, or a vector of them.
llvm::Value* EmitMath(llvm::IRBuilder<>& builder, ir::Op op, llvm::Value* x);

// x to the power y, elementwise.
llvm::Value* EmitPow(llvm::IRBuilder<>& builder, llvm::Value* x, llvm::Value* y);

// Integers to integer powers. Results wrap; with a negative exponent, they are rounded towards zero
// like a division.
llvm::Value* EmitIntPow(llvm::IRBuilder<>& builder, llvm::Value* x, llvm::Value* y,
                        bool is_unsigned);

}  // namespace heddle::codegen
