// The check of a substitution on random inputs: right ones pass, a wrong one is refused and named.
#include "compiler/driver/check_substitution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/tensor_data.h"
#include "tests/graph/random_graph.h"

namespace heddle {
namespace {

using graph::Graph;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;
using substitution::DirectedRule;
using testing::HasSubstr;

std::vector<DirectedRule> Rules(const std::string& text) {
  const auto rule = substitution::ParseRule(text);
  return {{substitution::NameOf(*rule), *rule}};
}

// Two convolutions of a large image with many channels, added.
Graph Convolutions(const Shape& first, const Shape& second) {
  graph::GraphBuilder b;
  graph::TestRng rng(1);
  const ValueId x = b.Input("x", {ir::DType::kF32, {1, 32, 112, 112}});
  std::vector<ValueId> parts;
  for (const Shape& shape : {first, second}) {
    const ValueId w = b.Constant("w", graph::RandomTensor(rng, {ir::DType::kF32, shape}));
    const int64_t pad = shape[2] / 2;
    parts.push_back(*b.Add(OpKind::kConv2d, {x, w},
                           {{"pads", Shape{pad, pad, pad, pad}}, {"groups", int64_t{1}}}, "conv"));
  }
  const ValueId sum = *b.Add(OpKind::kAdd, parts, {}, "sum");
  return *b.Build({{"y", sum}});
}

absl::Status Check(const Graph& graph, const std::vector<DirectedRule>& rules) {
  const auto matches = substitution::FindMatches(graph, rules[0]);
  if (matches.empty()) return absl::NotFoundError("no match");
  std::set<std::string> checked;
  return SubstitutedAndChecked(graph, rules, {Named(graph, rules[0], matches)[0]}, nullptr,
                               &checked)
      .status();
}

TEST(CheckSubstitution, RightOnesPass) {
  const Graph equal = Convolutions({32, 32, 3, 3}, {32, 32, 3, 3});
  EXPECT_EQ(Check(equal, Rules("add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(y, z))")),
            absl::OkStatus());
  // The extent of the enlarged kernel is that of a convolution that is not matched.
  const Graph different = Convolutions({32, 32, 1, 1}, {32, 32, 3, 3});
  EXPECT_EQ(Check(different, Rules("conv[s](x, y) => conv[s](x, enlarge[k](y))")),
            absl::OkStatus());
}

// A rule may need the constants that a graph has, and not only what is computed from its inputs.
TEST(CheckSubstitution, ConstantsStayWhereARuleNeedsThem) {
  for (const bool average : {true, false}) {
    graph::GraphBuilder b;
    graph::TestRng rng(2);
    const ValueId x = b.Input("x", {ir::DType::kF32, {1, 8, 40, 40}});
    const graph::TensorType type{ir::DType::kF32, average ? Shape{8, 1, 3, 3} : Shape{8, 2, 3, 3}};
    const ValueId w =
        b.Constant("w", average ? graph::Filled(type, 1.0 / 9) : graph::RandomTensor(rng, type));
    const ValueId y = *b.Add(OpKind::kConv2d, {x, w},
                             {{"pads", Shape(4, 1)}, {"groups", int64_t{average ? 8 : 4}}}, "conv");
    EXPECT_EQ(Check(*b.Build({{"y", y}}),
                    Rules(average ? "depthwise[s](x, pool_weights[k]) => avg_pool[k,s](x)"
                                  : "grouped[s](x, y) => grouped[s](x, merge_groups[m](y))")),
              absl::OkStatus());
  }
}

// Sums of weights are rounded to 16 bits, which is no error of the rule.
TEST(CheckSubstitution, RoundingTo16BitsIsNoError) {
  for (const ir::DType dtype : {ir::DType::kF16, ir::DType::kBF16}) {
    graph::GraphBuilder b;
    const ValueId x = b.Input("x", {dtype, {1, 64, 32, 32}});
    std::vector<ValueId> parts;
    for (const char* name : {"v", "w"}) {
      const ValueId w = b.Input(name, {dtype, {64, 64, 3, 3}});
      parts.push_back(
          *b.Add(OpKind::kConv2d, {x, w}, {{"pads", Shape(4, 1)}, {"groups", int64_t{1}}}, "conv"));
    }
    const Graph graph = *b.Build({{"y", *b.Add(OpKind::kAdd, parts, {}, "sum")}});
    EXPECT_EQ(Check(graph, Rules("add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(y, z))")),
              absl::OkStatus());
    const absl::Status wrong =
        Check(graph, Rules("add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(y, add(y, z)))"));
    EXPECT_EQ(wrong.code(), absl::StatusCode::kFailedPrecondition);
  }
}

// The check of products of a large model takes about as long as that of a small one, although the left operands are
// computed inside of the part, and although groups have to fit their channels.
TEST(CheckSubstitution, LargeExtentsAreMadeSmaller) {
  graph::GraphBuilder b;
  const ValueId x = b.Input("x", {ir::DType::kF32, {2048, 4096}});
  const ValueId y = b.Input("y", {ir::DType::kF32, {2048, 4096}});
  const ValueId z = b.Input("z", {ir::DType::kF32, {4096, 16384}});
  const ValueId sum = *b.Add(OpKind::kAdd, {x, y}, {}, "sum");
  const Graph products = *b.Build({{"p", *b.Add(OpKind::kMatmul, {sum, z}, {}, "product")}});
  EXPECT_EQ(Check(products, Rules("matmul(add(x, y), z) => add(matmul(x, z), matmul(y, z))")),
            absl::OkStatus());
  EXPECT_EQ(
      Check(products, Rules("matmul(add(x, y), z) => add(matmul(x, z), matmul(x, z))")).code(),
      absl::StatusCode::kFailedPrecondition);
  graph::GraphBuilder c;
  const ValueId image = c.Input("x", {ir::DType::kF32, {1, 2048, 14, 14}});
  graph::TestRng rng(3);
  const ValueId weights =
      c.Constant("w", graph::RandomTensor(rng, {ir::DType::kF32, {2048, 64, 3, 3}}));
  const ValueId grouped = *c.Add(OpKind::kConv2d, {image, weights},
                                 {{"pads", Shape(4, 1)}, {"groups", int64_t{32}}}, "conv");
  EXPECT_EQ(Check(*c.Build({{"y", grouped}}),
                  Rules("grouped[s](x, y) => grouped[s](x, merge_groups[m](y))")),
            absl::OkStatus());
}

TEST(CheckSubstitution, AWrongOneIsNamed) {
  const Graph graph = Convolutions({32, 32, 3, 3}, {32, 32, 3, 3});
  const absl::Status status =
      Check(graph, Rules("add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(y, add(y, z)))"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("conv-conv-add=add-add-conv"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("changes a result by"));
}

}  // namespace
}  // namespace heddle
