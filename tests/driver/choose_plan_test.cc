// The plan of a model is chosen by the times of kernels: what they say is followed, and what they do not
// say is not claimed.
#include "compiler/driver/choose_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "client/zoo/zoo.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "tests/driver/onnx_models.h"
#include "tests/driver/run_model.h"
#include "tests/graph/random_graph.h"

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
  EXPECT_FALSE(choice->layouts.has_value());
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
  const auto choice = ChoosePlan(onnx, {}, X86(), measured, {.graphs = 50});
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
    if (contender.cost.measured < contender.cost.calls) continue;
    double alone = 0, saved = 0;
    for (const graph::Task& task : tasks) alone += task.weight * measured.at(task.key);
    for (const auto& [key, ns] : contender.cost.saved_ns) {
      EXPECT_GT(ns, 0);
      saved += ns;
    }
    EXPECT_NEAR(contender.cost.ns + saved, alone, 1e-6 * alone);
  }
}

// Where all kernels of one layout are fast, the contender with the layouts by costs of kernels costs what that layout costs.
TEST(ChoosePlan, LayoutsFollowTheTimesOfKernels) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto survey = ChoosePlan(onnx, {}, X86(), {});
  ASSERT_TRUE(survey.ok()) << survey.status();
  for (const char* name : {"channels_first everywhere", "channels_last everywhere"}) {
    const Contender* fast = Find(*survey, name);
    if (fast == nullptr) continue;  // it is the estimated plan
    std::map<std::string, double> measured;
    for (const Contender& contender : survey->contenders) {
      for (const graph::Task& task : contender.tasks) measured[task.key] = 1e6;
    }
    for (const graph::Task& task : fast->tasks) measured[task.key] = 1e3;
    const auto choice = ChoosePlan(onnx, {}, X86(), measured, {.graphs = 0});
    ASSERT_TRUE(choice.ok()) << choice.status();
    ASSERT_TRUE(choice->layouts.has_value());
    EXPECT_LE(choice->contenders[*choice->layouts].cost.ns, 1.1 * Find(*choice, name)->cost.ns)
        << name;
  }
}

// What two plans save alike makes no difference between them.
TEST(ChoosePlan, WhatBothPlansSaveIsWrongInBoth) {
  const PlanCost cost{.ns = 100, .spread_ns = 3, .saved_ns = {{"a", 50}, {"b", 8}}};
  EXPECT_DOUBLE_EQ(SpreadNs(cost, {.spread_ns = 7, .saved_ns = {{"a", 50}, {"b", 8}}}), 3);
  EXPECT_DOUBLE_EQ(SpreadNs(cost, {.saved_ns = {{"a", 50}}}), 5);
  EXPECT_DOUBLE_EQ(SpreadNs(cost, {.saved_ns = {{"a", 50}, {"c", 8}}}), std::sqrt(9 + 16 + 16));
  EXPECT_DOUBLE_EQ(SpreadNs(cost), std::sqrt(9 + 16 + 625));
}

// A contender with tasks of these keys.
Contender With(double ns, const std::vector<std::string>& keys) {
  Contender contender;
  contender.cost.ns = ns;
  for (const std::string& key : keys) contender.tasks.push_back({.key = key, .weight = 1});
  return contender;
}

