// Features against numbers computed by hand, and the identities that tie them together.
#include "cost_model/features/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/space.h"
#include "cost_model/features/statements.h"

namespace heddle::cost_model {
namespace {

using ::testing::DoubleNear;

machine::TargetInfo Avx2() {
  machine::TargetInfo info;
  info.vector_bytes = 32;
  info.vector_registers = 16;
  info.target.threads = 4;
  return info;
}

ir::Program ParseOrDie(const std::string& text) {
  absl::StatusOr<ir::Program> p = ir::Parse(text);
  EXPECT_TRUE(p.ok()) << p.status();
  return *p;
}

// Features by name; magnitudes as the number they stand for.
std::map<std::string, double> Named(const ir::Program& p,
                                    const machine::TargetInfo& target = Avx2()) {
  const std::vector<float> values = ExtractFeatures(p, target);
  const auto table = FeatureTable();
  EXPECT_EQ(values.size(), table.size());
  std::map<std::string, double> named;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool magnitude = table[i].unit.starts_with("log2");
    named[table[i].name] = magnitude ? std::exp2(static_cast<double>(values[i])) - 1 : values[i];
  }
  return named;
}

void ExpectValues(const std::map<std::string, double>& features,
                  const std::map<std::string, double>& expected) {
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(features.contains(name)) << name;
    EXPECT_THAT(features.at(name), DoubleNear(value, 1e-4 * (1 + std::abs(value)))) << name;
  }
}

constexpr char kTiledMatmul[] = R"(
program mm(A: f32[64, 32], B: f32[32, 48]) -> (C: f32[64, 48]) {
  for i0 in 8 parallel {
    for j0 in 6 {
      for k0 in 4 {
        for k1 in 8 {
          for i1 in 8 unrolled {
            for j1 in 8 vectorized {
              block c(i < 64 spatial = ((i0 * 8) + i1), j < 48 spatial = ((j0 * 8) + j1),
                      k < 32 reduce = ((k0 * 8) + k1)) sum init 0.0 {
                C[i, j] = (A[i, k] * B[k, j])
              }
            }
          }
        }
      }
    }
  }
}
)";

TEST(Features, TableIsComplete) {
  std::set<std::string> names;
  for (const FeatureInfo& f : FeatureTable()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name << " twice";
    EXPECT_FALSE(f.unit.empty()) << f.name;
    EXPECT_TRUE(f.meaning.ends_with(".")) << f.name << ": " << f.meaning;
    EXPECT_GE(f.meaning.size(), 10u) << f.name;
  }
  EXPECT_EQ(ExtractFeatures(ParseOrDie(kTiledMatmul), Avx2()).size(), FeatureTable().size());
}

TEST(Features, TiledMatmulByHand) {
  const ir::Program p = ParseOrDie(kTiledMatmul);
  ASSERT_TRUE(ir::Verify(p).ok()) << ir::Verify(p);
  const auto f = Named(p);
  ExpectValues(
      f, {
             {"program.statements", 1},
             {"program.trips", 64 * 48 * 32},
             {"program.flops", 2 * 64 * 48 * 32},
             {"program.io_bytes", 4 * (64 * 32 + 32 * 48 + 64 * 48)},
             {"program.parallel_regions", 1},
             {"program.serial_trips", 0},
             {"program.code_copies", 8},
             {"program.vectorized_share", 1},
             {"program.guarded_share", 0},
             // (2 operations and 3 accesses) per 8 lanes in one register.
             {"program.instructions", 64.0 * 48 * 32 * 5 / 8},
             {"side.trips", 0},
             {"main.trips", 64 * 48 * 32},
             {"main.spatial_trips", 64 * 48},
             {"main.reduce_trips", 32},
             {"main.flops", 2},
             {"main.add", 1},
             {"main.mul", 1},
             {"main.reduction", 1},
             {"main.guards", 0},
             {"main.depth", 6},
             {"main.parallel_extent", 8},
             {"main.parallel_use", 1},
             {"main.lanes", 8},
             {"main.vector_fill", 1},
             {"main.unrolled", 8},
             {"main.tile_trips", 64},
             {"main.accumulators", 8},
             {"main.register_use", (8 + 8 + 1) / 16.0},  // C rows, A broadcasts, one vector of B
             {"store.elements", 64 * 48},
             {"store.reuse", 32},
             {"store.tile_elements", 64},
             {"store.inner_stride", 1},
             {"load0.elements", 64 * 32},  // A is larger than B
             {"load0.reuse", 48},
             {"load0.tile_elements", 8},
             {"load0.inner_stride", 0},
             {"load1.elements", 32 * 48},
             {"load1.reuse", 64},
             {"load1.inner_stride", 1},
             {"other_loads.elements", 0},
         });
}

