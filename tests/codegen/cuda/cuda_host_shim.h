// What CUDA C++ of ours means, on a CPU: each thread of a block is one here, blocks run one after
// the other. Included by sources that host_code.cc makes; the pure functions of prelude.h
// stand before it. Shared memory is static, as blocks do not overlap; asynchronous copies happen
// when they are waited for, the latest that a GPU may do them. Vectors that are loaded or stored at
// other places than multiples of their size are counted, and so are products of four warps whose
// operands change while they run.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

struct h_dim {
  unsigned x, y, z;
};
inline thread_local h_dim threadIdx, blockIdx;
inline h_dim gridDim, blockDim;

inline std::atomic<int> h_misaligned = 0;
inline void h_aligned(const void* p, size_t bytes) {
  h_misaligned += reinterpret_cast<uintptr_t>(p) % bytes != 0;
}
// Only memory is copied from, and assigned to. The types ask for no alignment, or the compiler
// would take it for granted.
#define H_VECTOR(type)                             \
  type() = default;                                \
  type(const type& memory) {                       \
    h_aligned(&memory, sizeof memory);             \
    std::memcpy(this, &memory, sizeof memory);     \
  }                                                \
  type& operator=(const type& variable) {          \
    h_aligned(this, sizeof variable);              \
    std::memcpy(this, &variable, sizeof variable); \
    return *this;                                  \
  }
struct float2 {
  float x, y;
  H_VECTOR(float2)
};
struct float4 {
  float x, y, z, w;
  H_VECTOR(float4)
};
struct int2 {
  int x, y;
  H_VECTOR(int2)
};
struct int4 {
  int x, y, z, w;
  H_VECTOR(int4)
};
template <class T, int N>
struct h_vector {
  T v[N];
  H_VECTOR(h_vector)
};
#define __global__
#define __launch_bounds__(n)
#define __grid_constant__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }

// ---- Threads that wait for each other

struct h_warp {
  std::barrier<> all{32};
  const void* rows[32];
  unsigned a[32][4], b[32][2];
  float value[32];
};
struct h_block {
  explicit h_block(int threads) : all(threads), warps(static_cast<size_t>(threads + 31) / 32) {
    for (auto& warp : warps) warp = std::make_unique<h_warp>();
  }
  std::barrier<> all;
  std::vector<std::unique_ptr<h_warp>> warps;
};
inline h_block* h_current = nullptr;
inline thread_local unsigned h_linear = 0;  // number of the thread in its block
inline h_warp& h_own() { return *h_current->warps[h_linear / 32]; }
inline unsigned h_own_lane() { return h_linear % 32; }

inline void __syncthreads() { h_current->all.arrive_and_wait(); }
inline void __syncwarp() {}

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  h_warp& warp = h_own();
  warp.value[h_own_lane()] = value;
  warp.all.arrive_and_wait();
  const float other = warp.value[h_own_lane() ^ static_cast<unsigned>(mask)];
  warp.all.arrive_and_wait();
  return other;
}

// ---- Asynchronous copies

struct h_copy {
  void* to;
  const void* from;
  int bytes;
  bool on;
};
inline thread_local std::vector<h_copy> h_copies;
inline void h_async4(void* to, const void* from, bool on) { h_copies.push_back({to, from, 4, on}); }
inline void h_async8(void* to, const void* from, bool on) { h_copies.push_back({to, from, 8, on}); }
inline void h_async16(void* to, const void* from, bool on) {
  h_copies.push_back({to, from, 16, on});
}
inline thread_local std::vector<std::vector<h_copy>> h_fetches;  // ended and not waited for
inline void h_do_copies(std::vector<h_copy>& copies) {
  for (const h_copy& c : copies) {
    for (const void* p : {static_cast<const void*>(c.to), c.from})
      h_aligned(p, static_cast<size_t>(c.bytes));
    c.on ? std::memcpy(c.to, c.from, static_cast<size_t>(c.bytes))
         : std::memset(c.to, 0, static_cast<size_t>(c.bytes));
  }
  copies.clear();
}
inline void h_async_commit() { h_fetches.push_back(std::move(h_copies)), h_copies.clear(); }
template <int n>
void h_async_wait_but() {
  while (h_fetches.size() > static_cast<size_t>(n)) {
    h_do_copies(h_fetches.front());
    h_fetches.erase(h_fetches.begin());
  }
}
inline void h_async_wait() {
  h_async_wait_but<0>();
  h_do_copies(h_copies);
}

