// The text at the start of every CUDA source that we write. It defines the IR's operators for which
// C++ has another meaning. Private to this folder.
#pragma once

namespace heddle::codegen {

inline constexpr char kCudaPrelude[] = R"cuda(
typedef long long i64;
typedef unsigned long long u64;
#define HD static __device__ __forceinline__
template <class T> HD T h_add(T a, T b) { return (T)((u64)a + (u64)b); }
template <class T> HD T h_sub(T a, T b) { return (T)((u64)a - (u64)b); }
template <class T> HD T h_mul(T a, T b) { return (T)((u64)a * (u64)b); }
template <class T> HD bool h_minus1(T b) { return (T)-1 < (T)0 && (i64)b == -1; }
template <class T> HD T h_div(T a, T b) {
  return b == 0 ? (T)0 : (h_minus1(b) ? (T)(0 - (u64)a) : (T)(a / b));
}
template <class T> HD T h_floordiv(T a, T b) {
  if (b == 0) return 0;
  if (h_minus1(b)) return (T)(0 - (u64)a);
  return (T)(a / b - ((a % b != 0) && ((a < 0) != (b < 0))));
}
template <class T> HD T h_floormod(T a, T b) {
  if (b == 0 || h_minus1(b)) return 0;
  T r = (T)(a % b);
  return (T)(r + ((r != 0 && ((r < 0) != (b < 0))) ? b : (T)0));
}
template <class T> HD T h_min(T a, T b) { return b < a ? b : a; }
template <class T> HD T h_max(T a, T b) { return a < b ? b : a; }
template <class T> HD T h_powi(T a, T b) {
  if (b < 0) return (T)((i64)a == 1 ? 1 : ((i64)a == -1 ? (b % 2 ? -1 : 1) : 0));
  u64 result = 1, base = (u64)(i64)a;
  for (u64 e = (u64)b; e != 0; e >>= 1, base *= base) {
    if (e & 1) result *= base;
  }
  return (T)result;
}
template <class T> HD T h_neg(T a) { return (T)(0 - (u64)a); }
template <class T> HD T h_absi(T a) { return a < 0 ? (T)(0 - (u64)a) : a; }
template <class T> HD T h_sign(T a) { return (T)((a > (T)0) - (a < (T)0)); }
HD i64 h_f2i(double x, double low, double high) {
  return x != x ? 0 : (i64)fmin(fmax(trunc(x), low), high);
}
HD i64 h_f2i64(double x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0) return 0x7fffffffffffffffLL;
  if (x < -9223372036854775808.0) return (i64)0x8000000000000000ULL;
  return (i64)x;
}
HD u64 h_f2u64(double x) {
  if (!(x > 0)) return 0;
  return x >= 18446744073709551616.0 ? ~0ULL : (u64)x;
}
HD short h_toi16(double x) { return (short)h_f2i(x, -32768, 32767); }
HD unsigned short h_tou16(double x) { return (unsigned short)h_f2i(x, 0, 65535); }
HD unsigned h_tou32(double x) { return (unsigned)h_f2i(x, 0, 4294967295.0); }
HD signed char h_toi8(double x) { return (signed char)h_f2i(x, -128, 127); }
HD unsigned char h_tou8(double x) { return (unsigned char)h_f2i(x, 0, 255); }
HD int h_toi32(double x) { return (int)h_f2i(x, -2147483648.0, 2147483647.0); }
// The place of element n of a panel (ir/analysis/group_product.h).
HD int h_swapped(int n) { return n ^ (n >> 3 & 56); }
// The descriptor of an operand of h_group (PTX ISA, wgmma, matrix descriptor). It holds the operand's
// address in shared memory, and the distance between panels if rows or columns are contiguous. It
// also says that the next eight rows of a panel begin 1024 bytes later, and that pieces are swapped
// within 128 bytes. Adding 1 to the descriptor moves the address by 16 bytes.
HD u64 h_operand_at(unsigned address, unsigned panel_bytes) {
  return (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)(panel_bytes >> 4) << 16 |
         (u64)((address & 0x3ffff) >> 4);
}
// Copies from global to shared memory behind the thread's back, zeros where it is not `on`.
HD void h_async4(void* to, const void* from, bool on) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
               "l"(from), "r"(on ? 4 : 0)
               : "memory");
}
HD void h_async8(void* to, const void* from, bool on) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
               "l"(from), "r"(on ? 8 : 0)
               : "memory");
}
HD void h_async16(void* to, const void* from, bool on) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
               "l"(from), "r"(on ? 16 : 0)
               : "memory");
}
// 16-bit floats. Headers of CUDA's have them too, but NVRTC brings no headers.
struct h_f16 { unsigned short x; };
struct h_bf16 { unsigned short x; };
HD float h_single(h_f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.x));
  return r;
}
HD float h_single(h_bf16 v) { return __uint_as_float((unsigned)v.x << 16); }
HD h_f16 h_tof16(float v) {
  h_f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.x) : "f"(v));
  return r;
}
HD h_bf16 h_tobf16(float v) {
  h_bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.x) : "f"(v));
  return r;
}
template <class T, int N> struct alignas(sizeof(T) * N) h_vector { T v[N]; };
// Tensor cores: a register holds two 16-bit floats or one of 32 bits.
HD unsigned h_tf32(unsigned v) {
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(v)));
  return r;
}
HD unsigned h_word(const void* two_halves) { return *(const unsigned*)two_halves; }
HD unsigned h_pair(unsigned short low, unsigned short high) {
  return (unsigned)low | (unsigned)high << 16;
}
#define H_PRODUCT(name, shape)                                                                  \
  HD void name(float& c0, float& c1, float& c2, float& c3, const unsigned* a, const unsigned* b) { \
    asm volatile("mma.sync.aligned." shape                                                      \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));           \
  }
