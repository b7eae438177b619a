// The one place that says when two results of the same computation count as equal.
#pragma once

#include <cmath>

#include "compiler/ir/ir.h"

namespace heddle::codegen {

// |a - b| <= absolute + relative * max(|a|, |b|).
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

// Schedules reorder sums and contract multiply-adds. Summing K terms of similar size in single
// precision in another order moves the result by about sqrt(K) ulps of the largest partial sum; K
// is at most some 10^4 here, which makes 1e-5: the relative 1e-4 leaves an order to spare, for a
// single operator and, whose errors partly cancel, for a whole model. The absolute part covers sums
// that cancel: random inputs in [-1, 1] give partial sums of order sqrt(K), whose rounding error
// does not shrink with the result. Where a window lies in the padding known when code is made, its
// term is left out: an infinite weight there gives no NaN.
inline constexpr Tolerance kDirectTolerance = {1e-4, 1e-4};

// Winograd's form of a convolution, F(m x m, 3 x 3) (Lavin and Gray, Fast Algorithms for
// Convolutional Neural Networks, 2015): A^T [(G w G^T) . (B^T d B)] A. The entries of the three
// matrices grow with m, so what is in between is larger than the result, and the sums that bring it
// down again cancel. Rounding errors grow at most by the square of |A^T| |G| |B^T| (largest
// absolute row sums), with the points of schedule/winograd.cc: 9^2 for m = 2, 190^2 for m = 4,
// 1252^2 for m = 6; far less in practice, as errors are random and the largest entries meet rarely.
// Measured against double precision (tests/measure/tolerance_test.cc), largest difference over all
// elements relative to the largest, inputs and weights in [-1, 1]:
//
//             C2 (K = 576)   C6 (1152)   C9 (2304)   C12 (4608)
//   direct      1.1e-6         1.0e-6      1.6e-6      2.9e-6
//   m = 2       3.7e-7         4.4e-7      6.5e-7      8.7e-7    (its sums are a ninth as long)
//   m = 4       8.2e-6         7.6e-6      8.7e-6      9.1e-6
//   m = 6       1.0e-5         1.1e-5      2.0e-5      2.0e-5
//
// An order more than the direct form, hence the relative part. The absolute part is for elements
// that cancel: results reach 5 sqrt(K) / 3, 113 for C12, of which 2e-5 is 2.3e-3; that twice.
// Infinities and NaNs spread: a tile's transform mixes its inputs, so one of them makes a whole
// tile NaN, and sums that overflow in between are no result. So do the zeros between groups that
// are merged into one product (graph/merge_products.h): zero times infinity is NaN.
inline constexpr Tolerance kWinogradTolerance = {1e-3, 5e-3};

// Products of f32 rounded to tf32 (a target's -tf32=on). Rounding to 11 bits moves each factor by
// at most 2^-11, 2^-11 / 3 in the root of the mean square or so, and a product by about 2.5e-4 of
// its size. Of inputs in [-1, 1] a product's size is 1/3, so a sum of K terms is off by 8e-5
// sqrt(K); of ten million elements the worst are off by five times that, and a bit is left: 3e-2 of
// the longest sums here, 4608, whose results reach 100. Products of f16 and bf16 are exact in f32,
// sums are rounded as f32 is: their tolerance is the direct one.
inline Tolerance Tf32Tolerance(int64_t terms) {
  return {1e-3, 4.5e-4 * std::sqrt(static_cast<double>(terms))};
}

// The terms of a naive program's longest sum.
int64_t LongestSum(const ir::Program& program);

// Of a kernel, `terms` being those of its longest sum, which matter to tf32 alone; or, with any
// such kernel in it, of a model, whose outputs are compared by `relative` alone, relative to the
// largest magnitude of the output.
inline Tolerance ToleranceFor(bool winograd, bool tf32 = false, int64_t terms = 1) {
  return tf32 ? Tf32Tolerance(terms) : winograd ? kWinogradTolerance : kDirectTolerance;
}

// Numbers stored as 16-bit floats that differ by what f32 allows may round to neighbours: a unit of
// their last place, 2^-10 or 2^-7 of the number, and that of the smallest normal one.
inline Tolerance Stored(ir::DType dtype, Tolerance tolerance) {
  if (dtype == ir::DType::kF16) tolerance.relative += 0x1p-10, tolerance.absolute += 0x1p-24;
  if (dtype == ir::DType::kBF16) tolerance.relative += 0x1p-7;
  return tolerance;
}

inline bool Close(double a, double b, const Tolerance& tolerance = kDirectTolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <=
         tolerance.absolute + tolerance.relative * std::fmax(std::fabs(a), std::fabs(b));
}

// Elements of one buffer: integers and bools are exact, whatever the schedule.
inline bool Same(ir::DType dtype, double a, double b,
                 const Tolerance& tolerance = kDirectTolerance) {
  return ir::IsFloat(dtype) ? Close(a, b, Stored(dtype, tolerance)) : a == b;
}

}  // namespace heddle::codegen