// ---- Copies of boxes

// A matrix of 16-bit numbers (HostMap).
struct alignas(128) h_map {
  unsigned long long address, width, height, rows;
  unsigned long long unused[12];
};
struct h_box_copy {
  unsigned short* to;
  h_map map;
  int x, y;
};
// A counter of bytes. The copies happen when somebody waits for them, the latest that a GPU may do
// them. A GPU may also do them at once, so from their start there are NaNs in their place. What is
// expected before the bytes before it have been waited for counts as misaligned, and so does a wait
// that no copy ends.
struct h_counter {
  bool valid = false;
  unsigned turns = 0, expected = 0, begun = 0;
  std::vector<h_box_copy> copies;
};
struct h_counters {
  std::mutex lock;
  std::condition_variable change;
  std::map<const void*, h_counter> all;
};
inline h_counters h_arriving;
inline void h_arrivals(unsigned long long* full, int count) {
  const std::lock_guard<std::mutex> guard(h_arriving.lock);
  for (int i = 0; i < count; ++i) h_arriving.all[full + i] = {.valid = true};
}
inline void h_expect(unsigned long long* full, unsigned bytes) {
  const std::lock_guard<std::mutex> guard(h_arriving.lock);
  h_counter& counter = h_arriving.all[full];
  h_misaligned += !counter.valid || counter.expected != 0;
  counter.expected = bytes;
  h_arriving.change.notify_all();
}
inline void h_box(void* to, const h_map* map, unsigned long long* full, int x, int y) {
  h_aligned(to, 1024), h_aligned(reinterpret_cast<void*>(map->address), 16);
  h_misaligned += map->width % 8 != 0 || map->rows > 256;
  const std::lock_guard<std::mutex> guard(h_arriving.lock);
  h_counter& counter = h_arriving.all[full];
  counter.copies.push_back({static_cast<unsigned short*>(to), *map, x, y});
  const unsigned bytes = static_cast<unsigned>(map->rows) * 128;
  std::memset(to, 0xff, bytes);
  counter.begun += bytes;
  h_arriving.change.notify_all();
}
inline void h_copy_box(const h_box_copy& c) {
  const auto* from = reinterpret_cast<const unsigned short*>(c.map.address);
  for (int r = 0; r < static_cast<int>(c.map.rows); ++r) {
    for (int k = 0; k < 64; ++k) {
      const long long x = c.x + k, y = c.y + r;
      const bool inside = x >= 0 && x < static_cast<long long>(c.map.width) && y >= 0 &&
                          y < static_cast<long long>(c.map.height);
      c.to[h_swapped(r * 64 + k)] = inside ? from[y * static_cast<long long>(c.map.width) + x]
                                           : static_cast<unsigned short>(0);
    }
  }
}
inline void h_arrived(unsigned long long* full, unsigned phase) {
  std::unique_lock<std::mutex> guard(h_arriving.lock);
  h_counter& counter = h_arriving.all[full];
  const auto complete = [&] { return counter.expected != 0 && counter.begun == counter.expected; };
  const bool ends = h_arriving.change.wait_for(
      guard, std::chrono::seconds(60), [&] { return counter.turns % 2 != phase || complete(); });
  if (!ends) ++h_misaligned;
  if (!ends || counter.turns % 2 != phase) return;
  for (const h_box_copy& c : counter.copies) h_copy_box(c);
  counter.copies.clear();
  counter.expected = counter.begun = 0;
  ++counter.turns;
  h_arriving.change.notify_all();
}