// Beside the estimated plan, the chosen one is tuned, or the best of those that come near.
TEST(ChoosePlan, TheEstimatedPlanIsTunedBesideTheBestOther) {
  PlanChoice choice;
  int runner_up = -1;
  const auto tuned = [&] {
    const PlansToTune tune = WhatToTune(choice);
    const auto place = [&](const Contender* one) {
      return one == nullptr ? -1 : static_cast<int>(one - choice.contenders.data());
    };
    runner_up = place(tune.runner_up);
    return std::pair(place(tune.plan), place(tune.estimated));
  };
  choice.contenders = {With(150, {"a", "b"}), With(100, {"a", "c"}), With(101, {"a", "d"})};
  choice.chosen = 1;
  EXPECT_EQ(tuned(), std::pair(1, 0)) << "the module is judged by the estimated plan";
  EXPECT_EQ(runner_up, 2);
  choice.contenders = {With(100, {"a", "b"}), With(101, {"b", "a"}), With(109, {"d"}),
                       With(105, {"a", "c"}), With(111, {"e"})};
  choice.chosen = 0;
  EXPECT_EQ(tuned(), std::pair(3, 0)) << "one before has no kernel of its own";
  EXPECT_EQ(runner_up, 2);
  choice.contenders = {With(100, {"a"}), With(111, {"b"})};
  EXPECT_EQ(tuned(), std::pair(0, -1)) << "it costs more than tuning makes up for";
  EXPECT_EQ(runner_up, -1);
  choice.contenders = {With(150, {"a"}), With(100, {"a", "c"})};
  choice.chosen = 1;
  EXPECT_EQ(tuned(), std::pair(1, -1)) << "all kernels of the estimated plan are tuned anyway";
  EXPECT_EQ(runner_up, -1);
  // The runner-up adds something to both plans, comes near, and is the cheapest such one.
  choice.contenders = {With(150, {"a", "b"}), With(100, {"a", "c"}), With(101, {"b", "c"}),
                       With(111, {"d"}),      With(108, {"b", "e"}), With(105, {"c", "f"})};
  choice.chosen = 1;
  EXPECT_EQ(tuned(), std::pair(1, 0));
  EXPECT_EQ(runner_up, 5);
  choice.contenders = {With(100, {"a"}), With(100, {"b"})};
  choice.chosen = 0;
  EXPECT_EQ(tuned(), std::pair(1, 0));
  choice.contenders[0].plan.forests["trees"] = {};
  EXPECT_EQ(tuned(), std::pair(0, -1)) << "forms of trees differ by more";
}

// After tuning, a plan counts only with kernels that were measured. The plan that was tuned is there in any case.
TEST(ChoosePlan, AfterTuningPredictionsDecideNothing) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto survey = ChoosePlan(onnx, {}, X86(), {});
  ASSERT_TRUE(survey.ok());
  // All but one kernel of a uniform plan are known, and all of them are fast.
  const auto other =
      std::find_if(survey->contenders.begin() + 1, survey->contenders.end(), [](const auto& one) {
        return one.name == "channels_first everywhere" || one.name == "channels_last everywhere";
      });
  ASSERT_NE(other, survey->contenders.end());
  std::set<std::string> estimated;
  for (const graph::Task& task : survey->contenders[0].tasks) estimated.insert(task.key);
  std::map<std::string, double> measured;
  for (const std::string& key : estimated) measured[key] = 1e6;
  const graph::Task* unknown = nullptr;
  for (const graph::Task& task : other->tasks) {
    if (estimated.contains(task.key)) continue;
    measured[task.key] = 1e4;
    unknown = &task;
  }
  ASSERT_NE(unknown, nullptr);
  measured.erase(unknown->key);
  PlanSearch search{.evaluations = 0, .graphs = 0};
  const auto before = ChoosePlan(onnx, {}, X86(), measured, search);
  ASSERT_TRUE(before.ok());
  EXPECT_LT(before->best().cost.measured, before->best().cost.calls) << "it is surely faster";
  search.tuned = survey->contenders[0].plan;
  const auto after = ChoosePlan(onnx, {}, X86(), measured, search);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->best().cost.measured, after->best().cost.calls);
  // The tuned plan may have a kernel of which every trial failed. And nothing else makes this one.
  search.tuned = before->best().plan;
  search.tuned->separate.insert("no such value");
  const auto kept = ChoosePlan(onnx, {}, X86(), measured, search);
  ASSERT_TRUE(kept.ok());
  EXPECT_NE(Find(*kept, "the job's until now"), nullptr);
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
    const auto choice = ChoosePlan(onnx, {}, X86(), measured, {.graphs = 20});
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
  const auto choice = ChoosePlan(onnx, {}, X86(), Measure(onnx, time), {.graphs = 20});
  ASSERT_TRUE(choice.ok()) << choice.status();
  const auto fused = PrepareModel(onnx, {}, X86(), choice->best().plan);
  ASSERT_TRUE(fused.ok());
  for (const graph::Group& group : fused->groups) EXPECT_NE(group.key, slow->key);
  // Where the kernels of the estimated plan are the fastest, nothing is cut.
  std::set<std::string> fast;
  for (const graph::Group& group : estimated->groups) fast.insert(group.key);
  const auto best = [&](const graph::Task& task) { return fast.contains(task.key) ? 1e5 : 1e6; };
  const auto whole = ChoosePlan(onnx, {}, X86(), Measure(onnx, best), {.graphs = 20});
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
    const auto choice = ChoosePlan(onnx, {}, X86(), measured, {.evaluations = 20, .graphs = 20});
    ASSERT_TRUE(choice.ok()) << choice.status();
    const PlanCost &first = choice->contenders[0].cost, &best = choice->best().cost;
    if (choice->chosen != 0) {
      EXPECT_LT(best.ns + best.spread_ns, first.ns);
    }
    if (share > 1) continue;
    EXPECT_EQ(first.measured, first.calls);
    for (const Contender& contender : choice->contenders) {
      if (contender.cost.spread_ns == 0) {
        EXPECT_LE(best.ns, contender.cost.ns * 1.002);
      }
    }
  }
}

