// Channels-last forms that are more than a transpose, against the channels-first operators.
#include "compiler/graph/layout/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/passes.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

constexpr double kLayoutTolerance = 1e-5;  // sums in another order

// One operator with constant weights, then a rectifier; nullopt where the operator refuses.
std::optional<Graph> OneConvolution(TestRng& rng, OpKind kind, const Shape& x, const Shape& weights,
                                    const Attrs& attrs) {
  GraphBuilder b;
  const ValueId input = b.Input("x", {ir::DType::kF32, x});
  const ValueId w = b.Constant("w", RandomTensor(rng, {ir::DType::kF32, weights}));
  const auto y = b.Add(kind, {input, w}, attrs, "conv");
  if (!y.ok()) return std::nullopt;
  return *b.Build({{"y", *b.Add(OpKind::kRelu, {*y}, {}, "relu")}});
}

const Node* FindNode(const Graph& graph, OpKind kind) {
  for (const Node& node : graph.nodes) {
    if (node.kind == kind) return &node;
  }
  return nullptr;
}

double ConvolutionFlops(const Graph& graph) {
  const FusedGraph fused = *Fuse(graph);
  double flops = 0;
  for (const Group& group : fused.groups) {
    if (group.label.find("conv") != std::string::npos) flops += group.flops;
  }
  return flops;
}

void ExpectSame(TestRng& rng, const Graph& first, const Graph& last, const std::string& what) {
  const std::vector<TensorData> inputs = RandomInputs(rng, first);
  EXPECT_LE(Difference(*EvaluateGraph(first, inputs), *EvaluateGraph(last, inputs)),
            kLayoutTolerance)
      << what << "\n"
      << Print(first);
}

TEST(Layout, TransposedConvolutionsOfAnyStrideAndPaddingAgree) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    TestRng rng(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(rng);
    };
    const int64_t n = draw(1, 2), in = draw(1, 3), out = draw(1, 3);
    Shape x{draw(1, 2), in}, weights{in, out}, strides, pads(2 * n), extra;
    for (int64_t i = 0; i < n; ++i) {
      x.push_back(draw(1, 5));
      weights.push_back(draw(1, 5));
      strides.push_back(draw(1, 3));
      pads[i] = draw(0, 3);
      pads[n + i] = draw(0, 3);
      extra.push_back(draw(0, strides[i] - 1));
    }
    const auto first =
        OneConvolution(rng, kTransposedConvolutions[n - 1], x, weights,
                       {{"strides", strides}, {"pads", pads}, {"output_padding", extra}});
    if (!first) continue;  // padding leaves no output
    const auto last = AssignLayouts(*first, {.all = Layout::kChannelsLast});
    ASSERT_TRUE(last.ok()) << last.status() << "\n" << Print(*first);
    const Node* node = FindNode(*last, kTransposedConvolutions[n - 1]);
    EXPECT_EQ(AttrsOf(*node).Text("layout"), "channels_last");
    ExpectSame(rng, *first, *last, absl::StrCat("seed ", seed));
    ++moved;
  }
  EXPECT_GE(moved, 100);
}

