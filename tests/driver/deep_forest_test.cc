// Forests of many levels import, are scheduled and compiled within bounds, and predict what the trees say.
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/classical/forest.h"
#include "compiler/classical/read.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "tests/driver/forest_text.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

constexpr int kFeatures = 4;

// Trees that are chains: each inner node has a leaf on one side. A row whose values lie in (-0.6, 0.6) comes to the last leaf,
// another one leaves the chain somewhere.
std::string Chains(int trees, int levels) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> bound(0.6, 1);
  std::vector<TextTree> made(static_cast<size_t>(trees));
  for (int t = 0; t < trees; ++t) {
    TextTree& tree = made[static_cast<size_t>(t)];
    for (int i = 0; i < levels; ++i) {
      const int leaf = ~i, next = i + 1 < levels ? i + 1 : ~levels;
      const bool goes_left = rng() % 2 == 0;
      tree.features.push_back(static_cast<int>(rng() % kFeatures));
      tree.decisions.push_back(0);
      tree.thresholds.push_back(goes_left ? bound(rng) : -bound(rng));
      tree.left.push_back(goes_left ? next : leaf);
      tree.right.push_back(goes_left ? leaf : next);
    }
    for (int i = 0; i <= levels; ++i) tree.leaves.push_back((i % 64) / 64.0 - t);
  }
  return LightGbmText(made, kFeatures);
}

// The scores that the trees give to the rows of `input`.
std::vector<double> Expected(const classical::Forest& forest, const std::string& input) {
  const std::vector<float> values = Floats(input);
  std::vector<double> scores;
  for (size_t at = 0; at < values.size(); at += kFeatures)
    scores.push_back(classical::Margins(forest, std::span(values).subspan(at, kFeatures))[0]);
  return scores;
}

void ExpectScores(const std::string& output, const std::vector<double>& expected) {
  const std::vector<float> scores = Floats(output);
  ASSERT_EQ(scores.size(), expected.size());
  for (size_t r = 0; r < scores.size(); ++r) EXPECT_NEAR(scores[r], expected[r], 1e-4) << r;
}

ModelOptions WithRows(int64_t rows) {
  ModelOptions options;
  options.import.shapes = {{"rows", {rows}}};
  return options;
}

TEST(DeepForest, PredictsWithinBounds) {
  struct Case {
    int trees, levels;
    int64_t rows;
  };
  for (const Case& c : {Case{20, 40, 37}, Case{16, 60, 1}, Case{3, 128, 37}}) {
    SCOPED_TRACE(absl::StrCat(c.trees, " trees of ", c.levels, " levels, ", c.rows, " rows"));
    const std::string text = Chains(c.trees, c.levels);
    const auto forest = classical::ReadForest(text);
    ASSERT_TRUE(forest.ok()) << forest.status();
    ASSERT_EQ(classical::Depth(forest->trees.back()), c.levels);
    const auto bytes =
        CompileModel(text, WithRows(c.rows), {}, {}, {.choice = ScheduleChoice::kDefault});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto module = runtime::ParseModule(*bytes);
    ASSERT_TRUE(module.ok()) << module.status();
    // Linear in the levels; with AVX2 a level takes 1.5 KB, with AVX-512 two thirds of that.
    EXPECT_LT(module->code.size(), (8 << 10) + 2048 * static_cast<size_t>(c.levels));
    const std::vector<std::string> inputs = RandomInputs(module->manifest, 5);
    const auto outputs = RunModule(*module, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectScores((*outputs)[0], Expected(*forest, inputs[0]));
  }
}

// The deepest trees become a program whose text can be read again, and which the interpreter runs. (To schedule it takes half
// a minute: each step of a schedule looks through all levels.)
TEST(DeepForest, TheDeepestTreesAreAProgram) {
  constexpr int kLevels = classical::kMostDepth;
  constexpr int64_t kRows = 9;
  const std::string text = Chains(2, kLevels);
  const auto forest = classical::ReadForest(text);
  ASSERT_TRUE(forest.ok()) << forest.status();
  const auto fused = PrepareModel(text, WithRows(kRows));
  ASSERT_TRUE(fused.ok()) << fused.status();
  for (const graph::Group& group : fused->groups) {
    const auto program = ir::Parse(group.workload);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(ir::Print(*program), group.workload);
  }
  const std::string input = RandomFloats(kRows * kFeatures * 4, 5);
  const auto outputs = InterpretModel(text, WithRows(kRows), {input});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectScores((*outputs)[0], Expected(*forest, input));
  EXPECT_FALSE(classical::ReadForest(Chains(1, kLevels + 1)).ok());
}

}  // namespace
}  // namespace heddle