// y = relu(conv(x, v) + conv(x, w)), which is relu(conv(x, v + w)).
std::string TwoConvolutions() {
  onnx::ModelProto m;
  m.set_ir_version(9);
  m.add_opset_import()->set_version(20);
  onnx::GraphProto& g = *m.mutable_graph();
  const auto value = [](onnx::ValueInfoProto* v, const char* name) {
    v->set_name(name);
    auto* type = v->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    for (const int64_t extent : {1, 16, 14, 14})
      type->mutable_shape()->add_dim()->set_dim_value(extent);
  };
  value(g.add_input(), "x");
  value(g.add_output(), "y");
  for (const char* name : {"v", "w"}) {
    onnx::TensorProto& t = *g.add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::FLOAT);
    for (const int64_t extent : {16, 16, 3, 3}) t.add_dims(extent);
    for (int i = 0; i < 16 * 16 * 9; ++i) t.add_float_data(0.01F * static_cast<float>(i % 17 - 8));
  }
  const auto node = [&](const char* op, std::vector<std::string> inputs, const char* output) {
    onnx::NodeProto& n = *g.add_node();
    n.set_op_type(op);
    n.set_name(output);
    for (const std::string& input : inputs) n.add_input(input);
    n.add_output(output);
    return &n;
  };
  for (const auto& [w, y] : {std::pair("v", "a"), std::pair("w", "b")}) {
    onnx::AttributeProto& pads = *node("Conv", {"x", w}, y)->add_attribute();
    pads.set_name("pads");
    pads.set_type(onnx::AttributeProto::INTS);
    for (int i = 0; i < 4; ++i) pads.add_ints(1);
  }
  node("Add", {"a", "b"}, "sum");
  node("Relu", {"sum"}, "y");
  return m.SerializeAsString();
}

// Where every kernel takes the same time, the graph with fewer kernels is the fastest.
TEST(ChoosePlan, GraphsAreSubstituted) {
  const std::string onnx = TwoConvolutions();
  std::map<std::string, double> measured = Measure(onnx, [](const graph::Task&) { return 1e5; });
  ASSERT_FALSE(measured.empty());
  PlanChoice choice;
  // What the search finds is measured, and it is asked again.
  for (int round = 0; round < 3; ++round) {
    auto next = ChoosePlan(onnx, {}, X86(), measured);
    ASSERT_TRUE(next.ok()) << next.status();
    choice = *std::move(next);
    for (const Contender& contender : choice.contenders) {
      for (const graph::Task& task : contender.tasks) measured.emplace(task.key, 1e5);
    }
  }
  const Contender& best = choice.best();
  EXPECT_FALSE(best.plan.substitutions.empty());
  EXPECT_LT(best.cost.calls, choice.contenders[0].cost.calls);
  // It replays, also from its text, and computes the same.
  const auto parsed = plan::ParsePlan(plan::ToText(best.plan));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto fused = PrepareModel(onnx, {}, X86(), *parsed);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(static_cast<int>(fused->groups.size()), best.cost.calls);
  const auto plain = PrepareModel(onnx, {}, X86());
  ASSERT_TRUE(plain.ok()) << plain.status();
  graph::TestRng rng(1);
  const auto inputs = graph::RandomInputs(rng, plain->graph);
  EXPECT_LE(graph::Difference(*graph::EvaluateGraph(plain->graph, inputs),
                              *graph::EvaluateGraph(fused->graph, inputs)),
            1e-5);
}

