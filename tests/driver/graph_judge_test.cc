// Substitutions and layouts are chosen together: the search finds what trying every graph in every layout finds,
// and it is never worse than choosing one after the other.
#include "compiler/driver/graph_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/splitmix.h"
#include "compiler/driver/choose_plan.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/onnx/format/onnx_format.pb.h"
#include "compiler/substitution/rule_file.h"
#include "compiler/substitution/search.h"
#include "tests/graph/random_graph.h"

namespace heddle {
namespace {

using graph::Graph;
using graph::Layout;
using graph::OpKind;
using graph::ValueId;
using substitution::DirectedRule;

// Convolutions of a few images, with sums and maxima of them. All images have one shape. `weights`: how many
// convolutions may share; 0: each has its own.
Graph RandomImages(graph::TestRng& rng, int nodes, int64_t channels = 4, size_t weights = 0) {
  graph::GraphBuilder b;
  const graph::TensorType image{ir::DType::kF32, {1, channels, 5, 5}};
  std::vector<ValueId> shared;
  std::vector<ValueId> values{b.Input("x", image)};
  std::set<ValueId> read;
  const auto pick = [&] {
    const ValueId v = values[rng() % values.size()];
    read.insert(v);
    return v;
  };
  for (int i = 0; i < nodes; ++i) {
    const std::string name = absl::StrCat("n", i);
    switch (rng() % 5) {
      case 0:
      case 1:
      case 2: {
        if (weights == 0) shared.clear();
        if (shared.empty() || shared.size() < weights) {
          shared.push_back(b.Constant(
              "w", graph::RandomTensor(rng, {ir::DType::kF32, {channels, channels, 3, 3}})));
        }
        const ValueId w = shared[shared.size() > 1 ? rng() % shared.size() : 0];
        values.push_back(
            *b.Add(OpKind::kConv2d, {pick(), w}, {{"pads", graph::Shape{1, 1, 1, 1}}}, name));
        break;
      }
      case 3: {
        const ValueId left = pick(), right = pick();
        values.push_back(*b.Add(OpKind::kAdd, {left, right}, {}, name));
        break;
      }
      default:
        values.push_back(*b.Add(OpKind::kRelu, {pick()}, {}, name));
        break;
    }
  }
  std::vector<std::pair<std::string, ValueId>> outputs;
  for (const ValueId v : values) {
    if (b.IsNodeOutput(v) && !read.contains(v))
      outputs.emplace_back(absl::StrCat("y", outputs.size()), v);
  }
  return *b.Build(outputs);
}

std::vector<DirectedRule> MergeRules() {
  std::vector<substitution::Rule> rules;
  for (const char* text : {
           "add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(y, z))",
           "conv[s](x, y), conv[s](x, z) => split0[1](conv[s](x, concat[0](y, z))), "
           "split1[1](conv[s](x, concat[0](y, z)))",
           "add(conv[s](x, z), conv[s](y, z)) => conv[s](add(x, y), z)",
       })
    rules.push_back(*substitution::ParseRule(text));
  return substitution::Applicable(rules);
}

// Kernels are single operators, so the cost of a graph is a sum over its operators and transposes.
ModelOptions Unfused() {
  ModelOptions options;
  options.passes.layout.block = 0;
  options.fuse.enabled = false;
  return options;
}

// A transpose takes what the layout choice takes it for. Every other kernel has a time of its own.
double TimeOf(const graph::FusedGraph& fused, const graph::Group& group, uint64_t seed,
              const graph::LayoutCosts& estimates) {
  const graph::Node& node = fused.graph.nodes[static_cast<size_t>(group.nodes[0])];
  if (node.kind == OpKind::kTranspose) {
    return static_cast<double>(
        estimates.MoveNs(fused.graph.values[static_cast<size_t>(node.outputs[0])].type));
  }
  // The search merges two convolutions in one order only, so parts cost the same wherever they begin.
  const graph::ValueId part = node.outputs[0];
  const std::string kind =
      node.kind == OpKind::kSlice
          ? absl::StrCat("slice ",
                         graph::ToText(fused.graph.values[static_cast<size_t>(part)].type))
          : group.key;
  uint64_t h = seed;
  for (const char c : kind) h = SplitMix64(h ^ static_cast<uint64_t>(c));
  return static_cast<double>(100 + h % 3000);
}

struct Optimum {
  double ns = 0;
  double first_ns = 0;                     // of the given graph, all channels first
  std::map<std::string, double> measured;  // by key
};

// Tries every graph that the rules reach in all combinations of layouts. nullopt: there are too many.
std::optional<Optimum> Exhaustive(const Graph& start, const std::vector<DirectedRule>& rules,
                                  const ModelOptions& options, uint64_t seed, graph::FoldMemo* memo,
                                  graph::FuseMemo* programs) {
  constexpr size_t kMostGraphs = 8, kMostFree = 7;
  const graph::LayoutCosts estimates(options.passes.target);
  std::vector<Graph> graphs{start};
  std::set<std::string> seen{substitution::GraphDigest(start)};
  Optimum optimum;
  bool first = true;
  for (size_t i = 0; i < graphs.size(); ++i) {
    for (const DirectedRule& rule : rules) {
      for (const auto& place :
           substitution::Named(graphs[i], rule, substitution::FindMatches(graphs[i], rule))) {
        auto next = substitution::Substituted(graphs[i], rules, place, memo);
        if (!next.ok() || !seen.insert(substitution::GraphDigest(*next)).second) continue;
        graphs.push_back(*std::move(next));
        if (graphs.size() > kMostGraphs) return std::nullopt;
      }
    }
  }
  for (const Graph& graph : graphs) {
    std::vector<std::string> free;
    for (const graph::Node& node : graph.nodes) {
      if (graph::HasChannelsLastForm(graph, node)) free.push_back(node.name);
    }
    if (free.size() > kMostFree) return std::nullopt;
    for (uint64_t choice = 0; choice < uint64_t{1} << free.size(); ++choice) {
      graph::FixedLayouts fixed;
      for (size_t i = 0; i < free.size(); ++i) {
        if (choice >> i & 1) fixed.of[free[i]] = Layout::kChannelsLast;
      }
      graph::PassOptions passes = options.passes;
      passes.disabled.insert("merge-equal");  // it would rename what the layouts name
      passes.layout.fixed = &fixed;
      passes.memo = memo;
      const auto placed = graph::Place(graph, passes);
      EXPECT_TRUE(placed.ok()) << placed.status();
      if (!placed.ok()) return std::nullopt;
      graph::FuseOptions fuse = options.fuse;
      fuse.memo = programs;
      const auto fused = graph::Fuse(*placed, fuse);
      double sum = 0;
      for (const graph::Group& group : fused->groups) {
        const double ns = TimeOf(*fused, group, seed, estimates);
        optimum.measured[group.key] = ns;
        sum += ns;
      }
      if (first) optimum.ns = optimum.first_ns = sum;
      first = false;
      optimum.ns = std::min(optimum.ns, sum);
    }
  }
  return optimum;
}

TEST(JointSearch, FindsWhatAllGraphsInAllLayoutsGive) {
  const auto rules = MergeRules();
  ModelOptions options = Unfused();
  options.passes.disabled.insert("merge-equal");
  graph::FuseMemo programs;
  int cases = 0, substituted = 0, moved = 0;
  for (uint64_t seed = 0; cases < 200; ++seed) {
    ASSERT_LT(seed, 3000u);
    graph::TestRng rng(seed);
    const Graph graph = *graph::Simplify(RandomImages(rng, 4));
    graph::FoldMemo memo;
    const auto optimum = Exhaustive(graph, rules, options, seed, &memo, &programs);
    if (!optimum.has_value()) continue;
    ++cases;
    const plan::KernelCosts costs(options.passes.target, optimum->measured);
    internal::GraphJudge judge(options, costs, &memo, &programs);
    substitution::SearchOptions search;
    search.alpha = 10;
    search.all_alike = false;
    const auto cost = [&](const Graph& g, double limit) -> absl::StatusOr<double> {
      const auto judged = judge.Judge(g, true, limit);
      if (!judged.ok()) return judged.status();
      return judged->ns;
    };
    const auto found = substitution::Search(graph, rules, cost, &memo, search);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->exhausted);
    EXPECT_EQ(found->best[0].cost, optimum->ns) << "seed " << seed << "\n" << graph::Print(graph);
    substituted += !found->best[0].substitutions.empty();
    const auto judged = judge.Judge(found->best[0].graph, true);
    ASSERT_TRUE(judged.ok());
    moved += !judged->layouts.of.empty();
    // A bound is one.
    for (const auto& best : found->best) {
      const auto limited = judge.Judge(best.graph, true, 0);
      ASSERT_TRUE(limited.ok());
      EXPECT_TRUE(limited->ns <= best.cost || !limited->bounded);
    }
  }
  EXPECT_GT(substituted, 10);
  EXPECT_GT(moved, 20);
}

// With weights that several kernels read and with caches that hold some of them, a bound is still one, and a graph
// costs what its kernels cost in a model.
TEST(GraphJudge, WarmWeightsAreCounted) {
  int bounded = 0, saved = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    graph::TestRng rng(seed);
    ModelOptions options;
    options.passes.layout.block = seed % 2 == 0 ? 0 : 16;
    options.fuse.enabled = seed % 3 != 0;
    machine::GraphSpeed& speed = options.passes.target.graph_speed;
    speed.peak_gflops = seed % 5 == 0 ? 10 : 1e4;
    speed.l2_bytes = 4096 << (rng() % 5);
    speed.l3_bytes = rng() % 3 == 0 ? 0 : speed.l2_bytes << (rng() % 5);
    const Graph graph = *graph::Simplify(RandomImages(rng, 6, 16, rng() % 3));
    graph::FoldMemo memo;
    graph::FuseMemo programs;
    const plan::KernelCosts costs(options.passes.target, {});
    internal::GraphJudge judge(options, costs, &memo, &programs);
    const auto judged = judge.Judge(graph, true), limited = judge.Judge(graph, true, 0);
    ASSERT_TRUE(judged.ok()) << judged.status();
    ASSERT_TRUE(limited.ok()) << limited.status();
    EXPECT_LE(limited->ns, judged->ns) << "seed " << seed;
    bounded += limited->bounded;
    graph::PassOptions passes = options.passes;
    passes.layout.fixed = &judged->layouts;
    const auto fused = graph::Fuse(*graph::Place(graph, passes), options.fuse);
    ASSERT_TRUE(fused.ok()) << fused.status();
    std::vector<double> alone;
    for (const graph::Group& group : fused->groups) alone.push_back(costs.Of(*fused, group).ns);
    double sum = 0, sum_alone = 0;
    for (const double ns : plan::ReuseModel(options.passes.target).CostsNs(*fused, alone))
      sum += ns;
    for (const double ns : alone) sum_alone += ns;
    EXPECT_NEAR(judged->ns, sum, 1e-9 * sum) << "seed " << seed;
    saved += sum < 0.99 * sum_alone;
  }
  EXPECT_GT(bounded, 30);
  EXPECT_GT(saved, 10);
  EXPECT_LT(saved, 60);
}