TEST(Layout, RandomGraphsAgreeInAnyChoiceOfLayouts) {
  // Costs drawn anew for every operator: choices nobody would make.
  class RandomCosts : public LayoutCosts {
   public:
    explicit RandomCosts(uint64_t seed) : rng_(seed) {}
    LayoutCost OperatorCost(const Graph&, const Node&) const override {
      std::uniform_int_distribution<int64_t> ns(0, 2000);
      return {{ns(rng_), ns(rng_), ns(rng_)}};
    }

   private:
    mutable TestRng rng_;
  };
  int mixed = 0, blocked = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    TestRng rng(seed);
    const Graph first = RandomGraph(rng, 12);
    LayoutPlan plan;
    const RandomCosts costs(seed);
    PassOptions options;
    options.layout.costs = &costs;
    options.layout.plan = &plan;
    if (seed % 5 == 0) options.layout.all = Layout::kChannelsLast;
    if (seed % 5 == 1) options.layout.all = Layout::kChannelsBlocked;
    if (seed % 4 != 0) options.layout.block = seed % 4 == 1 ? 3 : 2;
    const auto assigned = Optimize(first, options);
    ASSERT_TRUE(assigned.ok()) << assigned.status() << "\n" << Print(first);
    ExpectSame(rng, first, *assigned, absl::StrCat("seed ", seed));
    int last = 0, free = 0;
    for (const LayoutPlan::Operator& op : plan.operators) {
      free += op.free;
      last += op.layout == Layout::kChannelsLast;
      blocked += op.layout == Layout::kChannelsBlocked;
      EXPECT_TRUE(op.free || op.layout == Layout::kChannelsFirst);
    }
    mixed += last > 0 && last < free;
    if (options.layout.all) continue;
    EXPECT_LE(plan.ns, std::min(plan.first_ns, plan.last_ns)) << "seed " << seed;
  }
  EXPECT_GE(mixed, 60);
  EXPECT_GE(blocked, 60);
}

// Of channels a block divides and others, of any window; the operators before and behind move.
TEST(Layout, BlockedConvolutionsAndPoolsOfAnyWindowAgree) {
  int inside = 0, outside = 0, whole = 0, depthwise = 0, pools = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    TestRng rng(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(rng);
    };
    const int64_t n = draw(1, 3), block = draw(2, 4);
    const auto channels = [&] { return draw(0, 2) == 0 ? draw(1, 9) : block * draw(1, 3); };
    const bool per_channel = draw(0, 2) == 0;
    const int64_t in = channels(), out = per_channel ? in : channels();
    Shape x{draw(1, 2), in}, weights{out, per_channel ? 1 : in}, strides, dilations, pads(2 * n);
    for (int64_t i = 0; i < n; ++i) {
      x.push_back(draw(1, 5));
      weights.push_back(draw(1, 3));
      strides.push_back(draw(1, 2));
      dilations.push_back(draw(1, 2));
      pads[i] = draw(0, 2);
      pads[n + i] = draw(0, 2);
    }
    GraphBuilder b;
    ValueId v = b.Input("x", {ir::DType::kF32, x});
    if (draw(0, 1) == 0) {
      const auto pool = b.Add(draw(0, 1) == 0 ? OpKind::kMaxPool : OpKind::kAvgPool, {v},
                              {{"kernel", Shape(n, 2)}, {"pads", Shape(2 * n, 1)}}, "pool");
      if (pool.ok()) v = *pool;
    }
    const ValueId w = b.Constant("w", RandomTensor(rng, {ir::DType::kF32, weights}));
    const auto y = b.Add(kConvolutions[n - 1], {v, w},
                         {{"strides", strides},
                          {"dilations", dilations},
                          {"pads", pads},
                          {"groups", per_channel ? in : int64_t{1}}},
                         "conv");
    if (!y.ok()) continue;  // the kernel does not fit
    const Graph first = *b.Build({{"y", *b.Add(OpKind::kRelu, {*y}, {}, "relu")}});
    const auto blocked = AssignLayouts(first, {.all = Layout::kChannelsBlocked, .block = block});
    ASSERT_TRUE(blocked.ok()) << blocked.status() << "\n" << Print(first);
    ExpectSame(rng, first, *blocked, absl::StrCat("seed ", seed));
    if (const Node* pool = FindNode(*blocked, OpKind::kMaxPool))
      pools += AttrsOf(*pool).Text("layout") == "channels_blocked";
    depthwise += FindNode(*blocked, kBlockedDepthwiseConvolutions[n - 1]) != nullptr;
    const Node* node = FindNode(*blocked, kBlockedConvolutions[n - 1]);
    const bool in_blocks = in % block == 0 && in > block,
               out_blocks = out % block == 0 && out > block;
    EXPECT_EQ(node != nullptr, !per_channel && (in_blocks || out_blocks)) << "seed " << seed;
    (in_blocks && out_blocks ? whole : in_blocks ? inside : outside) += node != nullptr;
    EXPECT_EQ(ConvolutionFlops(first), ConvolutionFlops(*blocked)) << "seed " << seed;
  }
  EXPECT_GE(std::min({inside, outside, whole, depthwise, pools}), 10);
}

