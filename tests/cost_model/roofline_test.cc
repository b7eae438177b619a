// The analytic estimate, against numbers computed by hand.
#include "cost_model/features/roofline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_replace.h"
#include "compiler/ir/text.h"
#include "cost_model/features/estimate.h"
#include "cost_model/features/features.h"

namespace heddle::cost_model {
namespace {

machine::TargetInfo Avx2(int threads = 1) {
  machine::TargetInfo info;
  info.vector_bytes = 32;
  info.vector_registers = 16;
  info.target.threads = threads;
  return info;
}

// A product of 64 x 32 and 32 x 64 whose register tile has `rows` rows of one vector.
std::string Product(int rows) {
  return absl::StrReplaceAll(
      R"(
program mm(A: f32[64, 32], B: f32[32, 64]) -> (C: f32[64, 64]) {
  for i0 in OUTER parallel { for j0 in 8 { for k in 32 {
    for i1 in ROWS unrolled { for j1 in 8 vectorized {
      block c(a < 64 spatial = ((i0 * ROWS) + i1), b < 64 spatial = ((j0 * 8) + j1), d < 32 reduce = k)
          sum init 0.0 {
        C[a, b] = (A[a, d] * B[d, b])
      }
    } }
  } } }
})",
      {{"OUTER", std::to_string(64 / rows)}, {"ROWS", std::to_string(rows)}});
}

CycleEstimate Estimate(const std::string& text, const machine::TargetInfo& target) {
  const absl::StatusOr<ir::Program> program = ir::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status();
  const std::vector<Statement> statements = CollectStatements(*program);
  EXPECT_EQ(statements.size(), 1u);
  return EstimateCycles(statements[0], target);
}

TEST(Estimate, OfATileInRegisters) {
  // 8 x 8 x 32 passes of 8 multiply-adds with 8 accumulators; each reads 8 elements of A and a
  // vector of B; the accumulators are loaded and stored once in 32 passes. Loads take longer.
  const CycleEstimate cycles = Estimate(Product(8), Avx2());
  const double passes = 8 * 8 * 32;
  EXPECT_NEAR(cycles.arithmetic, passes * 4, 1e-6);
  EXPECT_NEAR(cycles.moves, passes * (8 + 1 + 8 / 32.0) / 2, 1e-6);
  EXPECT_NEAR(cycles.issue, passes * (8 + 9.5 + 2) / 6, 1e-6);
  EXPECT_NEAR(cycles.fill, 4 * (64 * 32 + 32 * 64 + 64 * 64) / 8, 1e-6) << "all of it once";
  EXPECT_EQ(cycles.Longest(), cycles.moves);
}

TEST(Estimate, StoresHideBehindLoadsOrLoadsBehindThem) {
  machine::TargetInfo slow = Avx2();
  slow.core.stores_per_cycle = 0.01;  // 8 vectors in 32 passes
  EXPECT_NEAR(Estimate(Product(8), slow).moves, 8 * 8 * 32 * (8 / 32.0) / 0.01, 1e-6);
  machine::TargetInfo gathers = Avx2();
  gathers.core.gathered_per_cycle = 0.5;
  const std::string apart = absl::StrReplaceAll(
      Product(8), {{"B: f32[32, 64]", "B: f32[64, 32]"}, {"B[d, b]", "B[b, d]"}});
  EXPECT_NEAR(Estimate(apart, gathers).moves, 8 * 8 * 32 * ((8 + 0.25) / 2 + 8 / 0.5), 1e-6);
}

TEST(Estimate, FewAccumulatorsWaitForEachOther) {
  const CycleEstimate cycles = Estimate(Product(2), Avx2());
  EXPECT_NEAR(cycles.arithmetic, 32 * 8 * 32 * 4, 1e-6) << "a multiply-add in four cycles, not two";
  EXPECT_EQ(cycles.Longest(), cycles.arithmetic);
}

TEST(Estimate, TooManyAccumulatorsAreStoredAndLoadedAgain) {
  // 32 accumulators and 2 more registers, of which 16 are there.
  EXPECT_NEAR(Estimate(Product(32), Avx2()).moves, 2 * 8 * 32 * (32 + 1 + 1 + 18) / 2.0, 1e-6);
  EXPECT_GT(Estimate(Product(32), Avx2()).Longest(), Estimate(Product(8), Avx2()).Longest());
}

TEST(Estimate, ElementsThatLieApartAreLoadedOneByOne) {
  const std::string apart = absl::StrReplaceAll(
      Product(8), {{"B: f32[32, 64]", "B: f32[64, 32]"}, {"B[d, b]", "B[b, d]"}});
  EXPECT_NEAR(Estimate(apart, Avx2()).moves, 8 * 8 * 32 * (8 + 8 + 0.25) / 2, 1e-6);
}

TEST(Roofline, IsTheEstimateOfTheBusiestCore) {
  const auto score = [](int rows, int threads) {
    return RooflineScore(ExtractFeatures(*ir::Parse(Product(rows)), Avx2(threads)));
  };
  EXPECT_EQ(FeatureTable()[EstimateColumn()].name, "estimate.cycles");
  EXPECT_NEAR(score(8, 1), -std::log2(1 + 8 * 8 * 32 * 4.625), 1e-3);
  EXPECT_NEAR(score(8, 4), score(8, 1) + 2, 1e-3);
  EXPECT_NEAR(score(32, 4), score(32, 1) + 1, 1e-3) << "two of four threads have work";
  EXPECT_GT(score(8, 1), score(2, 1));
}

}  // namespace
}  // namespace heddle::cost_model
