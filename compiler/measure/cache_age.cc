#include "compiler/measure/cache_age.h"

#include <vector>

#include "compiler/ir/visit.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 2000;  // some microseconds
constexpr int kChains = 10;    // as many independent additions as fill two pipelines of five cycles

// All sums are of ones, so that no number is denormal.
#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) void Compute256() {
  const __m256 one = _mm256_set1_ps(1);
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = one;
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 10
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(one, one, sum);
      asm volatile("" : "+x"(sum));
    }
  }
}

__attribute__((target("avx512f"))) void Compute512() {
  const __m512 one = _mm512_set1_ps(1);
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = one;
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 10
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(one, one, sum);
      asm volatile("" : "+v"(sum));
    }
  }
}

#endif

void ComputeBaseline() {
  float sums[kChains];
  for (float& sum : sums) sum = 1;
  for (int i = 0; i < kRounds; ++i) {
    for (float& sum : sums) sum += 1;
    asm volatile("" : : "r"(sums) : "memory");
  }
}

// Whether the element that these indices name is that of the block's own iterators: y[vi, vj] in a block of vi and vj.
bool AreIters(const std::vector<ir::Expr>& indices, const ir::Block& block) {
  if (indices.size() != block.iters.size()) return false;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i]->kind != ir::ExprKind::kVar || indices[i]->var != block.iters[i].var)
      return false;
  }
  return true;
}

}  // namespace

#if defined(__x86_64__)

bool CanEvict() { return true; }

void EvictLines(const void* data, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const char* const begin = static_cast<const char*>(data);
  for (int64_t i = 0; i < bytes; i += kLine) _mm_clflush(begin + i);
  if (bytes > 0) _mm_clflush(begin + bytes - 1);  // where the data does not begin a line
  _mm_mfence();
}

#else

bool CanEvict() { return false; }

void EvictLines(const void*, int64_t) {}

#endif

void ComputeUntil(Clock::time_point end) {
  void (*compute)() = ComputeBaseline;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    compute = Compute512;
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    compute = Compute256;
  }
#endif
  while (Clock::now() < end) compute();
}

bool WritesOverInput(const ir::Program& program) {
  if (program.outputs.size() != 1) return false;
  const ir::BufferRef& output = program.outputs[0];
  bool found = false, alike = true;
  ir::VisitStmt(program.body, [&](const ir::Stmt& s) {
    const auto* block = ir::As<ir::Block>(s);
    if (block == nullptr) return true;
    alike &= !block->reducer && AreIters(block->store.indices, *block) &&
             block->store.buffer->shape == output->shape;
    ir::VisitLoads(block->store.value, [&](const ir::Expr& load) {
      if (load->buffer->constant || load->buffer->shape != output->shape) return;
      if (!AreIters(load->args, *block)) {
        alike = false;
        return;
      }
      for (const ir::BufferRef& input : program.inputs)
        found |= input == load->buffer && input->dtype == output->dtype;
    });
    return false;
  });
  return found && alike;
}

}  // namespace heddle::internal
