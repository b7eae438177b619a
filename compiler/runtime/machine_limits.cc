#include "compiler/runtime/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::runtime {
namespace {

// The nanoseconds until all workers of the pool, running at the same time, have done work(worker).
double TimeOnAll(const ThreadPool& pool, const std::function<void(int64_t)>& work) {
  const auto start = std::chrono::steady_clock::now();
  pool.host()->parallel_for(
      pool.host(), pool.host()->num_workers,
      [](void* closure, int64_t begin, int64_t end, int32_t) {
        const auto& each = *static_cast<const std::function<void(int64_t)>*>(closure);
        for (int64_t i = begin; i < end; ++i) each(i);
      },
      const_cast<std::function<void(int64_t)>*>(&work));
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

#if defined(__x86_64__)

// Twelve independent chains hide the latency (4 or 5 cycles) of two operations per cycle.
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

double Gflops(float (*loop)(int64_t), int lanes, int threads) {
  constexpr int64_t kRounds = 2000000;  // about 20 ms
  const ThreadPool pool(threads);
  const auto run = [loop](int64_t rounds) {
    return [loop, rounds](int64_t) {
      volatile float sink = loop(rounds);
      static_cast<void>(sink);
    };
  };
  TimeOnAll(pool, run(kRounds / 10));
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double ns = TimeOnAll(pool, run(kRounds));
    best = std::max(best, 2.0 * kRounds * kChains * lanes * threads / ns);
  }
  return best;
}
#endif

// The sum of `count` vectors of one cache line each. The compiler splits them for narrower
// machines.
using Line = uint64_t __attribute__((vector_size(64)));

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
SumLines(const Line* lines, int64_t count) {
  Line sums[4] = {};
  for (int64_t i = 0; i + 4 <= count; i += 4) {
    for (int k = 0; k < 4; ++k) sums[k] += lines[i + k];
  }
  const Line sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  uint64_t total = 0;
  for (int k = 0; k < 8; ++k) total += sum[k];
  return total;
}

}  // namespace

double MeasureFmaPeak(int threads) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Gflops(Loop512, 16, threads);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return Gflops(Loop256, 8, threads);
  }
#endif
  return 0;
}

double MeasureBandwidth(int64_t bytes, int threads) {
  constexpr int64_t kSmallest = 1 << 16, kLargest = int64_t{256} << 20;
  constexpr double kLimitNs = 200e6;
  const int64_t lines = std::clamp(bytes, kSmallest, kLargest) / 64 / threads;  // for each worker
  const AlignedBuffer memory = AlignedBuffer::Allocate(lines * 64 * threads);
  if (!memory.ok()) return 0;
  const ThreadPool pool(threads);
  const auto* data = reinterpret_cast<const Line*>(memory.data());
  std::memset(memory.data(), 1, static_cast<size_t>(lines * 64 * threads));
  // Short passes are repeated within one parallel loop, so that starting the workers matters
  // little.
  const int64_t repeats = std::max<int64_t>(1, (int64_t{4} << 20) / (lines * 64));
  const auto pass = [&](int64_t worker) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < repeats; ++i) {
      sum += SumLines(data + worker * lines, lines);
      asm volatile("" : "+r"(sum) : : "memory");
    }
  };
  double best = 0, spent = TimeOnAll(pool, pass);
  for (int i = 0; i < 20 && (i == 0 || spent < kLimitNs); ++i) {
    const double ns = TimeOnAll(pool, pass);
    spent += ns;
    best = std::max(best, static_cast<double>(repeats * lines * 64 * threads) / ns);
  }
  return best;
}

}  // namespace heddle::runtime