// ---- 16-bit floats and tensor cores

struct h_f16 {
  unsigned short x;
};
struct h_bf16 {
  unsigned short x;
};
inline float h_single(h_f16 v) { return static_cast<float>(__builtin_bit_cast(_Float16, v.x)); }
inline float h_single(h_bf16 v) { return __uint_as_float(static_cast<unsigned>(v.x) << 16); }
inline h_f16 h_tof16(float v) {
  return {__builtin_bit_cast(unsigned short, static_cast<_Float16>(v))};
}
inline h_bf16 h_tobf16(float v) {
  const unsigned bits = __float_as_uint(v), up = 0x7fff + (bits >> 16 & 1);
  return {static_cast<unsigned short>(v != v ? 0x7fff : (bits + up) >> 16)};
}
inline unsigned h_word(const void* two_halves) {
  h_aligned(two_halves, 4);
  unsigned word;
  std::memcpy(&word, two_halves, 4);
  return word;
}
inline unsigned h_tf32(unsigned v) { return (v + 0x1000) & 0xffffe000; }
inline unsigned h_pair(unsigned short low, unsigned short high) {
  return static_cast<unsigned>(low) | static_cast<unsigned>(high) << 16;
}

// PTX ISA, ldmatrix: lane 4 g + t receives elements 2 t and 2 t + 1 of row g of each matrix; with
// .trans of column g. The rows of matrix i come from lanes 8 i to 8 i + 7.
inline void h_load(unsigned* r, const void* row, int matrices, bool trans) {
  h_warp& warp = h_own();
  const unsigned lane = h_own_lane(), g = lane / 4, t = lane % 4;
  warp.rows[lane] = row;
  if (lane < 8u * static_cast<unsigned>(matrices)) h_aligned(row, 16);
  warp.all.arrive_and_wait();
  for (int i = 0; i < matrices; ++i) {
    const auto at = [&](unsigned matrix_row, unsigned column) {
      return static_cast<const unsigned short*>(
          warp.rows[8u * static_cast<unsigned>(i) + matrix_row])[column];
    };
    r[i] = trans ? h_pair(at(2 * t, g), at(2 * t + 1, g)) : h_pair(at(g, 2 * t), at(g, 2 * t + 1));
  }
  warp.all.arrive_and_wait();
}
inline void h_matrices4(unsigned* r, const void* row) { h_load(r, row, 4, false); }
inline void h_matrices4_trans(unsigned* r, const void* row) { h_load(r, row, 4, true); }
inline void h_matrices2(unsigned* r, const void* row) { h_load(r, row, 2, false); }
inline void h_matrices2_trans(unsigned* r, const void* row) { h_load(r, row, 2, true); }