// One convolution needs less memory than two. Where no other graph fits, it is taken although its kernel is the slowest.
TEST(ChoosePlan, WhatNeedsTooMuchMemoryIsNotTaken) {
  const std::string onnx = TwoConvolutions();
  const auto measured = Measure(onnx, [](const graph::Task&) { return 1e4; });
  ASSERT_FALSE(measured.empty());
  const auto free = ChoosePlan(onnx, {}, X86(), measured);
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_TRUE(free->refused.empty());
  int64_t least = graph::kAnyBytes;  // of the given graph, however it is laid out and fused
  for (const Contender& contender : free->contenders) {
    EXPECT_TRUE(contender.fits);
    if (contender.plan.substitutions.empty()) least = std::min(least, contender.cost.memory_bytes);
  }
  PlanSearch search;
  search.memory_bytes = least - 1;
  PlanChoice bounded;
  std::map<std::string, double> slow = measured;
  for (int round = 0; round < 3; ++round) {
    auto next = ChoosePlan(onnx, {}, X86(), slow, search);
    ASSERT_TRUE(next.ok()) << next.status();
    bounded = *std::move(next);
    EXPECT_FALSE(bounded.best().plan.substitutions.empty());
    for (const Contender& contender : bounded.contenders) {
      for (const graph::Task& task : contender.tasks) slow.emplace(task.key, 1e7);
    }
  }
  ASSERT_GT(bounded.contenders.size(), 1u);
  for (size_t i = 0; i < bounded.contenders.size(); ++i) {
    const Contender& contender = bounded.contenders[i];
    EXPECT_EQ(contender.fits, i > 0) << contender.name;
    EXPECT_EQ(contender.fits, contender.cost.memory_bytes <= search.memory_bytes);
  }
  EXPECT_FALSE(bounded.refused.empty());
  EXPECT_EQ(WhatToTune(bounded).estimated, nullptr);
  // Where nothing fits, the estimated plan stays.
  search.memory_bytes = 1;
  const auto nothing = ChoosePlan(onnx, {}, X86(), measured, search);
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_EQ(nothing->contenders.size(), 1u);
  EXPECT_EQ(nothing->chosen, 0u);
}

// A product of two transposed operands: one kernel that reads them by columns, or three.
void CheckColumns(const std::string& onnx) {
  const auto survey = ChoosePlan(onnx, {}, X86(), {});
  ASSERT_TRUE(survey.ok()) << survey.status();
  const Contender* joined = Find(*survey, "estimated, matrices by columns");
  ASSERT_NE(joined, nullptr);
  EXPECT_EQ(joined->plan.columns.size(), 2u);
  ASSERT_EQ(joined->tasks.size(), 1u);
  EXPECT_EQ(survey->contenders[0].cost.calls, 3);
  for (const bool fast : {true, false}) {
    std::map<std::string, double> measured = Measure(onnx, [&](const graph::Task&) { return 1e5; });
    measured[joined->tasks[0].key] = fast ? 1e4 : 1e6;
    const auto choice = ChoosePlan(onnx, {}, X86(), measured, {.graphs = 0});
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->best().plan.columns, fast ? joined->plan.columns : std::set<std::string>{});
    plan::Plan followed;
    const auto fused = PrepareModel(onnx, {}, X86(),
                                    *plan::ParsePlan(plan::ToText(choice->best().plan)), &followed);
    ASSERT_TRUE(fused.ok()) << fused.status();
    EXPECT_EQ(followed, choice->best().plan);
    EXPECT_EQ(fused->groups.size(), fast ? 1u : 3u);
    // The module computes the same whatever the schedule.
    for (const ScheduleChoice schedule : {ScheduleChoice::kNaive, ScheduleChoice::kDefault}) {
      CompileOptions compile;
      compile.choice = schedule;
      compile.plan = choice->best().plan;
      const auto bytes = CompileModel(onnx, {}, {}, {}, compile);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      const runtime::Module module = *runtime::ParseModule(*bytes);
      const std::vector<std::string> inputs = RandomInputs(module.manifest, 3);
      const auto expected = InterpretModel(onnx, {}, inputs);
      const auto found = RunModule(module, inputs);
      ASSERT_TRUE(expected.ok() && found.ok()) << expected.status() << found.status();
      EXPECT_LE(RelativeError((*found)[0], (*expected)[0]), 1e-5);
    }
  }
}