// Of lower rank, a second dimension is one of space, whatever its extent.
TEST(Layout, OperandsOfLowerRankAreAlignedFromTheRight) {
  for (const Shape& shape :
       {Shape{4, 4, 4}, {1, 4, 4}, {4, 1, 1}, {4, 4}, {1, 4}, {4, 1}, {4}, {1, 4, 1}, {4, 4, 1}}) {
    TestRng rng(2);
    GraphBuilder b;
    const ValueId x = b.Input("x", {ir::DType::kF32, {2, 4, 4, 4}});
    const ValueId c = b.Constant("c", RandomTensor(rng, {ir::DType::kF32, shape}));
    const Graph first = *b.Build({{"y", *b.Add(OpKind::kSub, {c, x}, {}, "sub")}});
    for (const Layout layout : kLayouts) {
      const auto moved = AssignLayouts(first, {.all = layout, .block = 2});
      ASSERT_TRUE(moved.ok()) << moved.status() << " " << ShapeText(shape);
      ExpectSame(rng, first, *moved, ShapeText(shape));
    }
  }
}

TEST(Layout, ABlockHasAtLeastTwoChannels) {
  TestRng rng(1);
  const Graph first = *OneConvolution(rng, OpKind::kConv2d, {1, 4, 3, 3}, {4, 4, 1, 1}, {});
  for (const int64_t block : {-1, 1}) {
    EXPECT_EQ(AssignLayouts(first, {.block = block}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Layout, MeasuredCostsDecideAndFlatteningIsFoldedIntoTheMatrix) {
  TestRng rng(3);
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2, 8, 5, 4}});
  const ValueId w = b.Constant("w", RandomTensor(rng, {ir::DType::kF32, {6, 8, 3, 3}}));
  const ValueId m = b.Constant("m", RandomTensor(rng, {ir::DType::kF32, {36, 7}}));
  const ValueId y = *b.Add(OpKind::kConv2d, {x, w}, {}, "conv");
  const ValueId flat = *b.Add(OpKind::kReshape, {*b.Add(OpKind::kRelu, {y}, {}, "relu")},
                              {{"shape", Shape{2, 36}}}, "flat");
  const Graph first = *b.Build({{"y", *b.Add(OpKind::kMatmul, {flat, m}, {}, "product")}});
  for (const Layout wanted : kLayouts) {
    LayoutProblem::Operator ns{100000, 100000, 100000};
    (wanted == Layout::kChannelsFirst  ? ns.first_ns
     : wanted == Layout::kChannelsLast ? ns.last_ns
                                       : ns.blocked_ns) = 10;
    const MeasuredLayoutCosts costs({{"conv", ns}});
    PassOptions options;
    options.layout.costs = &costs;
    options.layout.block = 2;
    const auto assigned = Optimize(first, options);
    ASSERT_TRUE(assigned.ok()) << assigned.status();
    ExpectSame(rng, first, *assigned, "flattened");
    const Node* plain = FindNode(*assigned, OpKind::kConv2d);
    EXPECT_EQ(FindNode(*assigned, OpKind::kBlockedConv2d) != nullptr,
              wanted == Layout::kChannelsBlocked);
    if (wanted != Layout::kChannelsBlocked) {
      ASSERT_NE(plain, nullptr);
      EXPECT_EQ(AttrsOf(*plain).Text("layout"),
                wanted == Layout::kChannelsLast ? "channels_last" : "channels_first");
    }
    int transposes = 0;
    for (const Node& node : assigned->nodes) transposes += node.kind == OpKind::kTranspose;
    EXPECT_EQ(transposes, wanted == Layout::kChannelsFirst ? 0 : 1) << Print(*assigned);  // of x
  }
}