TEST(GraphJudge, AGraphThatNeedsTooMuchMemoryCostsInfinitelyMuch) {
  int other = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    graph::TestRng rng(seed);
    ModelOptions options;
    options.passes.layout.block = 0;
    const Graph graph = *graph::Simplify(RandomImages(rng, 6, 16));
    graph::FoldMemo memo;
    graph::FuseMemo programs;
    const plan::KernelCosts costs(options.passes.target, {});
    const auto judge = [&](int64_t memory_bytes) {
      return *internal::GraphJudge(options, costs, &memo, &programs, memory_bytes)
                  .Judge(graph, true);
    };
    const auto free = judge(graph::kAnyBytes);
    graph::PassOptions passes = options.passes;
    passes.layout.fixed = &free.layouts;
    const int64_t needed = graph::InferenceBytes(*graph::Fuse(*graph::Place(graph, passes)));
    EXPECT_EQ(judge(needed).ns, free.ns) << "seed " << seed;
    EXPECT_GE(judge(needed - 1).ns, free.ns) << "seed " << seed;
    other += judge(needed - 1).ns > free.ns;
    EXPECT_EQ(judge(0).ns, internal::GraphJudge::kNoLimit) << "seed " << seed;
  }
  EXPECT_GT(other, 10);
}

// Convolutions and sums as a model.
std::string RandomModel(uint64_t seed) {
  SplitMix random(seed);
  onnx::ModelProto m;
  m.set_ir_version(9);
  m.add_opset_import()->set_version(20);
  onnx::GraphProto& g = *m.mutable_graph();
  const auto value = [](onnx::ValueInfoProto* v, const std::string& name) {
    v->set_name(name);
    auto* type = v->mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    for (const int64_t extent : {1, 16, 8, 8})
      type->mutable_shape()->add_dim()->set_dim_value(extent);
  };
  value(g.add_input(), "x");
  std::vector<std::string> values{"x"};
  std::set<std::string> read;
  const auto pick = [&] {
    const std::string name = values[random.Next() % values.size()];
    read.insert(name);
    return name;
  };
  for (int i = 0; i < 7; ++i) {
    onnx::NodeProto& n = *g.add_node();
    const std::string name = absl::StrCat("n", i);
    n.set_name(name);
    n.add_output(name);
    n.add_input(pick());
    const uint64_t kind = random.Next() % 6;
    if (kind < 4) {
      n.set_op_type("Conv");
      const int64_t extent = kind == 0 ? 1 : 3;
      onnx::TensorProto& w = *g.add_initializer();
      w.set_name(name + "/w");
      w.set_data_type(onnx::TensorProto::FLOAT);
      for (const int64_t e : {int64_t{16}, int64_t{16}, extent, extent}) w.add_dims(e);
      for (int64_t k = 0; k < 256 * extent * extent; ++k)
        w.add_float_data(static_cast<float>(random.Unit() - 0.5));
      n.add_input(name + "/w");
      onnx::AttributeProto& pads = *n.add_attribute();
      pads.set_name("pads");
      pads.set_type(onnx::AttributeProto::INTS);
      for (int k = 0; k < 4; ++k) pads.add_ints(extent / 2);
    } else if (kind == 4) {
      n.set_op_type("Add");
      n.add_input(pick());
    } else {
      n.set_op_type("Relu");
    }
    values.push_back(name);
  }
  for (const std::string& name : values) {
    if (!read.contains(name)) value(g.add_output(), name);
  }
  return m.SerializeAsString();
}

