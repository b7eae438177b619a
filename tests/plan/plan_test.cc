// Plans: their text, and that a model with the same plan always becomes the same kernels.
#include "compiler/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "client/zoo/zoo.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/model_layout.h"

namespace heddle::plan {
namespace {

using graph::Layout;

// ---- The text ----

std::string RandomName(std::mt19937_64& rng) {
  static constexpr char kCharacters[] = "ab/ \"\\\n\t%.:\xc3\xa9\x01-";
  std::string name;
  for (uint64_t i = rng() % 12; i > 0; --i)
    name.push_back(kCharacters[rng() % (sizeof(kCharacters) - 1)]);
  return name;
}

Plan RandomPlan(std::mt19937_64& rng) {
  Plan plan;
  for (uint64_t i = rng() % 4; i > 0; --i) {
    Substitution& s = plan.substitutions.emplace_back();
    s.rule = RandomName(rng);
    s.way = static_cast<int>(rng() % 3);
    for (uint64_t n = rng() % 4; n > 0; --n) s.nodes.push_back(RandomName(rng));
  }
  if (rng() % 3 != 0) {
    plan.layouts.emplace().block = static_cast<int64_t>(rng() % 2 * 16);
    for (uint64_t i = rng() % 5; i > 0; --i)
      plan.layouts->of[RandomName(rng)] = graph::kLayouts[rng() % 3];
  }
  for (uint64_t i = rng() % 4; i > 0; --i) plan.separate.insert(RandomName(rng));
  for (uint64_t i = rng() % 4; i > 0; --i) plan.columns.insert(RandomName(rng));
  for (uint64_t i = rng() % 3; i > 0; --i)
    plan.forests[RandomName(rng)] = graph::kForestForms[rng() % std::size(graph::kForestForms)];
  return plan;
}

TEST(PlanText, RoundTripsWhateverTheNames) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 500; ++i) {
    const Plan plan = RandomPlan(rng);
    const auto parsed = ParsePlan(ToText(plan));
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << ToText(plan);
    EXPECT_EQ(*parsed, plan) << ToText(plan);
    EXPECT_EQ(ToText(*parsed), ToText(plan));
  }
}

// Of several plans, the first one is the plan.
TEST(PlanText, PlansFollowEachOther) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 100; ++i) {
    const std::vector<Plan> plans = {RandomPlan(rng), {}, RandomPlan(rng)};
    const std::string text = ToText(plans[0]) + ToText(plans[1]) + ToText(plans[2]);
    const auto parsed = ParsePlans(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
    EXPECT_EQ(*parsed, plans) << text;
    EXPECT_EQ(*ParsePlan(text), plans[0]);
  }
}

TEST(PlanText, ErrorsNameTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "first line"},
      {"plan 1\nforest oak \"a\"\n", "line 2 of the plan: no form of a forest is called 'oak'"},
      {"plan 1\nforest walk \"a\"\nforest select \"a\"\n",
       "line 3 of the plan: the forest has two forms"},
      {"plan 2\n", "first line"},
      {"plan 1\nturn \"a\"\n", "line 2 of the plan: 'turn'"},
      {"plan 1\nblock 4\nplan 1\nturn \"a\"\n", "line 4 of the plan: 'turn'"},
      {"plan 1\nlayout channels_last \"a\"\n", "block comes before"},
      {"plan 1\nblock 1\n", "at least 2"},
      {"plan 1\nblock 4\nblock 4\n", "line 3 of the plan: there are two blocks"},
      {"plan 1\nblock 0\nlayout upside_down \"a\"\n", "no layout is called 'upside_down'"},
      {"plan 1\nblock 0\nlayout channels_last a\n", "a name in double quotes"},
      {"plan 1\nseparate \"a\n", "a name does not end"},
      {"plan 1\nseparate \"a\\\n", "a name does not end"},
      {"plan 1\nseparate \"a\\q\"\n", "line 2"},
      {"plan 1\nseparate \"a\" \"b\"\n", "goes on behind its end"},
      {"plan 1\ncolumns a\n", "line 2 of the plan: a name in double quotes"},
      {"plan 1\nblock 0\nlayout channels_last \"a\"\nlayout channels_first \"a\"\n", "two layouts"},
  };
  for (const auto& [text, message] : cases) {
    const auto parsed = ParsePlan(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(parsed.status().message().find(message), std::string::npos)
        << text << ": " << parsed.status();
  }
}

TEST(PlanText, DamagedTextIsAPlanOrAnError) {
  std::mt19937_64 rng(2);
  for (int i = 0; i < 2000; ++i) {
    std::string text = ToText(RandomPlan(rng));
    for (uint64_t changes = 1 + rng() % 3; changes > 0; --changes)
      text[rng() % text.size()] = static_cast<char>(rng());
    const auto parsed = ParsePlan(text);
    if (parsed.ok()) {
      EXPECT_EQ(*ParsePlan(ToText(*parsed)), *parsed);
    }
  }
}

