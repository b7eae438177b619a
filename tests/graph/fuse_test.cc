// Fusion: legality on random graphs, fused results against unfused ones, canonical workloads.
#include "compiler/graph/fusion/fuse.h"
#include "base/vocabulary/workload_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "client/zoo/zoo.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "compiler/onnx/import.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

constexpr int kFusedGraphs = 200;

// What may stand beside an operator that is not injective: after a complex one, elementwise
// operators of its shape; before a reduction, injective ones; beside an opaque one, nothing.
void CheckAroundAnchor(const Graph& graph, const Group& group) {
  const auto type = [&](int n) { return graph.values[graph.nodes[n].outputs[0]].type; };
  for (int anchor : group.nodes) {
    const FusionClass kind = Def(graph.nodes[anchor].kind).fusion;
    if (kind == FusionClass::kInjective) continue;
    for (int n : group.nodes) {
      if (n == anchor) continue;
      EXPECT_NE(kind, FusionClass::kOpaque) << group.label;
      if (kind == FusionClass::kReduction) {
        EXPECT_LT(n, anchor) << group.label;
      } else {
        EXPECT_TRUE(Def(graph.nodes[n].kind).elementwise) << group.label;
        EXPECT_EQ(type(n).shape, type(anchor).shape) << group.label;
      }
    }
  }
}

void CheckLegal(const FusedGraph& fused) {
  std::vector<int> times(fused.graph.nodes.size(), 0);
  for (const Group& group : fused.groups) {
    int anchors = 0;
    for (int n : group.nodes) {
      ++times[n];
      anchors += Def(fused.graph.nodes[n].kind).fusion != FusionClass::kInjective;
    }
    EXPECT_LE(anchors, 1) << group.label;
    CheckAroundAnchor(fused.graph, group);
    EXPECT_EQ(group.outputs.size(), 1u) << group.label;
    EXPECT_TRUE(std::is_sorted(group.nodes.begin(), group.nodes.end()));
    EXPECT_EQ(group.key, WorkloadKey(group.workload));
    auto program = ir::Parse(group.workload);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_TRUE(ir::Verify(*program).ok()) << group.label << ": " << ir::Verify(*program) << "\n"
                                           << group.workload;
    EXPECT_EQ(program->inputs.size(), group.inputs.size());
  }
  for (size_t n = 0; n < times.size(); ++n) {
    const Node& node = fused.graph.nodes[n];
    const auto view = fused.views.find(node.outputs[0]);
    EXPECT_EQ(times[n], view == fused.views.end() ? 1 : 0) << NameOf(node.kind);
    if (view == fused.views.end()) continue;
    EXPECT_TRUE(node.kind == OpKind::kReshape || node.kind == OpKind::kIdentity)
        << NameOf(node.kind);
    EXPECT_EQ(fused.views.count(view->second), 0u) << "a view of a view";
  }
}

TEST(FuseProperty, FusedEqualsUnfused) {
  int fused_somewhere = 0, views = 0;
  for (uint64_t seed = 0; seed < kFusedGraphs && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TestRng rng(seed);
    Graph graph = RandomGraph(rng, 4 + static_cast<int>(seed % 12));
    if (seed % 2 == 0) graph = *Optimize(graph);
    const std::vector<TensorData> inputs = RandomInputs(rng, graph);
    auto expected = EvaluateGraph(graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    auto fused = Fuse(graph);
    ASSERT_TRUE(fused.ok()) << fused.status();
    CheckLegal(*fused);
    fused_somewhere += fused->groups.size() < graph.nodes.size();
    views += !fused->views.empty();
    auto result = EvaluateFused(*fused, inputs);
    ASSERT_TRUE(result.ok()) << result.status() << "\n" << Print(graph);
    // The same expressions on the same numbers.
    EXPECT_EQ(Difference(*expected, *result), 0) << Print(graph);
  }
  EXPECT_GT(fused_somewhere, kFusedGraphs / 2);
  EXPECT_GT(views, kFusedGraphs / 20);
}

TEST(Fuse, SwitchedOffEveryNodeIsAGroup) {
  TestRng rng(5);
  const Graph graph = RandomGraph(rng, 10);
  auto fused = Fuse(graph, {.enabled = false});
  ASSERT_TRUE(fused.ok());
  EXPECT_EQ(fused->groups.size(), graph.nodes.size());
  CheckLegal(*fused);
}

// conv * sigmoid(conv): the convolution has two readers, both in its group.
TEST(Fuse, SwishJoinsItsConvolution) {
  TestRng rng(6);
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {1, 2, 4, 4}});
  const ValueId w = b.Constant("w", RandomTensor(rng, {ir::DType::kF32, {2, 2, 1, 1}}));
  const ValueId c = *b.Add(OpKind::kConv2d, {x, w}, {}, "conv");
  const ValueId y =
      *b.Add(OpKind::kMul, {c, *b.Add(OpKind::kSigmoid, {c}, {}, "gate")}, {}, "swish");
  EXPECT_EQ(Fuse(*b.Build({{"y", y}}))->groups.size(), 1u);
}