double Least(const PlanChoice& choice) {
  double least = choice.contenders[0].cost.ns;
  for (const Contender& contender : choice.contenders) least = std::min(least, contender.cost.ns);
  return least;
}

// What is searched together contains what is searched one after the other, and that contains the estimated plan.
TEST(JointSearch, IsNeverWorseThanOneAfterTheOther) {
  const Target target = *ParseTarget("llvm -mcpu=skylake-avx512");
  int sequential_gains = 0, joint_gains = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const std::string onnx = RandomModel(seed);
    const auto survey = ChoosePlan(onnx, {}, target, {});
    ASSERT_TRUE(survey.ok()) << survey.status();
    std::map<std::string, double> measured;
    for (const Contender& contender : survey->contenders) {
      for (const graph::Task& task : contender.tasks) {
        uint64_t h = seed;
        for (const char c : task.key) h = SplitMix64(h ^ static_cast<uint64_t>(c));
        measured[task.key] = (2000 + task.flops / 40) * (1 + 0.25 * static_cast<double>(h % 8));
      }
    }
    std::map<PlanSearch::Mode, double> least;
    std::string plan;
    for (const auto mode :
         {PlanSearch::Mode::kOff, PlanSearch::Mode::kSequential, PlanSearch::Mode::kJoint}) {
      PlanSearch search;
      search.mode = mode;
      search.graphs = 40;
      const auto choice = ChoosePlan(onnx, {}, target, measured, search);
      ASSERT_TRUE(choice.ok()) << choice.status();
      least[mode] = Least(*choice);
      if (mode == PlanSearch::Mode::kOff) {
        EXPECT_EQ(choice->contenders.size(), 1u);
        EXPECT_EQ(choice->chosen, 0u);
      }
      if (mode != PlanSearch::Mode::kJoint || seed >= 4) continue;
      // Nor does the number of threads matter.
      for (int threads = 2; threads <= 3; ++threads) {
        search.threads = threads;
        const auto again = ChoosePlan(onnx, {}, target, measured, search);
        ASSERT_TRUE(again.ok()) << again.status();
        ASSERT_EQ(again->contenders.size(), choice->contenders.size());
        EXPECT_EQ(again->chosen, choice->chosen);
        for (size_t i = 0; i < choice->contenders.size(); ++i) {
          EXPECT_EQ(again->contenders[i].plan, choice->contenders[i].plan);
          EXPECT_EQ(again->contenders[i].cost.ns, choice->contenders[i].cost.ns);
        }
      }
    }
    EXPECT_LE(least[PlanSearch::Mode::kSequential], least[PlanSearch::Mode::kOff]) << seed;
    EXPECT_LE(least[PlanSearch::Mode::kJoint], least[PlanSearch::Mode::kSequential]) << seed;
    sequential_gains += least[PlanSearch::Mode::kSequential] < least[PlanSearch::Mode::kOff];
    joint_gains += least[PlanSearch::Mode::kJoint] < least[PlanSearch::Mode::kSequential];
  }
  EXPECT_GT(sequential_gains, 4);
  RecordProperty("joint_gains", joint_gains);
}

}  // namespace
}  // namespace heddle
