#include "bench/fma_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::bench {

#if defined(__x86_64__)
namespace {

// Twelve independent chains hide the latency (4 or 5 cycles) of two units a cycle.
constexpr int kChains = 12;

__attribute__((target("avx512f"))) float Loop512(int64_t rounds) {
  const __m512 a = _mm512_set1_ps(0.999f);
  const __m512 b = _mm512_set1_ps(0.001f);
  __m512 sum[kChains];
#pragma GCC unroll 12
  for (int k = 0; k < kChains; ++k) sum[k] = _mm512_set1_ps(static_cast<float>(k));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) sum[k] = _mm512_fmadd_ps(sum[k], a, b);
  }
  for (int k = 1; k < kChains; ++k) sum[0] = _mm512_add_ps(sum[0], sum[k]);
  return _mm512_cvtss_f32(sum[0]);
}

__attribute__((target("avx2,fma"))) float Loop256(int64_t rounds) {
  const __m256 a = _mm256_set1_ps(0.999f);
  const __m256 b = _mm256_set1_ps(0.001f);
  __m256 sum[kChains];
#pragma GCC unroll 12
  for (int k = 0; k < kChains; ++k) sum[k] = _mm256_set1_ps(static_cast<float>(k));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) sum[k] = _mm256_fmadd_ps(sum[k], a, b);
  }
  for (int k = 1; k < kChains; ++k) sum[0] = _mm256_add_ps(sum[0], sum[k]);
  return _mm256_cvtss_f32(sum[0]);
}

double Gflops(float (*loop)(int64_t), int lanes) {
  constexpr int64_t kRounds = 2000000;  // about 20 ms
  volatile float sink = loop(kRounds / 10);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    sink = loop(kRounds);
    const std::chrono::duration<double, std::nano> ns = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * kRounds * kChains * lanes / ns.count());
  }
  static_cast<void>(sink);
  return best;
}

}  // namespace

double MeasureFmaPeak() {
  if (__builtin_cpu_supports("avx512f")) return Gflops(Loop512, 16);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Gflops(Loop256, 8);
  return 0;
}
#else
double MeasureFmaPeak() { return 0; }
#endif

}  // namespace heddle::bench