TEST(Fuse, TwoConvolutionsStayApartAndAValueWithOtherReadersIsKept) {
  TestRng rng(7);
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {1, 2, 4, 4}});
  const ValueId w = b.Constant("w", RandomTensor(rng, {ir::DType::kF32, {2, 2, 1, 1}}));
  const ValueId a =
      *b.Add(OpKind::kRelu, {*b.Add(OpKind::kConv2d, {x, w}, {}, "first")}, {}, "relu");
  const ValueId c = *b.Add(OpKind::kConv2d, {a, w}, {}, "second");
  const ValueId sum = *b.Add(OpKind::kAdd, {c, a}, {}, "residual");
  const FusedGraph fused = *Fuse(*b.Build({{"y", sum}}));
  ASSERT_EQ(fused.groups.size(), 2u);
  EXPECT_EQ(fused.groups[0].label, "conv2d+relu 1x2x4x4");
  EXPECT_EQ(fused.groups[1].label, "conv2d+add 1x2x4x4");
}

// add(f(a), a): a is computed before f, which reads its elements many times, although all its
// readers are in f's group.
TEST(Fuse, TheOperandOfAComplexOperatorStaysOutside) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {4, 4}});
  const ValueId a = *b.Add(OpKind::kRelu, {x}, {}, "a");
  const ValueId f = *b.Add(OpKind::kSoftmax, {a}, {{"axes", Shape{1}}}, "f");
  const ValueId y = *b.Add(OpKind::kAdd, {f, a}, {}, "sum");
  const Graph graph = *b.Build({{"y", y}});
  const FusedGraph fused = *Fuse(graph);
  EXPECT_EQ(fused.groups.size(), 2u);
  TestRng rng(8);
  const auto inputs = RandomInputs(rng, graph);
  EXPECT_EQ(Difference(*EvaluateGraph(graph, inputs), *EvaluateFused(fused, inputs)), 0);
}