H_PRODUCT(h_product_f16, "m16n8k16.row.col.f32.f16.f16.f32")
H_PRODUCT(h_product_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
H_PRODUCT(h_product_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
// Four or two matrices of eight rows of 16 bytes: lanes 8 i to 8 i + 7 name the rows of matrix i.
#define H_MATRICES4(name, kind)                                                                  \
  HD void name(unsigned* r, const void* row) {                                                   \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" kind ".shared.b16 {%0, %1, %2, %3}, [%4];"      \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                \
                 : "r"((unsigned)__cvta_generic_to_shared(row))                                  \
                 : "memory");                                                                    \
  }
#define H_MATRICES2(name, kind)                                                                  \
  HD void name(unsigned* r, const void* row) {                                                   \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" kind ".shared.b16 {%0, %1}, [%2];"              \
                 : "=r"(r[0]), "=r"(r[1])                                                        \
                 : "r"((unsigned)__cvta_generic_to_shared(row))                                  \
                 : "memory");                                                                    \
  }
H_MATRICES4(h_matrices4, "")
H_MATRICES4(h_matrices4_trans, ".trans")
H_MATRICES2(h_matrices2, "")
H_MATRICES2(h_matrices2_trans, ".trans")
HD void h_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Ends a fetch; waits for all but the last n.
HD void h_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n> HD void h_async_wait_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}
// Products of four warps (sm_90a): 64 x n sums of 16 terms of T. A launch defines the shapes that it
// uses. The thread's first sum is at s; those 8 rows, 8 columns and one column further are at s +
// half, s + tile and s + column. ta: rows of a are neighbours in memory; tb: columns of b.
template <int n, class T, int ta, int tb>
HD void h_group(float* s, int half, int tile, int column, u64 a, u64 b);
HD u64 h_operand(const void* first, unsigned panel_bytes) {
  return h_operand_at((unsigned)__cvta_generic_to_shared(first), panel_bytes);
}
// Copies of boxes by the copy engine of sm_90 (PTX ISA, cp.async.bulk.tensor). The runtime makes the
// map of a matrix (runtime/cuda/device.h); a box of 64 columns becomes a panel. A counter of arrived
// bytes turns its phase, 0 or 1, when all that are expected are there.
struct alignas(128) h_map { u64 v[16]; };
HD unsigned h_shared_at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
HD void h_arrivals(u64* full, int count) {
  for (int i = 0; i < count; ++i)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(h_shared_at(full + i)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
HD void h_expect(u64* full, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(h_shared_at(full)),
               "r"(bytes)
               : "memory");
}
HD void h_box(void* to, const h_map* map, u64* full, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(h_shared_at(to)),
      "l"(map), "r"(h_shared_at(full)), "r"(x), "r"(y)
      : "memory");
}
// Waits until the counter has turned from this phase.
HD void h_arrived(u64* full, unsigned phase) {
  asm volatile(
      "{.reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
      " @p bra DONE; bra AGAIN; DONE: }" ::"r"(h_shared_at(full)),
      "r"(phase)
      : "memory");
}
// The same value in all threads of a warp, which the compiler is told.
HD int h_uniform(int v) { return __shfl_sync(0xffffffffu, v, 0); }
// Before a barrier: what this thread stored in shared memory may be read by products.
HD void h_group_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
HD void h_group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
HD void h_group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all but the last n committed.
template <int n> HD void h_group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}
// Keeps uses of a sum behind the wait.
HD void h_group_keep(float& sum) { asm volatile("" : "+f"(sum)::"memory"); }
)cuda";

}  // namespace heddle::codegen