TEST(Features, LadderOfTheTiledMatmul) {
  const auto f = Named(ParseOrDie(kTiledMatmul));
  ExpectValues(f, {
                      {"loop0.extent", 8},
                      {"loop0.kind", 3},
                      {"loop0.touched", 4 * (8 + 1 + 8)},
                      {"loop0.reuse", 8.0 * 3 / 17},
                      {"loop1.extent", 8},
                      {"loop1.kind", 2},
                      {"loop1.touched", 4 * (64 + 8 + 8)},
                      {"loop2.extent", 8},
                      {"loop2.kind", 1},
                      {"loop2.touched", 4 * (64 + 64 + 64)},
                      {"loop2.reuse", 8},
                      {"loop3.extent", 4},
                      {"loop3.touched", 4 * (64 + 256 + 256)},
                      {"loop4.extent", 6},
                      {"loop4.touched", 4 * (8 * 48 + 256 + 32 * 48)},
                      {"loop5.extent", 8},
                      {"loop5.kind", 4},
                      {"loop5.touched", 4 * (64 * 48 + 64 * 32 + 32 * 48)},
                      {"loop6.extent", 1},
                      {"loop6.kind", 0},
                  });
}

TEST(Features, ReuseCurvesOfTheTiledMatmul) {
  // A: 4 bytes (1 execution, also 8 under j1), 32 bytes under i1 (64 executions), 256 under k1,
  // 1024 under k0, the same under j0, 8192 in all.
  const auto f = Named(ParseOrDie(kTiledMatmul));
  ExpectValues(f, {
                      {"load0.reuse_2^6", 8},
                      {"load0.entries_2^6", 64.0 * 48 * 32 / 64},
                      {"load0.reuse_2^8", 8},
                      {"load0.entries_2^8", 64.0 * 48 * 32 / 512},
                      {"load0.reuse_2^10", 48},
                      {"load0.entries_2^10", 8},
                      {"load0.reuse_2^24", 48},
                      {"load0.entries_2^24", 1},
                      {"load0.touched_2^1", 4},
                      {"load0.touched_2^3", 1024},
                      {"load0.touched_2^13", 8192},
                      {"store.reuse_2^6", 1},
                      {"store.reuse_2^24", 32},
                      {"store.touched_2^3", 256},
                      {"store.touched_2^5", 64 * 48 * 4},
                  });
}

// Curves never fall where thresholds rise (entries: never grow), and end at the whole nest.
TEST(Features, ReuseCurvesAreMonotone) {
  const auto f = Named(ParseOrDie(kTiledMatmul));
  for (const std::string slot : {"store.", "load0.", "load1."}) {
    for (int t = 8; t <= 24; t += 2) {
      const std::string now = std::to_string(t), before = std::to_string(t - 2);
      EXPECT_GE(f.at(slot + "reuse_2^" + now), f.at(slot + "reuse_2^" + before)) << slot << t;
      EXPECT_LE(f.at(slot + "entries_2^" + now), f.at(slot + "entries_2^" + before)) << slot << t;
    }
    for (int t = 3; t <= 13; t += 2) {
      EXPECT_GE(f.at(slot + "touched_2^" + std::to_string(t)),
                f.at(slot + "touched_2^" + std::to_string(t - 2)));
    }
    EXPECT_NEAR(f.at(slot + "entries_2^24"), 1, 1e-6);
    EXPECT_NEAR(f.at(slot + "touched_2^13"), 4 * f.at(slot + "elements"), 1);
  }
}