// The graph multiplies two transposed matrices and adds to the result. A relu stands before one of the matrices.
TEST(Fuse, AProductReadsTransposedMatricesByColumns) {
  GraphBuilder b;
  const auto input = [&](Shape shape) { return b.Input("x", {ir::DType::kF32, std::move(shape)}); };
  const auto transposed = [&](ValueId v, const std::string& name) {
    return *b.Add(OpKind::kTranspose, {v}, {{"perm", Shape{1, 0}}}, name);
  };
  const ValueId relu = *b.Add(OpKind::kRelu, {input({3, 4})}, {}, "relu");
  const ValueId left = transposed(relu, "left"), right = transposed(input({5, 3}), "right");
  const ValueId product = *b.Add(OpKind::kMatmul, {left, right}, {}, "product");
  const ValueId sum = *b.Add(OpKind::kAdd, {product, input({4, 5})}, {}, "sum");
  // Of these, no product may read the second one by columns: it is an output. Nor the third: two products read it.
  const ValueId shared = transposed(input({4, 5}), "shared");
  const ValueId kept = transposed(input({4, 4}), "kept");
  const ValueId twice = *b.Add(OpKind::kMatmul, {shared, kept}, {}, "first");
  const ValueId again = *b.Add(OpKind::kMatmul, {shared, sum}, {}, "second");
  const Graph graph = *b.Build({{"y", sum}, {"kept", kept}, {"first", twice}, {"second", again}});
  EXPECT_EQ(MayBeColumns(graph), (std::set<std::string>{"left", "right"}));
  TestRng rng(11);
  const auto inputs = RandomInputs(rng, graph);
  const auto expected = EvaluateGraph(graph, inputs);
  std::set<std::vector<std::string>> distinct;
  const std::vector<std::set<std::string>> cases = {
      {}, {"left"}, {"right"}, {"left", "right", "kept", "shared", "none"}};
  for (const std::set<std::string>& columns : cases) {
    const FusedGraph fused = *Fuse(graph, {.columns = columns});
    std::vector<std::string> labels, keys;
    for (const Group& group : fused.groups) {
      labels.push_back(group.label.substr(0, group.label.find(' ')));
      keys.push_back(group.key);
    }
    distinct.insert(keys);
    const auto has = [&](const char* label) {
      return std::count(labels.begin(), labels.end(), label) == 1;
    };
    // What comes before a transpose stays outside.
    EXPECT_EQ(has("relu+transpose"), !columns.contains("left"));
    EXPECT_EQ(has("relu"), columns.contains("left"));
    EXPECT_TRUE(has(columns.empty()       ? "matmul+add"
                    : columns.size() == 1 ? "transpose+matmul+add"
                                          : "(transpose)x2+matmul+add"))
        << testing::PrintToString(labels);
    EXPECT_EQ(Difference(*expected, *EvaluateFused(fused, inputs)), 0);
  }
  EXPECT_EQ(distinct.size(), 4u);
  // A value that is to be separate is.
  const FusedGraph both = *Fuse(graph, {.separate = {"left"}, .columns = {"left"}});
  EXPECT_EQ(both.groups.size(), Fuse(graph, {.separate = {"left"}})->groups.size());
}

// add(a, g(f(a))), where f reduces and g works on the reduced shape: a joined with the sum would
// need g before and after itself.
TEST(Fuse, NoCycleThroughAThirdGroup) {
  GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {4, 4}});
  const ValueId a = *b.Add(OpKind::kSoftmax, {x}, {{"axes", Shape{1}}}, "a");
  const ValueId doubled = *b.Add(OpKind::kAdd, {a, a}, {}, "doubled");
  const ValueId f = *b.Add(OpKind::kReduceSum, {doubled}, {{"axes", Shape{1}}}, "f");
  const ValueId y = *b.Add(OpKind::kAdd, {doubled, f}, {}, "sum");
  const Graph graph = *b.Build({{"y", y}});
  const FusedGraph fused = *Fuse(graph);
  CheckLegal(fused);
  TestRng rng(9);
  const auto inputs = RandomInputs(rng, graph);
  EXPECT_EQ(Difference(*EvaluateGraph(graph, inputs), *EvaluateFused(fused, inputs)), 0);
}

// y = y * y, inlined 24 times, would be an expression of 16 million nodes.
TEST(Fuse, AChainThatDoublesIsCut) {
  GraphBuilder doubling;
  const TensorType type{ir::DType::kF32, {4}};
  ValueId x = doubling.Input("x", type);
  for (int i = 0; i < 24; ++i) x = *doubling.Add(OpKind::kMul, {x, x}, {}, "square");
  const Graph graph = *doubling.Build({{"y", x}});
  const FusedGraph fused = *Fuse(graph);
  CheckLegal(fused);
  EXPECT_GE(fused.groups.size(), 3u);
  EXPECT_LE(fused.groups.size(), 6u);
  TestRng rng(10);
  const auto inputs = RandomInputs(rng, graph);
  EXPECT_EQ(Difference(*EvaluateGraph(graph, inputs), *EvaluateFused(fused, inputs)), 0);
}

