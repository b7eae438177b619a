// Every axiom holds on all small cases, and what must not be an axiom does not.
#include "compiler/substitution/axioms.h"

#include <gtest/gtest.h>

#include <map>

#include "compiler/substitution/algebra.h"

namespace heddle::substitution {
namespace {

Checked Check(std::string_view text, int64_t cases = 20'000) {
  const Rule rule = *ParseRule(text);
  return CheckEqual(rule.source, rule.target, {.cases = cases});
}

TEST(Axioms, HoldOnAllSmallCases) {
  for (const Axiom& axiom : Axioms()) {
    const Checked checked = Check(axiom.text);
    EXPECT_GT(checked.cases, 0) << axiom.name;
    EXPECT_EQ(checked.counterexample, "") << axiom.name;
  }
}

// TASO's laws 39 and 40, which are stated for all convolutions, are wrong for groups.
TEST(Axioms, LawsOfOneGroupFailForGroupsOfChannels) {
  EXPECT_NE(
      Check("concat[1](depthwise[s](x, y), depthwise[s](x, z)) => depthwise[s](x, concat[0](y, z))")
          .Holds(),
      true);
  EXPECT_FALSE(Check("depthwise[s](concat[1](x, z), concat[0](y, w)) => add(depthwise[s](x, y), "
                     "depthwise[s](z, w))")
                   .Holds());
  EXPECT_FALSE(
      Check("concat[1](grouped[s](x, y), grouped[s](x, z)) => grouped[s](x, concat[0](y, z))")
          .Holds());
  // The paper's example of a wrong rewrite that these two would prove.
  EXPECT_FALSE(Check("add(avg_pool[k,s](x), avg_pool[k,s](z)) => depthwise[s](concat[1](x, z), "
                     "concat[0](pool_weights[k], pool_weights[k]))")
                   .Holds());
}

TEST(Axioms, WrongLawsHaveCounterexamples) {
  for (const char* text : {
           "map[f](conv[s](add(x, y), z)) => add(map[f](conv[s](x, z)), map[f](conv[s](y, z)))",
           "matmul(x, y) => matmul(y, x)",
           "concat[a](x, y) => concat[a](y, x)",
           "max_pool[k,s](add(x, y)) => add(max_pool[k,s](x), max_pool[k,s](y))",
           "conv[s](x, identity_weights[k]) => x",
           "split0[a](x) => split1[a](x)",
           "concat[1](matmul(x, y), matmul(z, y)) => matmul(concat[1](x, z), y)",
           "add(mul(x, y), z) => mul(add(x, z), y)",
           "transpose(matmul(x, y)) => matmul(transpose(x), transpose(y))",
       }) {
    EXPECT_FALSE(Check(text).Holds()) << text;
  }
}

// True for arrays; the split of such a tensor would be ambiguous (axioms.h).
TEST(Axioms, ConcatenationIsAssociativeButNoAxiomSaysSo) {
  const Rule rule = *ParseRule("concat[a](x, concat[a](y, z)) => concat[a](concat[a](x, y), z)");
  EXPECT_TRUE(CheckEqual(rule.source, rule.target, {.cases = 2000}).Holds());
  for (const Axiom& axiom : Axioms()) EXPECT_FALSE(RuleOf(axiom) == rule) << axiom.name;
  // With it, the parts differ.
  EXPECT_FALSE(
      Check("split0[a](concat[a](x, concat[a](y, z))) => split0[a](concat[a](concat[a](x, y), z))")
          .Holds());
}

TEST(Algebra, SplittingALeafIsNoOperator) {
  const Type leaf = MakeType(Sort::kMatrix, {2, 4});
  const Type* operands[] = {&leaf};
  const int64_t axis[] = {1};
  EXPECT_FALSE(Infer(Op::kSplit0, axis, operands).has_value());
}

TEST(Algebra, PartsOfAConcatenationAreItsOperands) {
  Leaves leaves;
  leaves["x"] = {MakeType(Sort::kMatrix, {2, 3}), {}};
  leaves["y"] = {MakeType(Sort::kMatrix, {2, 5}), {}};
  leaves["z"] = {MakeType(Sort::kMatrix, {2, 1}), {}};
  for (auto& [name, tensor] : leaves)
    tensor.elements = RandomElements(tensor.type, static_cast<uint64_t>(name[0]));
  const auto part = [&](const char* text) { return Evaluate(*ParseTerm(text), leaves, {}); };
  // Nested parts come apart in the order in which they were put together.
  EXPECT_EQ(part("split0[1](split1[1](concat[1](x, concat[1](y, z))))")->elements,
            leaves["y"].elements);
  EXPECT_EQ(part("split1[1](split0[1](concat[1](concat[1](x, y), z)))")->elements,
            leaves["y"].elements);
  EXPECT_FALSE(part("split0[1](split0[1](concat[1](x, concat[1](y, z))))").has_value());
  EXPECT_FALSE(part("split0[0](concat[1](x, y))").has_value());
}

// Each group reads its own channels, whether it is one channel or two.
TEST(Algebra, GroupsReadTheirOwnChannels) {
  Leaves leaves;
  Tensor image{MakeType(Sort::kImage, {1, 4, 1, 1}), {}};
  for (uint64_t i : {1, 2, 3, 4}) image.elements.push_back({i, i});
  leaves["x"] = image;
  const auto weights = [](Type type, const std::vector<uint64_t>& values) {
    Tensor tensor{std::move(type), {}};
    for (const uint64_t v : values) tensor.elements.push_back({v, v});
    return tensor;
  };
  leaves["d"] = weights(MakeType(Sort::kDepthwiseWeights, {4, 1, 1, 1}), {5, 6, 7, 8});
  leaves["g"] = weights(MakeType(Sort::kGroupedWeights, {2, 1, 2, 1, 1}), {1, 10, 100, 1000});
  const auto result = [&](const char* text) {
    std::vector<uint64_t> got;
    const std::optional<Tensor> tensor = Evaluate(*ParseTerm(text), leaves, {});
    for (const Element& e : tensor->elements) got.push_back(e.first);
    return got;
  };
  EXPECT_EQ(result("depthwise[1](x, d)"), (std::vector<uint64_t>{5, 12, 21, 32}));
  EXPECT_EQ(result("grouped[1](x, g)"), (std::vector<uint64_t>{21, 4300}));
  // One group of all channels, whose weights for the channels of others are zero.
  EXPECT_EQ(Evaluate(*ParseTerm("merge_groups[2](g)"), leaves, {})->type.shape,
            (std::vector<int64_t>{1, 2, 4, 1, 1}));
  EXPECT_EQ(result("merge_groups[2](g)"), (std::vector<uint64_t>{1, 10, 0, 0, 0, 0, 100, 1000}));
  EXPECT_EQ(result("grouped[1](x, merge_groups[2](g))"), (std::vector<uint64_t>{21, 4300}));
}

// With the padding that keeps the extents, and without padding (kWindows).
TEST(Algebra, PaddingDecidesTheExtents) {
  const Type image = MakeType(Sort::kImage, {1, 1, 3, 4}),
             w = MakeType(Sort::kWeights, {1, 1, 3, 3});
  const Type* operands[] = {&image, &w};
  const auto shape = [&](int64_t window) {
    const int64_t parameters[] = {window};
    return Infer(Op::kConv, parameters, operands)->shape;
  };
  EXPECT_EQ(shape(1), (std::vector<int64_t>{1, 1, 3, 4}));  // stride 1
  EXPECT_EQ(shape(2), (std::vector<int64_t>{1, 1, 2, 2}));  // stride 2
  EXPECT_EQ(shape(3), (std::vector<int64_t>{1, 1, 1, 2}));  // no padding
}

// A convolution by hand.
TEST(Algebra, ConvolutionsAndPoolsCountAsTheirDefinitionsSay) {
  Leaves leaves;
  Tensor image{MakeType(Sort::kImage, {1, 1, 3, 3}), {}};
  for (uint64_t i = 1; i <= 9; ++i) image.elements.push_back({i, i});
  leaves["x"] = image;
  Tensor weights{MakeType(Sort::kWeights, {1, 1, 3, 3}), {}};
  for (uint64_t i = 0; i < 9; ++i) weights.elements.push_back({i == 5 ? 2u : i == 3 ? 10u : 0u, 0});
  leaves["w"] = weights;
  std::vector<uint64_t> got;
  const Tensor conv = *Evaluate(*ParseTerm("conv[1](x, w)"), leaves, {});
  for (const Element& e : conv.elements) got.push_back(e.first);
  // Twice the right neighbour and ten times the left one.
  EXPECT_EQ(got, (std::vector<uint64_t>{4, 16, 20, 10, 52, 50, 16, 88, 80}));
  got.clear();
  const Tensor pool = *Evaluate(*ParseTerm("max_pool[3,2](x)"), leaves, {});
  for (const Element& e : pool.elements) got.push_back(e.first);
  EXPECT_EQ(got, (std::vector<uint64_t>{5, 6, 8, 9}));
}

}  // namespace
}  // namespace heddle::substitution