TEST(ChoosePlan, MatricesAreReadByColumnsWhereThatCostsLess) {
  using Shape = std::vector<int64_t>;
  // The second one is a batch of products, whose dimensions all change places.
  for (const auto& [left, right, result] :
       {std::tuple(Shape{40, 24}, Shape{56, 40}, Shape{24, 56}),
        std::tuple(Shape{6, 10, 4, 2}, Shape{7, 6, 4, 2}, Shape{2, 4, 10, 7})}) {
    CheckColumns(OnnxModel()
                     .Input("a", left)
                     .Input("b", right)
                     .Output("y", result)
                     .Node("Transpose", {"a"}, {"left"})
                     .Node("Transpose", {"b"}, {"right"})
                     .Node("MatMul", {"left", "right"}, {"y"})
                     .Bytes());
  }
}

// What the time limit cuts short is said.
TEST(ChoosePlan, ASearchThatIsTimedOutSaysSo) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto measured = Measure(onnx, [](const graph::Task&) { return 1000; });
  PlanSearch search{.graphs = 20, .threads = 2, .time_limit = absl::ZeroDuration()};
  const auto cut_short = ChoosePlan(onnx, {}, X86(), measured, search);
  ASSERT_TRUE(cut_short.ok()) << cut_short.status();
  EXPECT_TRUE(cut_short->timed_out);
  const std::string text = TimedOutText(*cut_short, search);
  EXPECT_NE(text.find("ended after 0 with"), std::string::npos) << text;
  EXPECT_NE(text.find("of at most 40"), std::string::npos) << text;
  EXPECT_NE(text.find("--plan sequential"), std::string::npos) << text;
  EXPECT_EQ(TimedOutText(PlanChoice(), search), "");
}

// What one job learns of kernels tells another one what they cost.
TEST(ChoosePlan, ExperienceTellsCosts) {
  const std::string onnx = *zoo::MakeZooModel("squeezenet", 0);
  const auto all = Measure(onnx, [](const graph::Task& task) {
    return 1000 + task.flops / 50 * (task.label.size() % 3 + 1);
  });
  const PlanSearch off = {.mode = PlanSearch::Mode::kOff};
  const auto earlier = ChoosePlan(onnx, {}, X86(), all, off);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  EXPECT_EQ(earlier->experience.kernels, 0);
  EXPECT_EQ(earlier->learned.size(), static_cast<size_t>(earlier->error.kernels));
  std::map<std::string, double> some;
  size_t i = 0;
  for (const auto& [key, ns] : all) {
    if (i++ % 8 == 0) some[key] = ns;
  }
  const auto alone = ChoosePlan(onnx, {}, X86(), some, off);
  const auto told = ChoosePlan(onnx, {}, X86(), some, off, {earlier->learned, {}});
  ASSERT_TRUE(alone.ok() && told.ok());
  const double truth = earlier->best().cost.ns;
  EXPECT_NEAR(told->best().cost.ns, truth, 1e-6 * truth);
  EXPECT_GT(std::abs(alone->best().cost.ns - truth), 1e-3 * truth);
  EXPECT_EQ(told->experience.kernels, static_cast<int>(told->learned.size()));
  EXPECT_LT(told->learned.size(), earlier->learned.size()) << "only what it measured itself";
}

TEST(ChoosePlan, AnUnknownRuleIsNamed) {
  plan::Plan plan;
  plan.substitutions.push_back({"no such rule", 0, {"a"}});
  const auto fused = PrepareModel(*zoo::MakeZooModel("mlp", 0), {}, X86(), plan);
  EXPECT_EQ(fused.status().message(),
            "no rule 'no such rule'; the plan was made by another version");
}

}  // namespace
}  // namespace heddle