TEST(Features, GroupsAreLeftOutByName) {
  const std::vector<std::string> groups = FeatureGroups();
  EXPECT_THAT(groups, ::testing::ElementsAre("program", "side", "counts", "main", "traffic",
                                             "estimate", "access", "reuse", "loop"));
  size_t sum = 0;
  for (const std::string& group : groups) {
    const std::vector<size_t> left = *ColumnsWithout({{group}});
    sum += FeatureTable().size() - left.size();
    for (size_t k : left) EXPECT_NE(FeatureTable()[k].group, group);
  }
  EXPECT_EQ(sum, FeatureTable().size());
  EXPECT_EQ(ColumnsWithout({{"nothing"}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Pick({1, 2, 3}, {0, 2}), (std::vector<float>{1, 3}));
}

TEST(Features, TrafficOfTheTiledMatmul) {
  const auto f = Named(ParseOrDie(kTiledMatmul));
  const double everything = 4 * (64 * 48 + 64 * 32 + 32 * 48);
  // 2 KiB hold the tiles under k1: eight lines each of C, A and B. C stands still over k0, A and B
  // do not.
  const double tiles = 8 * 6 * 512.0 + 2 * (8 * 6 * 4 * 512.0);
  ExpectValues(f, {
                      {"main.traffic_2^11", tiles},
                      {"main.traffic_2^15", everything},
                      {"main.traffic_2^23", everything},
                      {"program.l1_bytes", everything},
                      {"program.l2_bytes", everything},
                  });
}

TEST(Features, BlocksAndPlainStoresAgree) {
  const std::string store = std::regex_replace(
      std::string(kTiledMatmul), std::regex(R"(block c[^{]*\{[^}]*\})"),
      "C[((i0 * 8) + i1), ((j0 * 8) + j1)] = (C[((i0 * 8) + i1), ((j0 * 8) + j1)] + "
      "(A[((i0 * 8) + i1), ((k0 * 8) + k1)] * B[((k0 * 8) + k1), ((j0 * 8) + j1)]))");
  EXPECT_EQ(ExtractFeatures(ParseOrDie(store), Avx2()),
            ExtractFeatures(ParseOrDie(kTiledMatmul), Avx2()));
}

TEST(Features, NamesAndLoopsOfOneIterationDoNotMatter) {
  std::string renamed = kTiledMatmul;
  for (const auto& [from, to] : std::map<std::string, std::string>{{"A", "zebra"},
                                                                   {"B", "apple"},
                                                                   {"C", "mid"},
                                                                   {"c", "a_block"},
                                                                   {"i0", "q"},
                                                                   {"j1", "a"},
                                                                   {"k0", "zz"},
                                                                   {"i", "y"},
                                                                   {"mm", "other"}}) {
    renamed = std::regex_replace(renamed, std::regex("\\b" + from + "\\b(?! [{0-9])"), to);
    renamed = std::regex_replace(renamed, std::regex("for " + from + " in"), "for " + to + " in");
  }
  ASSERT_NE(ir::Print(ParseOrDie(renamed)), ir::Print(ParseOrDie(kTiledMatmul)));
  const std::vector<float> expected = ExtractFeatures(ParseOrDie(kTiledMatmul), Avx2());
  EXPECT_EQ(ExtractFeatures(ParseOrDie(renamed), Avx2()), expected) << renamed;

  std::string wrapped = kTiledMatmul;
  wrapped.replace(wrapped.find("for k1"), 0, "for one in 1 { ");
  wrapped.replace(wrapped.rfind("}"), 0, "}");
  EXPECT_EQ(ExtractFeatures(ParseOrDie(wrapped), Avx2()), expected);
}

TEST(Features, ConvolutionWindowsOverlap) {
  const auto f = Named(ParseOrDie(R"(
program conv(X: f32[16, 57], W: f32[8, 16, 3]) -> (Y: f32[8, 28]) {
  for o in 8 { for w in 28 { for c in 16 { for r in 3 {
    block y(a < 8 spatial = o, b < 28 spatial = w, d < 16 reduce = c, e < 3 reduce = r) sum init 0.0 {
      Y[a, b] = (X[d, ((b * 2) + e)] * W[a, d, e])
    }
  } } } }
})"));
  ExpectValues(f, {
                      {"load0.elements", 16 * 57},  // 27 * 2 + 3 columns: windows overlap by one
                      {"load0.reuse", 8.0 * 28 * 16 * 3 / (16 * 57)},
                      {"load0.inner_stride", 1},
                      {"loop2.touched", 4 * (28 + 16 * 57 + 16 * 3)},
                  });
}

TEST(Features, FusedLoopsAndGuards) {
  const auto f = Named(ParseOrDie(R"(
program copy(X: f32[10, 12]) -> (Y: f32[10, 12]) {
  for f0 in 30 parallel { for f1 in 5 {
    block y(a < 10 spatial = (((f0 * 5) + f1) // 12), b < 12 spatial = (((f0 * 5) + f1) % 12)) where (((f0 * 5) + f1) < 120) {
      Y[a, b] = X[a, b]
    }
  } }
})"));
  ExpectValues(f, {
                      {"main.trips", 150},
                      {"store.elements", 120},
                      {"load0.elements", 120},
                      {"main.guards", 1},
                      {"program.guarded_share", 1},
                      {"side.copy_trips", 0},
                      {"main.flops", 0},
                      {"main.parallel_use", 30.0 / 32},
                      {"store.inner_stride", 1},
                  });
}

TEST(Features, EmptyProgramHasFiniteFeatures) {
  for (float v : ExtractFeatures(ir::Program{}, machine::TargetInfo{}))
    EXPECT_TRUE(std::isfinite(v));
}

// Identities of the table, on many schedules.
class FeatureIdentities : public testing::TestWithParam<int> {};

TEST_P(FeatureIdentities, HoldOnRandomSchedules) {
  const ir::Program naive = ParseOrDie(R"(
program dense(X: f32[24, 40], W: f32[36, 40], bias: f32[36]) -> (out: f32[24, 36]) {
  alloc t: f32[24, 36] global {
    for i in 24 { for j in 36 { for k in 40 {
      block dense_sum(a < 24 spatial = i, b < 36 spatial = j, c < 40 reduce = k) sum init 0.0 {
        t[a, b] = (X[a, c] * W[b, c])
      }
    } } }
    for i2 in 24 { for j2 in 36 {
      block relu(a2 < 24 spatial = i2, b2 < 36 spatial = j2) {
        out[a2, b2] = max((t[a2, b2] + bias[b2]), 0.0)
      }
    } }
  }
})");
  ASSERT_TRUE(ir::Verify(naive).ok()) << ir::Verify(naive);
  schedule::Rng rng(static_cast<uint64_t>(GetParam()));
  for (int round = 0; round < 20; ++round) {
    const auto trace = schedule::RandomTrace(naive, 12, rng);
    ASSERT_TRUE(trace.ok()) << trace.status();
    const auto program = schedule::Replay(naive, *trace);
    ASSERT_TRUE(program.ok()) << program.status();
    SCOPED_TRACE(schedule::ToText(*trace));
    auto f = Named(*program);
    for (const auto& [name, value] : f) EXPECT_TRUE(std::isfinite(value)) << name;
    const auto near = [](double v) { return DoubleNear(v, 1e-4 * (1 + v)); };
    EXPECT_THAT(f["program.trips"], near(f["main.trips"] + f["side.trips"]));
    EXPECT_THAT(f["program.flops"], near(f["main.flops"] * f["main.trips"] + f["side.flops"]));
    EXPECT_THAT(f["main.trips"], near(f["main.spatial_trips"] * f["main.reduce_trips"]));
    EXPECT_THAT(f["main.flops"],
                near(f["main.add"] + f["main.mul"] + f["main.div"] + f["main.special"]));
    EXPECT_THAT(f["main.trips"], near(f["store.elements"] * f["store.reuse"]));
    EXPECT_LE(f["program.l2_bytes"], f["program.l1_bytes"] * 1.0001);
    EXPECT_LE(f["program.serial_trips"], f["program.trips"] * 1.0001);
    EXPECT_LE(f["load0.tile_elements"], f["load0.elements"] * 1.0001);
    const double busy = f["main.parallel_extent"] > 1 ? 4 * f["main.parallel_use"] : 1;
    EXPECT_THAT(f["estimate.cycles"] * busy, near(f["estimate.main"] + f["estimate.side"]));
    EXPECT_THAT(f["estimate.main"], near(std::max({f["estimate.arithmetic"], f["estimate.moves"],
                                                   f["estimate.issue"], f["estimate.fill"]})));
    EXPECT_LE(f["estimate.use"], 1);
    for (int c = 9; c < 23; c += 2) {
      EXPECT_LE(f["main.traffic_2^" + std::to_string(c + 2)],
                f["main.traffic_2^" + std::to_string(c)] * 1.0001)
          << c;
    }
    for (int k = 0; k < 7; ++k) {
      EXPECT_LE(f["loop" + std::to_string(k) + ".touched"],
                f["loop" + std::to_string(k + 1) + ".touched"] * 1.0001)
          << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FeatureIdentities, testing::Range(0, 10));

}  // namespace
}  // namespace heddle::cost_model