TEST(Layout, WhatTwoLayoutsWereMeasuredInIsEstimatedForTheThirdInProportion) {
  TestRng rng(4);
  const Graph graph = *OneConvolution(rng, OpKind::kConv2d, {1, 8, 5, 4}, {6, 8, 3, 3}, {});
  const Node& conv = graph.nodes[0];
  const LayoutProblem::Operator estimate = LayoutCosts().OperatorCost(graph, conv).ns;
  constexpr int64_t kNever = LayoutProblem::kNever;
  const MeasuredLayoutCosts two(
      {{"conv", {kNever, 3 * estimate.last_ns, 3 * estimate.blocked_ns}}});
  const LayoutCost cost = two.OperatorCost(graph, conv);
  EXPECT_TRUE(cost.measured);
  EXPECT_EQ(cost.ns.last_ns, 3 * estimate.last_ns);
  EXPECT_NEAR(static_cast<double>(cost.ns.first_ns), 3.0 * static_cast<double>(estimate.first_ns),
              1);
  const MeasuredLayoutCosts one({{"conv", {kNever, 3 * estimate.last_ns, kNever}}});
  EXPECT_FALSE(one.OperatorCost(graph, conv).measured);
  EXPECT_EQ(one.OperatorCost(graph, conv).ns.last_ns, estimate.last_ns);
}

TEST(Layout, AReshapeIsNoTranspose) {
  TestRng rng(5);
  const Graph one_channel = *OneConvolution(rng, OpKind::kConv2d, {1, 1, 5, 4}, {6, 1, 3, 2}, {}),
              one_pixel = *OneConvolution(rng, OpKind::kConv2d, {1, 8, 1, 1}, {6, 8, 1, 1}, {});
  const LayoutCosts costs;
  const LayoutPlan plan = PlanLayouts(one_channel, costs, 0, Layout::kChannelsLast);
  ASSERT_EQ(plan.moves.size(), 1u);
  EXPECT_EQ(plan.moves[0].type.shape, (Shape{1, 6, 3, 3}));  // the result
  EXPECT_EQ(PlanLayouts(one_pixel, costs, 0, Layout::kChannelsLast).moves.size(), 0u);
}

TEST(Layout, SmallGroupsAreMergedAndWorkIsCountedOnce) {
  struct Case {
    int64_t groups, in, out, merged;  // channels of a group
  };
  for (const Case& c : {Case{8, 4, 4, 1}, Case{6, 4, 4, 3}, Case{8, 2, 8, 2}, Case{4, 3, 16, 1},
                        Case{3, 2, 2, 3}, Case{32, 1, 2, 4}, Case{5, 2, 4, 1}, Case{9, 1, 1, 1}}) {
    TestRng rng(7);
    const std::string what = absl::StrCat(c.groups, " groups of ", c.in, " to ", c.out);
    const Graph first = *OneConvolution(rng, OpKind::kConv2d, {1, c.groups * c.in, 5, 4},
                                        {c.groups * c.out, c.in, 3, 2},
                                        {{"groups", c.groups}, {"pads", Shape{1, 0, 1, 1}}});
    const auto last = AssignLayouts(first, {.all = Layout::kChannelsLast});
    ASSERT_TRUE(last.ok()) << what << last.status();
    ExpectSame(rng, first, *last, what);
    const Node* node = FindNode(*last, OpKind::kConv2d);
    if (c.in == 1 && c.out == 1) {
      EXPECT_EQ(node, nullptr) << what;  // depthwise, which has no groups
      continue;
    }
    ASSERT_NE(node, nullptr) << what;
    EXPECT_EQ(AttrsOf(*node).Int("groups"), c.groups / c.merged) << what;
    EXPECT_EQ(ConvolutionFlops(first), ConvolutionFlops(*last)) << what;
  }
}

}  // namespace
}  // namespace heddle::graph
