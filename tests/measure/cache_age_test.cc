#include "compiler/measure/cache_age.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "compiler/ir/text.h"

namespace heddle::internal {
namespace {

bool WritesOver(const std::string& text) {
  const auto program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() && WritesOverInput(*program);
}

TEST(WritesOverInputTest, KernelsThatWorkElementByElement) {
  // Two steps, and a constant for each column.
  EXPECT_TRUE(WritesOver(R"(
program bias(x: f32[4, 8], b: f32[8] const) -> (y: f32[4, 8]) {
  alloc t: f32[4, 8] global {
    for i in 4 { for j in 8 {
      block sum(vi < 4 spatial = i, vj < 8 spatial = j) { t[vi, vj] = (x[vi, vj] + b[vj]) }
    } }
    for i1 in 4 { for j1 in 8 {
      block relu(ui < 4 spatial = i1, uj < 8 spatial = j1) { y[ui, uj] = max(t[ui, uj], 0.0) }
    } }
  }
})"));
  // Elsewhere in the input; reduced; of another shape; of another type; no input but a constant.
  EXPECT_FALSE(WritesOver(R"(
program turn(x: f32[4, 4]) -> (y: f32[4, 4]) {
  for i in 4 { for j in 4 {
    block b(vi < 4 spatial = i, vj < 4 spatial = j) { y[vi, vj] = x[vj, vi] }
  } }
})"));
  EXPECT_FALSE(WritesOver(R"(
program total(x: f32[4, 4]) -> (y: f32[4]) {
  for i in 4 { for j in 4 {
    block b(vi < 4 spatial = i, vj < 4 reduce = j) sum init 0.0 { y[vi] = x[vi, vj] }
  } }
})"));
  EXPECT_FALSE(WritesOver(R"(
program widen(x: f32[4]) -> (y: f32[4, 4]) {
  for i in 4 { for j in 4 {
    block b(vi < 4 spatial = i, vj < 4 spatial = j) { y[vi, vj] = x[vj] }
  } }
})"));
  EXPECT_FALSE(WritesOver(R"(
program round(x: f32[4]) -> (y: i32[4]) {
  for i in 4 {
    block b(vi < 4 spatial = i) { y[vi] = i32(x[vi]) }
  }
})"));
  EXPECT_FALSE(WritesOver(R"(
program copy(x: f32[4] const) -> (y: f32[4]) {
  for i in 4 {
    block b(vi < 4 spatial = i) { y[vi] = x[vi] }
  }
})"));
}

double ReadNs(const std::vector<char>& memory) {
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < memory.size(); i += 64) {
    char byte = memory[i];
    asm volatile("" : : "r"(byte));
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

TEST(EvictLinesTest, LinesComeFromMemoryAfterwards) {
  if (!CanEvict()) GTEST_SKIP() << "this CPU has no instruction for that";
  const std::vector<char> memory(256 << 10, 1);
  double warm = 1e18, cold = 1e18;
  for (int i = 0; i < 50; ++i) {
    ReadNs(memory);
    warm = std::min(warm, ReadNs(memory));
    EvictLines(memory.data(), static_cast<int64_t>(memory.size()));
    cold = std::min(cold, ReadNs(memory));
  }
  EXPECT_GT(cold, 1.5 * warm);
  EvictLines(memory.data(), 0);
}

TEST(ComputeUntilTest, TakesAtLeastTheTime) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  ComputeUntil(end);
  EXPECT_GE(std::chrono::steady_clock::now(), end);
}

}  // namespace
}  // namespace heddle::internal
