// The accuracy that a kernel promises, and why. Includes no other header of ours.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace heddle::runtime {

// |a - b| <= absolute + relative * max(|a|, |b|).
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

// Every schedule reorders sums and contracts multiply-adds. A sum of K terms of similar size, taken
// in single precision in another order, changes by about sqrt(K) ulps of the largest partial sum. K
// is at most some 10^4, which gives 1e-5. A relative 1e-4 leaves an order of magnitude, for one
// operator and for a whole model, whose errors partly cancel. The absolute part covers sums that
// cancel: inputs in [-1, 1] give partial sums of order sqrt(K), whose rounding error does not
// shrink with the result. Terms of a window that are known to lie in the padding are left out, so
// an infinite weight there gives no NaN.
inline constexpr Tolerance kDirectTolerance = {1e-4, 1e-4};

// The same for the longest sum of a kernel. Tensor cores cut the sums of products of f16 and bf16 off
// instead of rounding them, so their errors add up: the worst of 16 million elements of a product
// with 4096 terms was off by 1.4e-4 on an H200, which is 2.1e-6 sqrt(K). Five times that is allowed.
inline Tolerance DirectTolerance(int64_t sum_terms) {
  return {kDirectTolerance.relative,
          std::max(kDirectTolerance.absolute, 1e-5 * std::sqrt(static_cast<double>(sum_terms)))};
}

// Winograd's form of a convolution, F(m x m, 3 x 3) (Lavin and Gray, Fast Algorithms for
// Convolutional Neural Networks, 2015): A^T [(G w G^T) . (B^T d B)] A. The entries of the three
// matrices grow with m, so intermediate values are larger than the result, and the sums that lead
// back to it cancel. Rounding errors grow at most by the square of |A^T| |G| |B^T| (largest
// absolute row sums). With the points of schedule/primitives/winograd.cc, that is 9^2 for m = 2,
// 190^2 for m = 4, 1252^2 for m = 6. In practice they grow far less, because errors are random and
// the largest entries rarely meet. The table was measured against double precision
// (tests/measure/tolerance_test.cc). It gives the largest difference of any element, relative to
// the largest element, with inputs and weights in [-1, 1]:
//
//             C2 (K = 576)   C6 (1152)   C9 (2304)   C12 (4608)
//   direct      1.1e-6         1.0e-6      1.6e-6      2.9e-6
//   m = 2       3.7e-7         4.4e-7      6.5e-7      8.7e-7    (its sums are a ninth as long)
//   m = 4       8.2e-6         7.6e-6      8.7e-6      9.1e-6
//   m = 6       1.0e-5         1.1e-5      2.0e-5      2.0e-5
//
// The relative part is an order of magnitude above that of the direct form. The absolute part is
// for elements that cancel: results reach 5 sqrt(K) / 3, which is 113 for C12; 2e-5 of that is
// 2.3e-3, and twice as much is allowed. Infinities and NaNs spread: the transform of a tile mixes
// its inputs, so one of them makes a whole tile NaN, and an intermediate sum that overflows leaves
// no result. If groups of a convolution are merged (graph/ops/convolution_weights.h), the zero
// weights between them do the same, because zero times infinity is NaN.
inline constexpr Tolerance kWinogradTolerance = {1e-3, 5e-3};

// Products of f32 rounded to tf32. Rounding to 11 bits changes a factor by at most 2^-11, about
// 2^-11 / 3 in the root mean square, and a product by about 2.5e-4 of its size. For inputs in
// [-1, 1] the size of a product is 1/3, so a sum of K terms is off by 8e-5 sqrt(K). The worst of
// ten million elements is off by five times that, and a margin is added: 3e-2 for the longest sums
// here, 4608 terms, whose results reach 100.
inline Tolerance Tf32Tolerance(int64_t sum_terms) {
  return {1e-3, 4.5e-4 * std::sqrt(static_cast<double>(sum_terms))};
}

// The approximations that a kernel makes beyond reordering its sums. They are derived from the
// schedule when a kernel is built (driver/schedule_and_lower.h); then artifacts, messages and
// modules carry them. Products of f16 and bf16 are exact in f32, so they need no entry here; for
// their sums see DirectTolerance.
struct Numerics {
  bool winograd = false;  // Winograd's form of a convolution
  bool tf32 = false;      // products of f32 rounded to tf32
  int64_t sum_terms = 1;  // number of terms in the kernel's longest sum

  // How far results may be from the exact ones, for inputs in [-1, 1]. For the outputs of a model,
  // only the relative part counts, relative to the largest magnitude of an output.
  Tolerance Allowed() const {
    return tf32       ? Tf32Tolerance(sum_terms)
           : winograd ? kWinogradTolerance
                      : DirectTolerance(sum_terms);
  }
  // For people: the approximation that determines Allowed(); "" if there is none.
  const char* Reason() const { return tf32 ? "tf32" : winograd ? "Winograd" : ""; }

  // What two kernels together promise.
  Numerics operator|(const Numerics& other) const {
    return {winograd || other.winograd, tf32 || other.tf32, std::max(sum_terms, other.sum_terms)};
  }
  bool operator==(const Numerics&) const = default;
};

}  // namespace heddle::runtime