// ---- Replay ----

std::vector<std::string> Keys(const graph::FusedGraph& fused) {
  std::vector<std::string> keys;
  for (const graph::Group& group : fused.groups) keys.push_back(group.key);
  return keys;
}

const Target& Avx512() {
  static const auto* target = new Target(*ParseTarget("llvm -mcpu=skylake-avx512"));
  return *target;
}

TEST(PlanReplay, ACompletePlanGivesTheKernelsThatItWasMadeWith) {
  for (const char* model : {"mobilenet_v2", "squeezenet", "lstm_lm"}) {
    const std::string onnx = *zoo::MakeZooModel(model, 0);
    Plan complete;
    const auto open = PrepareModel(onnx, {}, Avx512(), {}, &complete);
    ASSERT_TRUE(open.ok()) << open.status();
    ASSERT_TRUE(complete.layouts.has_value());
    // The plan decides, and not the target whose estimates made it.
    const Target other = *ParseTarget("llvm -mcpu=skylake-avx512 -threads=2");
    Plan again;
    const auto replayed = PrepareModel(onnx, {}, other, *ParsePlan(ToText(complete)), &again);
    ASSERT_TRUE(replayed.ok()) << replayed.status();
    EXPECT_EQ(Keys(*replayed), Keys(*open)) << model;
    EXPECT_EQ(again, complete) << model;
    if (std::string(model) == "mobilenet_v2") {
      EXPECT_NE(Keys(*PrepareModel(onnx, {}, other)), Keys(*open));
    }
  }
}

TEST(PlanReplay, LayoutsAreThoseOfThePlan) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  Plan complete;
  ASSERT_TRUE(PrepareModel(onnx, {}, Avx512(), {}, &complete).ok());
  std::mt19937_64 rng(3);
  for (int i = 0; i < 5; ++i) {
    Plan mixed = complete;
    mixed.layouts->block = 0;
    for (auto& [node, layout] : mixed.layouts->of)
      layout = rng() % 2 ? Layout::kChannelsLast : Layout::kChannelsFirst;
    Plan followed;
    const auto fused = PrepareModel(onnx, {}, Avx512(), mixed, &followed);
    ASSERT_TRUE(fused.ok()) << fused.status();
    std::erase_if(mixed.layouts->of,
                  [](const auto& of) { return of.second == Layout::kChannelsFirst; });
    EXPECT_EQ(followed, mixed);
  }
}

TEST(PlanReplay, ASeparateValueIsAKernelsResult) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  Plan complete;
  const auto fused = PrepareModel(onnx, {}, Avx512(), {}, &complete);
  ASSERT_TRUE(fused.ok()) << fused.status();
  const auto inner = [](const graph::FusedGraph& of, const std::string& name) {
    return std::none_of(of.groups.begin(), of.groups.end(), [&](const graph::Group& group) {
      return std::any_of(group.outputs.begin(), group.outputs.end(), [&](graph::ValueId v) {
        return of.graph.values[static_cast<size_t>(v)].name == name;
      });
    });
  };
  int tried = 0;
  for (const graph::Group& group : fused->groups) {
    const graph::ValueId v = fused->graph.nodes[static_cast<size_t>(group.nodes[0])].outputs[0];
    const std::string& name = fused->graph.values[static_cast<size_t>(v)].name;
    if (group.nodes.size() < 2 || !inner(*fused, name) || ++tried > 3) continue;
    Plan cut = complete;
    cut.separate.insert(name);
    Plan followed;
    const auto with = PrepareModel(onnx, {}, Avx512(), cut, &followed);
    ASSERT_TRUE(with.ok()) << with.status();
    EXPECT_FALSE(inner(*with, name)) << name;
    EXPECT_EQ(with->groups.size(), fused->groups.size() + 1);
    EXPECT_EQ(followed, cut);
  }
  EXPECT_GT(tried, 3);
}

TEST(PlanReplay, APlanOfAnotherModelIsRefused) {
  Plan complete;
  ASSERT_TRUE(PrepareModel(*zoo::MakeZooModel("squeezenet", 0), {}, Avx512(), {}, &complete).ok());
  const std::string dqn = *zoo::MakeZooModel("dqn", 0);
  EXPECT_EQ(PrepareModel(dqn, {}, Avx512(), complete).status().code(),
            absl::StatusCode::kInvalidArgument);
  Plan unknown;
  unknown.layouts.emplace().of["no such node"] = Layout::kChannelsLast;
  const auto refused = PrepareModel(dqn, {}, Avx512(), unknown).status();
  EXPECT_NE(refused.message().find("no such node"), std::string::npos) << refused;
}

}  // namespace
}  // namespace heddle::plan