// PTX ISA, mma.m16n8k16 and mma.m16n8k8, matrix fragments: `bits` of a number, K = 256 / bits
// terms. a, register r of lane 4 g + t: row g + 8 (r % 2), terms K/2 (r / 2) + t P and on, P = 32 /
// bits; b, register r: column g, the same terms; c, register r: row g + 8 (r / 2), column 2 t + r
// % 2.
template <class Number>
inline void h_product(float* const* c, const unsigned* a, const unsigned* b, unsigned bits,
                      const Number& number) {
  h_warp& warp = h_own();
  const unsigned lane = h_own_lane(), terms = 256 / bits, per = 32 / bits;
  std::memcpy(warp.a[lane], a, sizeof warp.a[lane]);
  std::memcpy(warp.b[lane], b, sizeof warp.b[lane]);
  warp.all.arrive_and_wait();
  for (unsigned r = 0; r < 4; ++r) {
    const unsigned row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
    for (unsigned k = 0; k < terms; ++k) {
      const unsigned t = k % (terms / 2) / per, half = k / (terms / 2), part = k % per;
      const unsigned x = warp.a[row % 8 * 4 + t][row / 8 + 2 * half];
      const unsigned y = warp.b[column * 4 + t][half];
      *c[r] += number(x, part) * number(y, part);
    }
  }
  warp.all.arrive_and_wait();
}
inline void h_product_f16(float& c0, float& c1, float& c2, float& c3, const unsigned* a,
                          const unsigned* b) {
  float* const c[] = {&c0, &c1, &c2, &c3};
  h_product(c, a, b, 16, [](unsigned v, unsigned part) {
    return h_single(h_f16{static_cast<unsigned short>(v >> 16 * part)});
  });
}
inline void h_product_bf16(float& c0, float& c1, float& c2, float& c3, const unsigned* a,
                           const unsigned* b) {
  float* const c[] = {&c0, &c1, &c2, &c3};
  h_product(c, a, b, 16, [](unsigned v, unsigned part) {
    return h_single(h_bf16{static_cast<unsigned short>(v >> 16 * part)});
  });
}
// The tensor cores do not look at the lower 13 bits.
inline void h_product_tf32(float& c0, float& c1, float& c2, float& c3, const unsigned* a,
                           const unsigned* b) {
  float* const c[] = {&c0, &c1, &c2, &c3};
  h_product(c, a, b, 32, [](unsigned v, unsigned) { return __uint_as_float(v & 0xffffe000); });
}

// ---- Products of four warps