// What is read once may be long, but a group of hundreds of nodes takes long to compile.
TEST(Fuse, AGroupHasAtMost128Nodes) {
  for (const auto& [nodes, groups] : {std::pair<int, size_t>{128, 1}, {129, 2}, {400, 4}}) {
    GraphBuilder b;
    ValueId y = b.Input("x", {ir::DType::kF32, {4}});
    const ValueId c = b.Constant("c", Filled({ir::DType::kF32, {4}}, 1));
    for (int i = 0; i < nodes; ++i) y = *b.Add(OpKind::kAdd, {y, c}, {}, "sum");
    EXPECT_EQ(Fuse(*b.Build({{"y", y}}))->groups.size(), groups);
  }
}

TEST(Fuse, LabelsFitIntoALine) {
  GraphBuilder b;
  ValueId x = b.Input("x", {ir::DType::kF32, {1, 4}});
  for (int i = 0; i < 20; ++i)
    x = *b.Add(OpKind::kNeg, {*b.Add(OpKind::kRelu, {x}, {}, "relu")}, {}, "neg");
  for (OpKind kind : {OpKind::kTanh, OpKind::kTanh, OpKind::kAbs})
    x = *b.Add(kind, {x}, {}, NameOf(kind));
  const ValueId short_enough = x;
  EXPECT_EQ(Fuse(*b.Build({{"y", short_enough}}))->groups[0].label,
            "(relu+neg)x20+(tanh)x2+abs 1x4");
  GraphBuilder other;
  x = other.Input("x", {ir::DType::kF32, {1, 4}});
  for (int round = 0; round < 5; ++round) {
    for (OpKind kind : {OpKind::kRelu, OpKind::kAbs, OpKind::kTanh, OpKind::kSigmoid, OpKind::kNeg,
                        OpKind::kExp, OpKind::kSoftplus})
      x = *other.Add(kind, {x}, {}, NameOf(kind));
  }
  EXPECT_EQ(Fuse(*other.Build({{"y", x}}))->groups[0].label,
            "relu+abs+tanh+sigmoid+neg+exp+.. 1x4");
}

TEST(Fuse, WorkloadsDoNotDependOnNamesOrSeeds) {
  const FusedGraph one = *Fuse(*Optimize(*ImportOnnx(*zoo::MakeZooModel("mlp", 1))));
  const FusedGraph two = *Fuse(*Optimize(*ImportOnnx(*zoo::MakeZooModel("mlp", 2))));
  ASSERT_EQ(one.groups.size(), two.groups.size());
  for (size_t i = 0; i < one.groups.size(); ++i) EXPECT_EQ(one.groups[i].key, two.groups[i].key);
  for (const Group& group : one.groups) {
    EXPECT_EQ(group.workload.find("fc"), std::string::npos) << group.workload;
  }
}

// One memo for graphs that differ in shapes, attributes and constants.
TEST(FuseProperty, AMemoChangesNothing) {
  FuseMemo programs;
  FoldMemo constants;
  TestRng rng(7);
  int alike = 0;
  for (int i = 0; i < kFusedGraphs; ++i) {
    const Graph graph = RandomGraph(rng, 12);
    PassOptions passes;
    const FusedGraph plain = *Fuse(*Optimize(graph, passes));
    passes.memo = &constants;
    const size_t before = programs.size();
    // The second time, everything is known.
    for (int again = 0; again < 2; ++again) {
      const FusedGraph fused = *Fuse(*Optimize(graph, passes), {.memo = &programs});
      ASSERT_EQ(fused.groups.size(), plain.groups.size());
      for (size_t g = 0; g < plain.groups.size(); ++g) {
        ASSERT_EQ(fused.groups[g].workload, plain.groups[g].workload);
        ASSERT_EQ(fused.groups[g].key, plain.groups[g].key);
      }
      const std::vector<TensorData> inputs = RandomInputs(rng, graph);
      ASSERT_EQ(
          Difference(*EvaluateGraph(fused.graph, inputs), *EvaluateGraph(plain.graph, inputs)), 0);
    }
    alike += programs.size() < before + plain.groups.size();
  }
  EXPECT_GT(alike, 0) << "graphs had nothing in common";
}

