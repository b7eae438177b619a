// The plan of a model is chosen by the times of kernels: what they say is followed, and what they do not
// say is not claimed.
#include "compiler/driver/choose_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "client/zoo/zoo.h"
#include "compiler/graph/core/operator.h"

namespace heddle {
namespace {

Target X86() { return *ParseTarget("llvm -mcpu=skylake-avx512"); }

// Times of all kernels of all contenders without records, made by `ns`.
template <typename Ns>
std::map<std::string, double> Measure(const std::string& onnx, const Ns& ns) {
  std::map<std::string, double> measured;
  const auto survey = ChoosePlan(onnx, {}, X86(), {});
  if (!survey.ok()) return {};
  for (const Contender& contender : survey->contenders) {
    for (const graph::Task& task : contender.tasks) measured[task.key] = ns(task);
  }
  return measured;
}

const Contender* Find(const PlanChoice& choice, const std::string& name) {
  for (const Contender& contender : choice.contenders) {
    if (contender.name == name) return &contender;
  }
  return nullptr;
}

TEST(ChoosePlan, WithoutRecordsTheEstimatedPlanStays) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto choice = ChoosePlan(onnx, {}, X86(), {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->chosen, 0u);
  EXPECT_EQ(choice->error.kernels, 0);
  EXPECT_GE(choice->contenders.size(), 4u);
  plan::Plan estimated;
  ASSERT_TRUE(PrepareModel(onnx, {}, X86(), {}, &estimated).ok());
  EXPECT_EQ(choice->best().plan, estimated);
}

// Each contender's plan replays to the tasks that it says it has.
TEST(ChoosePlan, ContendersReplay) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto measured = Measure(onnx, [](const graph::Task& task) {
    return 1000 + task.flops / 50 * (task.label.size() % 3 + 1);
  });
  const auto choice = ChoosePlan(onnx, {}, X86(), measured);
  ASSERT_TRUE(choice.ok()) << choice.status();
  for (const Contender& contender : choice->contenders) {
    const auto fused = PrepareModel(onnx, {}, X86(), contender.plan);
    ASSERT_TRUE(fused.ok()) << contender.name << ": " << fused.status();
    const auto tasks = graph::ExtractTasks(*fused);
    ASSERT_EQ(tasks.size(), contender.tasks.size()) << contender.name;
    for (size_t i = 0; i < tasks.size(); ++i) {
      EXPECT_EQ(tasks[i].key, contender.tasks[i].key) << contender.name;
      EXPECT_EQ(tasks[i].weight, contender.tasks[i].weight) << contender.name;
    }
  }
}

// Whatever layout is the fastest everywhere is taken everywhere.
TEST(ChoosePlan, TheFastestLayoutIsTaken) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto survey = ChoosePlan(onnx, {}, X86(), {});
  ASSERT_TRUE(survey.ok());
  for (const std::string layout : {"channels_first", "channels_last", "channels_blocked"}) {
    const Contender* uniform = Find(*survey, layout + " everywhere");
    if (uniform == nullptr) continue;  // is the estimated one
    std::map<std::string, double> measured;
    for (const Contender& contender : survey->contenders) {
      for (const graph::Task& task : contender.tasks) measured[task.key] = 2e6;
    }
    for (const graph::Task& task : uniform->tasks) measured[task.key] = 1e4;
    const auto choice = ChoosePlan(onnx, {}, X86(), measured);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_LE(choice->best().cost.ns, 1.01 * 1e4 * uniform->cost.calls) << layout;
  }
}

// Kernels whose parts are faster than the whole are cut, and no others.
TEST(ChoosePlan, SlowKernelsAreCut) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto estimated = PrepareModel(onnx, {}, X86());
  ASSERT_TRUE(estimated.ok());
  // One kernel of several operators is slow.
  const auto slow = std::find_if(estimated->groups.begin(), estimated->groups.end(),
                                 [](const graph::Group& group) { return group.nodes.size() > 1; });
  ASSERT_NE(slow, estimated->groups.end());
  const auto time = [&](const graph::Task& task) { return task.key == slow->key ? 1e7 : 1e5; };
  const auto choice = ChoosePlan(onnx, {}, X86(), Measure(onnx, time));
  ASSERT_TRUE(choice.ok()) << choice.status();
  const auto fused = PrepareModel(onnx, {}, X86(), choice->best().plan);
  ASSERT_TRUE(fused.ok());
  for (const graph::Group& group : fused->groups) EXPECT_NE(group.key, slow->key);
  // Where the kernels of the estimated plan are the fastest, nothing is cut.
  std::set<std::string> fast;
  for (const graph::Group& group : estimated->groups) fast.insert(group.key);
  const auto best = [&](const graph::Task& task) { return fast.contains(task.key) ? 1e5 : 1e6; };
  const auto whole = ChoosePlan(onnx, {}, X86(), Measure(onnx, best));
  ASSERT_TRUE(whole.ok());
  EXPECT_TRUE(whole->best().plan.separate.empty());
  EXPECT_LE(whole->best().cost.ns, whole->contenders[0].cost.ns);
}

// No contender is better than the chosen one by more than is uncertain, and none is chosen that is not
// surely better than the first.
TEST(ChoosePlan, UncertainGainsAreNotTaken) {
  const std::string onnx = *zoo::MakeZooModel("mobilenet_v1", 0);
  const auto all = Measure(onnx, [](const graph::Task& task) {
    return 1000 + task.flops / 40 * (task.label.size() % 5 + 1);
  });
  for (const size_t share : {1, 3, 9}) {
    std::map<std::string, double> measured;
    size_t i = 0;
    for (const auto& [key, ns] : all) {
      if (i++ % share == 0) measured[key] = ns;
    }
    const auto choice = ChoosePlan(onnx, {}, X86(), measured, {.evaluations = 20});
    ASSERT_TRUE(choice.ok()) << choice.status();
    const PlanCost &first = choice->contenders[0].cost, &best = choice->best().cost;
    if (choice->chosen != 0) {
      EXPECT_LT(best.ns + best.spread_ns, first.ns);
    }
    if (share > 1) continue;
    EXPECT_EQ(best.measured, best.calls);
    for (const Contender& contender : choice->contenders) {
      if (contender.cost.spread_ns == 0) {
        EXPECT_LE(best.ns, contender.cost.ns * 1.002);
      }
    }
  }
}

}  // namespace
}  // namespace heddle