// PTX ISA, wgmma.mma_async and matrix descriptors. Shared memory has addresses of 18 bits: the lower
// ones of this CPU's. Bits that no descriptor uses number the buffer, whose address has the others.
struct h_buffers {
  std::mutex lock;
  std::vector<const unsigned char*> all;
};
inline h_buffers h_known;
constexpr int h_number_bit = 52;
inline unsigned long long h_operand(const void* first, unsigned panel_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(first);
  const std::lock_guard<std::mutex> guard(h_known.lock);
  size_t number = 0;
  while (number < h_known.all.size() && h_known.all[number] != bytes) ++number;
  if (number == h_known.all.size()) h_known.all.push_back(bytes);
  const auto address = static_cast<unsigned>(reinterpret_cast<uintptr_t>(bytes) & 0x3ffff);
  return h_operand_at(address, panel_bytes) | static_cast<unsigned long long>(number % 512)
                                                  << h_number_bit;
}
inline uintptr_t h_buffer_of(unsigned long long d) {
  const std::lock_guard<std::mutex> guard(h_known.lock);
  const auto base = reinterpret_cast<uintptr_t>(h_known.all[d >> h_number_bit & 511]);
  if (base % 1024 != 0) ++h_misaligned;
  return base;
}
// Element (i, k) of an operand: row or column i, term k. With swap mode 1, the 16-byte pieces of 128
// bytes are swapped by the bits of the address above them.
inline unsigned short h_element(uintptr_t base, unsigned long long d, bool transposed, unsigned i,
                                unsigned k) {
  const auto field = [&](int bit) { return static_cast<unsigned>(d >> bit & 0x3fff) << 4; };
  const unsigned leading = field(16), stride = field(32);
  if (d >> 62 != 1) ++h_misaligned;
  const unsigned place = transposed ? i / 64 * leading + i % 64 * 2 + k / 8 * stride + k % 8 * 128
                                    : i / 8 * stride + i % 8 * 128 + k * 2;
  unsigned address = (field(0) + place) & 0x3ffff;
  address ^= (address >> 7 & 7) << 4;
  uintptr_t at = (base & ~uintptr_t{0x3ffff}) | address;
  if (at < base) at += 0x40000;
  unsigned short bits;
  std::memcpy(&bits, reinterpret_cast<const void*>(at), sizeof bits);
  return bits;
}
// A product that this thread has begun. It is made when it is waited for, the latest that a GPU may
// do it; its operands have to be the same when it begins.
struct h_begun {
  std::vector<unsigned short> (*read)(unsigned long long a, unsigned long long b);
  void (*make)(const h_begun&);
  float* s;
  int half, tile, column;
  unsigned long long a, b;
  std::vector<unsigned short> operands;  // two rows, then the columns, 16 terms each
};
inline thread_local std::vector<h_begun> h_open;                    // not committed
inline thread_local std::vector<std::vector<h_begun>> h_committed;  // and not waited for
template <int n, int ta, int tb>
std::vector<unsigned short> h_operands(unsigned long long a, unsigned long long b) {
  std::vector<unsigned short> numbers;
  const unsigned lane = h_own_lane(), row = h_linear / 32 % 4 * 16 + lane / 4;
  const uintptr_t a_base = h_buffer_of(a), b_base = h_buffer_of(b);
  for (unsigned i = 0; i < 2; ++i)
    for (unsigned k = 0; k < 16; ++k) numbers.push_back(h_element(a_base, a, ta, row + 8 * i, k));
  for (unsigned t = 0; t < n / 8; ++t)
    for (unsigned j = 0; j < 2; ++j)
      for (unsigned k = 0; k < 16; ++k)
        numbers.push_back(h_element(b_base, b, tb, 8 * t + lane % 4 * 2 + j, k));
  return numbers;
}
template <int n, class T>
void h_make(const h_begun& p) {
  if (p.read(p.a, p.b) != p.operands) ++h_misaligned;
  for (unsigned t = 0; t < n / 8; ++t)
    for (unsigned i = 0; i < 2; ++i)
      for (unsigned j = 0; j < 2; ++j)
        for (unsigned k = 0; k < 16; ++k)
          p.s[static_cast<int>(i) * p.half + static_cast<int>(t) * p.tile +
              static_cast<int>(j) * p.column] += h_single(T{p.operands[i * 16 + k]}) *
                                                 h_single(T{p.operands[32 + (t * 2 + j) * 16 + k]});
}
template <int n, class T, int ta, int tb>
void h_group(float* s, int half, int tile, int column, unsigned long long a, unsigned long long b) {
  const auto read = h_operands<n, ta, tb>;
  h_open.push_back({read, h_make<n, T>, s, half, tile, column, a, b, read(a, b)});
}
inline int h_uniform(int v) { return v; }
inline void h_group_publish() {}
inline void h_group_begin() {}
inline void h_group_commit() { h_committed.push_back(std::move(h_open)), h_open.clear(); }
template <int n>
void h_group_wait() {
  while (h_committed.size() > static_cast<size_t>(n)) {
    for (const h_begun& p : h_committed.front()) p.make(p);
    h_committed.erase(h_committed.begin());
  }
}
inline void h_group_keep(float&) {}

// ---- Launches

// Dynamic shared memory, as much as any GPU has.
alignas(1024) inline unsigned char h_dynamic[227 << 10];

template <class... P, size_t... I>
void h_call(void (*kernel)(P...), void* const* arguments, std::index_sequence<I...>) {
  kernel(*static_cast<P*>(arguments[I])...);
}
// The arguments as the driver takes them: a pointer to each. The number of misaligned accesses.
template <class... P>
int h_launch(void (*kernel)(P...), void* const* arguments, h_dim grid, h_dim block) {
  const unsigned threads = block.x * block.y * block.z;
  h_misaligned = 0;
  gridDim = grid;
  blockDim = block;
  for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {
    h_block state(static_cast<int>(threads));
    h_current = &state;
    const auto run = [&](unsigned t) {
      h_linear = t;
      h_copies.clear(), h_fetches.clear(), h_open.clear(), h_committed.clear();
      threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
      blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
      h_call(kernel, arguments, std::index_sequence_for<P...>());
      if (!h_open.empty() || !h_committed.empty()) ++h_misaligned;
    };
    std::vector<std::thread> running;
    for (unsigned t = 1; t < threads; ++t) running.emplace_back(run, t);
    run(0);
    for (std::thread& thread : running) thread.join();
  }
  return h_misaligned;
}
