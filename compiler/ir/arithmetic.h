// Arithmetic on constants, with the widths and rounding of the IR's types. The constructors, the
// simplifier and the interpreter all use these functions, so that an operator means the same
// everywhere.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/ir.h"

namespace heddle::ir {

// Integers are carried as int64_t; a u64 as the int64_t of the same bits.

// Reduces an integer to what `dtype` can hold (two's complement; a bool is 0 or 1).
int64_t WrapInt(int64_t value, DType dtype);
// The smallest and the largest value of an integer type or of bool.
int64_t LowestInt(DType dtype);
int64_t HighestInt(DType dtype);
// Rounds to `dtype`; to f16 and bf16 by way of f32, as casts do.
double RoundFloat(double value, DType dtype);

// The 16 bits of a number as `dtype` (f16 or bf16), rounded to nearest even, and back. A NaN gives
// a quiet NaN.
uint16_t HalfBits(float value, DType dtype);
float HalfValue(uint16_t bits, DType dtype);

// Quotient rounded towards minus infinity, and its remainder, which has the divisor's sign. The
// divisor must not be 0. Wraps on overflow.
int64_t FloorDivInt(int64_t a, int64_t b);
int64_t FloorModInt(int64_t a, int64_t b);

// Result of a binary or unary operator on operands of type `dtype`; comparisons give 0 or 1.
// Division by zero gives 0. nullopt for operators that only floats have.
std::optional<int64_t> EvalInt(Op op, DType dtype, int64_t a, int64_t b);
// Arithmetic and functions of floats, rounded to `dtype`. Not for comparisons.
std::optional<double> EvalFloat(Op op, DType dtype, double a, double b);
// Comparisons and tests of floats.
std::optional<bool> EvalFloatTest(Op op, double a, double b);
// Float to integer: truncates; out of range saturates; NaN gives 0.
int64_t FloatToInt(double value, DType dtype);
// Integer of type `from` to a float of type `to`, rounded once (to f16 and bf16 by way of f32).
double IntToFloat(int64_t value, DType from, DType to);

}  // namespace heddle::ir
