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

// Allows all that either of the two allows.
inline Tolerance Wider(const Tolerance& a, const Tolerance& b) {
  return {std::max(a.relative, b.relative), std::max(a.absolute, b.absolute)};
}

// For sums of up to some thousand terms. Every schedule reorders sums and contracts multiply-adds,
// and single precision rounds every partial sum. A relative 1e-4 leaves an order of magnitude, for
// one operator and for a whole model, whose errors partly cancel. The absolute part covers sums
// that cancel, whose rounding error does not shrink with the result. Terms of a window that are
// known to lie in the padding are left out, so an infinite weight there gives no NaN.
inline constexpr Tolerance kDirectTolerance = {1e-4, 1e-4};

inline constexpr double kEpsilon = 0x1p-23;  // of single precision
// No tolerance grows beyond that of so many terms: a sum in single precision that has so many of
// one sign does not grow by another one.
inline constexpr int64_t kMostSumTerms = int64_t{1} << 24;

// The same for a sum of any length. The worst case is K epsilon / 2 times the sum of the terms'
// magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2002, chapter 4). That is no
// tolerance: from some ten thousand terms on it is more than a term, so a kernel that leaves one out
// would pass. Rounding errors have either sign, and so they mostly cancel. What remains, for terms
// that are products of inputs in [-1, 1]:
//
// - Terms of either sign: each of the K additions rounds a partial sum of order sqrt(K) / 3, and
//   errors add up like a random walk, so they grow as K. The worst of thousands of sums one after
//   the other is off by 5e-8 K, and one that cancels by 1.6e-8 K. The definition, which is computed
//   in single precision, too, may be off by as much: together K epsilon.
// - Terms of one sign: the relative error of the sum grows as sqrt(K). The worst was 4.5e-8 sqrt(K).
inline Tolerance DirectTolerance(int64_t sum_terms) {
  const auto terms = static_cast<double>(std::clamp<int64_t>(sum_terms, 1, kMostSumTerms));
  return {std::max(kDirectTolerance.relative, kEpsilon * std::sqrt(terms)),
          std::max(kDirectTolerance.absolute, kEpsilon * terms)};
}

// The same for tensor cores, which cut partial sums off instead of rounding them: at least every 8
// terms, sums lose up to an epsilon of their size, half of that on average. All errors point
// towards zero, so they add up. From some 400,000 terms on, the tolerance is more than a term.
//
// - Terms of either sign: K / 8 losses of half an epsilon of sqrt(K) / 3. Computed so, the worst of
//   thousands is off by epsilon K^1.5 / 30, and one that cancels by half as much. An H200 loses
//   less: the worst of 16 million elements of a product of f16 with 4096 terms was off by 1.4e-4,
//   which is epsilon K^1.5 / 220.
// - Terms of one sign: K / 8 losses of at most an epsilon, of partial sums that are half the sum on
//   average.
inline Tolerance TensorCoreTolerance(int64_t sum_terms) {
  const Tolerance direct = DirectTolerance(sum_terms);
  const auto terms = static_cast<double>(std::clamp<int64_t>(sum_terms, 1, kMostSumTerms));
  return {std::max(direct.relative, kEpsilon / 16 * terms),
          std::max(direct.absolute, kEpsilon / 32 * terms * std::sqrt(terms))};
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

// The tolerance for Winograd's form of a convolution with `sum_terms` terms, K. The absolute errors
// in the table above are up to 7e-7 K. Twice as much is allowed.
inline Tolerance WinogradTolerance(int64_t sum_terms) {
  const auto terms = static_cast<double>(std::clamp<int64_t>(sum_terms, 1, kMostSumTerms));
  return {kWinogradTolerance.relative, std::max(kWinogradTolerance.absolute, 1.4e-6 * terms)};
}

// For products of f32 rounded to tf32; their sums come on top. Rounding to 11 bits changes a factor
// by at most 2^-11, about 2^-11 / 3 in the root mean square, and a product by about 2.5e-4 of its
// size. For inputs in [-1, 1] the size of a product is 1/3, so a sum of K terms is off by 8e-5
// sqrt(K). The worst of ten million elements is off by five times that, and a margin is added: 3e-2
// for the longest sums here, 4608 terms, whose results reach 100.
inline Tolerance Tf32Tolerance(int64_t sum_terms) {
  const auto terms = static_cast<double>(std::clamp<int64_t>(sum_terms, 1, kMostSumTerms));
  return {1e-3, 4.5e-4 * std::sqrt(terms)};
}

// The approximations that a kernel makes beyond reordering its sums. They are derived from the
// schedule when a kernel is built (driver/schedule_and_lower.h); then artifacts, messages and
// modules carry them. Products of f16 and bf16 are exact in f32, so they need no entry here.
struct Numerics {
  bool winograd = false;      // Winograd's form of a convolution
  bool tf32 = false;          // products of f32 rounded to tf32
  bool tensor_cores = false;  // sums that are cut off instead of rounded
  int64_t sum_terms = 1;      // number of terms in the kernel's longest sum

  // How far results may be from the exact ones, for inputs in [-1, 1]. For the outputs of a model,
  // only the relative part counts, relative to the largest magnitude of an output.
  Tolerance Allowed() const {
    Tolerance allowed = tensor_cores ? TensorCoreTolerance(sum_terms) : DirectTolerance(sum_terms);
    if (winograd) allowed = Wider(allowed, WinogradTolerance(sum_terms));
    if (tf32) {
      const Tolerance products = Tf32Tolerance(sum_terms);
      allowed.absolute += products.absolute;
      allowed.relative = std::max(allowed.relative, products.relative);
    }
    return allowed;
  }
  // For people: the approximation that determines Allowed(); "" if there is none.
  const char* Reason() const {
    if (tf32 || winograd) return tf32 ? "tf32" : "Winograd";
    const bool more = Allowed().relative > DirectTolerance(sum_terms).relative;
    return more ? "tensor-core" : "";
  }

  // What two kernels together promise.
  Numerics operator|(const Numerics& other) const {
    return {winograd || other.winograd, tf32 || other.tf32, tensor_cores || other.tensor_cores,
            std::max(sum_terms, other.sum_terms)};
  }
  bool operator==(const Numerics&) const = default;
};

}  // namespace heddle::runtime