TEST(Fuse, AMemoTellsAttributesApart) {
  FuseMemo memo;
  std::set<std::string> keys;
  for (const double alpha : {0.1, 0.1000001, 0.2}) {
    GraphBuilder b;
    const ValueId x = b.Input("x", {ir::DType::kF32, {4}});
    const Graph graph = *b.Build({{"y", *b.Add(OpKind::kLeakyRelu, {x}, {{"alpha", alpha}}, "y")}});
    keys.insert(Fuse(graph, {.memo = &memo})->groups[0].key);
  }
  EXPECT_EQ(keys.size(), 3u);
}

// Ranges of tables are part of a workload, and large tables are scanned only once for all candidates.
TEST(Fuse, AMemoScansATableOnce) {
  const auto forest = [](const TensorData& left) {
    GraphBuilder b;
    const Shape nodes = left.type.shape;
    const auto zeros = [&](const char* name, ir::DType dtype, const Shape& shape) {
      std::string bytes(static_cast<size_t>(NumElements({dtype, shape}) * ir::SizeOf(dtype)), 0);
      return b.Constant(name, {{dtype, shape}, SharedBytes::Of(std::move(bytes))});
    };
    const ValueId x = b.Input("x", {ir::DType::kF32, {3, 7}});
    const ValueId columns = zeros("columns", ir::DType::kI32, nodes);
    const ValueId thresholds = zeros("thresholds", ir::DType::kF32, nodes);
    const ValueId table = b.Constant("left", left);
    const ValueId values = zeros("values", ir::DType::kF32, {nodes[0], nodes[1], nodes[2], 1});
    const std::vector<ValueId> inputs{x, columns, thresholds, table, values};
    return *b.Build({{"y", *b.Add(OpKind::kForestWalk, inputs, {{"steps", int64_t{2}}}, "y")}});
  };
  const auto table = [](int32_t of_last) {
    std::vector<int32_t> left(1 * 2 * 8, 1);
    left.back() = of_last;
    std::string bytes(reinterpret_cast<const char*>(left.data()), left.size() * sizeof(int32_t));
    return TensorData{{ir::DType::kI32, {1, 2, 8}}, SharedBytes::Of(std::move(bytes))};
  };
  FuseMemo memo;
  std::set<std::string> keys;
  size_t scans = 0;
  // 6 is the last node that may be a left child, since the right one is the next.
  for (const int32_t of_last : {1, 6, 7, -1}) {
    const Graph graph = forest(table(of_last));
    const FusedGraph plain = *Fuse(graph);
    for (int again = 0; again < 3; ++again) {
      const FusedGraph fused = *Fuse(graph, {.memo = &memo});
      EXPECT_EQ(fused.groups[0].workload, plain.groups[0].workload);
    }
    keys.insert(plain.groups[0].key);
    scans += 2;  // columns and left children
    EXPECT_EQ(memo.scans(), scans);
  }
  EXPECT_EQ(keys.size(), 2u) << "with the range and without it";
}

// All kernels of a model of trees are timed with warm code and constants (measure/measure.h), and their keys say so. The same kernel
// has another key in a model without trees, even if one memo serves both models.
TEST(Fuse, KernelsBesideTreesAreTimedWarm) {
  constexpr ir::DType kF32 = ir::DType::kF32, kI32 = ir::DType::kI32, kU8 = ir::DType::kU8,
                      kI8 = ir::DType::kI8;
  const auto zeros = [](GraphBuilder& b, ir::DType dtype, const Shape& shape) {
    return b.Constant("zeros", Filled({dtype, shape}, 0));
  };
  FuseMemo memo;
  // The kernels of a softmax over columns (two reductions, so it has a kernel of its own) and of an operator behind it,
  // whose other operands are constants.
  const auto kernels = [&](OpKind kind, const std::vector<TensorType>& types, const Attrs& attrs) {
    GraphBuilder b;
    const ValueId shares =
        *b.Add(OpKind::kSoftmax, {b.Input("x", {kF32, {3, 7}})}, {{"axes", Shape{1}}}, "shares");
    const ValueId x =
        types[0].dtype == kF32
            ? shares
            : *b.Add(OpKind::kDigitize, {shares, zeros(b, kF32, {3, 8})}, {}, "ranks");
    std::vector<ValueId> inputs{x};
    for (size_t i = 1; i < types.size(); ++i)
      inputs.push_back(zeros(b, types[i].dtype, types[i].shape));
    const absl::StatusOr<ValueId> y = b.Add(kind, inputs, attrs, "y");
    EXPECT_TRUE(y.ok()) << y.status();
    const Graph graph = *b.Build({{"y", y.value_or(x)}});
    const FusedGraph fused = *Fuse(graph, {.memo = &memo});
    EXPECT_GT(fused.groups.size(), 1u);
    const FusedGraph alone = *Fuse(graph);
    for (size_t g = 0; g < fused.groups.size(); ++g) {
      const Group& group = fused.groups[g];
      EXPECT_EQ(group.key, alone.groups[g].key);
      EXPECT_EQ(group.key, WorkloadKey(group.workload));
      EXPECT_EQ(group.workload.find("_timed_warm(") != std::string::npos, group.timed_warm);
      const absl::StatusOr<ir::Program> program = ir::Parse(group.workload);
      EXPECT_TRUE(program.ok()) << program.status();
      EXPECT_EQ(program.ok() && ir::IsTimedWarm(*program), group.timed_warm)
          << "who measures it knows the workload alone";
    }
    return fused.groups;
  };
  const auto all_warm = [](const std::vector<Group>& groups) {
    return std::all_of(groups.begin(), groups.end(), [](const Group& g) { return g.timed_warm; });
  };
  const TensorType x{kF32, {3, 7}}, nodes{kI32, {1, 2, 3}}, thresholds{kF32, {1, 2, 3}},
      leaves{kF32, {1, 2, 4, 1}};
  const std::vector<Group> walk =
      kernels(OpKind::kForestWalk, {x, nodes, thresholds, nodes, {kF32, {1, 2, 3, 1}}},
              {{"steps", int64_t{1}}});
  EXPECT_TRUE(all_warm(walk));
  EXPECT_TRUE(all_warm(
      kernels(OpKind::kForestSelect, {x, nodes, thresholds, leaves}, {{"depth", int64_t{2}}})));
  EXPECT_TRUE(
      all_warm(kernels(OpKind::kForestRanks,
                       {{kU8, {3, 7}}, {kU8, {1, 2, 3, 1}}, {kU8, {1, 2, 3, 1}}, leaves}, {})));
  EXPECT_TRUE(all_warm(
      kernels(OpKind::kForestLeaves,
              {x, {kI32, {1, 2, 3, 1}}, {kF32, {1, 2, 3, 1}}, {kI8, {1, 2, 3, 1}}, leaves}, {})));
  const std::vector<Group> gather = kernels(OpKind::kGather, {x, {ir::DType::kI64, {2}}}, {});
  EXPECT_FALSE(gather[0].timed_warm);
  EXPECT_NE(gather[0].key, walk[0].key);
  EXPECT_EQ(gather[0].label, walk[0].label);
}

TEST(Fuse, TasksAreDistinctWeightedAndHeaviestFirst) {
  const FusedGraph fused = *Fuse(*Optimize(*ImportOnnx(*zoo::MakeZooModel("resnet18", 1))));
  const std::vector<Task> tasks = ExtractTasks(fused);
  int groups = 0;
  std::set<std::string> keys, labels;
  for (size_t i = 0; i < tasks.size(); ++i) {
    groups += tasks[i].weight;
    EXPECT_TRUE(keys.insert(tasks[i].key).second);
    EXPECT_TRUE(labels.insert(tasks[i].label).second) << tasks[i].label;
    EXPECT_EQ(tasks[i].nodes.size(), static_cast<size_t>(tasks[i].weight));
    if (i > 0) {
      EXPECT_GE(tasks[i - 1].flops * tasks[i - 1].weight, tasks[i].flops * tasks[i].weight);
    }
  }
  EXPECT_EQ(groups, static_cast<int>(fused.groups.size()));
  // 20 convolutions, the dense layer, pool, mean, and the transpose of the image.
  EXPECT_EQ(groups, 24);
  EXPECT_EQ(tasks[0].label, "conv2d+add+relu 1x56x56x64");
  EXPECT_NEAR(tasks[0].flops, 2.0 * 56 * 56 * 64 * 64 * 9, 1);
}

}  // namespace
}  // namespace heddle::graph
