// Operators: completeness of the tables, refusals, and references written independently of the
// expressions.
#include "compiler/graph/core/operator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/ops/op_util.h"
#include "compiler/graph/ops/window.h"
#include "compiler/graph/passes/evaluate.h"
#include "tests/graph/random_graph.h"

namespace heddle::graph {
namespace {

using ::testing::HasSubstr;

TensorType F32(Shape shape) { return {ir::DType::kF32, std::move(shape)}; }

std::vector<OpKind> AllKinds() {
  std::vector<OpKind> kinds;
  for (size_t i = 0; i < kNumOpKinds; ++i) kinds.push_back(static_cast<OpKind>(i));
  return kinds;
}

TEST(Ops, EveryOperatorIsComplete) {
  for (OpKind kind : AllKinds()) {
    const OpDef& op = Def(kind);
    EXPECT_EQ(op.kind, kind) << NameOf(kind);
    EXPECT_EQ(OpKindFromName(NameOf(kind)), kind);
    EXPECT_TRUE(op.infer && op.express) << NameOf(kind);
    if (op.elementwise) {
      EXPECT_EQ(op.fusion, FusionClass::kInjective) << NameOf(kind);
    }
    // A form needs an operator that has one.
    EXPECT_TRUE(op.layout.last || (!op.layout.blocked && !op.layout.form)) << NameOf(kind);
  }
  EXPECT_EQ(OpKindFromName("no_such_operator"), std::nullopt);
}

TEST(Ops, AttributesAreChecked) {
  const std::vector<TensorType> x = {F32({1, 3, 8, 8})};
  const auto refusal = [&](const Attrs& attrs) {
    return std::string(InferType(OpKind::kMaxPool, x, attrs).status().message());
  };
  EXPECT_EQ(refusal({{"kernel", Shape{2, 2}}}), "");
  EXPECT_THAT(refusal({{"kernel", Shape{2, 2}}, {"stride", Shape{2, 2}}}),
              HasSubstr("has no attribute 'stride'"));
  EXPECT_THAT(refusal({{"kernel", int64_t{2}}}),
              HasSubstr("takes integers as attribute 'kernel', not an integer"));
  EXPECT_THAT(std::string(InferType(OpKind::kTranspose, x, {}).status().message()),
              HasSubstr("lacks the attribute 'perm'"));
  // A bound is a number of either type, another attribute is not.
  EXPECT_TRUE(InferType(OpKind::kClip, x, {{"min", int64_t{1}}, {"max", 2.5}}).ok());
  EXPECT_FALSE(InferType(OpKind::kElu, x, {{"alpha", int64_t{1}}}).ok());
}

// Refuses nonsense with a reason instead of crashing: no operands, operands of odd types and ranks.
TEST(Ops, InferenceSurvivesNonsense) {
  const std::vector<std::vector<TensorType>> operands = {
      {},
      {F32({})},
      {F32({2, 3})},
      {{ir::DType::kBool, {2}}},
      {F32({1, 2, 3, 4}), {ir::DType::kI64, {7}}},
      {F32({2}), F32({3}), F32({4})}};
  for (OpKind kind : AllKinds()) {
    for (const auto& in : operands) {
      auto type = InferType(kind, in, {});
      if (!type.ok()) {
        EXPECT_FALSE(type.status().message().empty()) << NameOf(kind);
      }
    }
  }
}

std::string TypeRefusal(OpKind kind, std::vector<TensorType> in, const Attrs& attrs = {}) {
  return std::string(InferType(kind, in, attrs).status().message());
}

TEST(Ops, RefusalsNameTheReason) {
  EXPECT_THAT(TypeRefusal(OpKind::kAdd, {F32({2, 3}), F32({2, 4})}),
              HasSubstr("shapes 2x3 and 2x4 do not broadcast"));
  EXPECT_THAT(TypeRefusal(OpKind::kAdd, {F32({2}), {ir::DType::kI32, {2}}}),
              HasSubstr("differ in type"));
  EXPECT_THAT(TypeRefusal(OpKind::kExp, {{ir::DType::kI32, {2}}}), HasSubstr("not defined on i32"));
  EXPECT_THAT(TypeRefusal(OpKind::kMatmul, {F32({2, 3}), F32({4, 5})}),
              HasSubstr("cannot multiply matrices 2x3 and 4x5"));
  EXPECT_THAT(TypeRefusal(OpKind::kConv2d, {F32({1, 3, 8, 8}), F32({4, 2, 3, 3})}),
              HasSubstr("do not fit input 1x3x8x8"));
  EXPECT_THAT(TypeRefusal(OpKind::kConv2d, {F32({1, 3, 2, 2}), F32({4, 3, 3, 3})}),
              HasSubstr("kernel does not fit"));
  EXPECT_THAT(TypeRefusal(OpKind::kConv2d, {F32({1, 3, 8, 8}), F32({4, 3, 3, 3})},
                          {{"strides", Shape{0, 1}}}),
              HasSubstr("out of range"));
  EXPECT_THAT(TypeRefusal(OpKind::kReshape, {F32({2, 3})}, {{"shape", Shape{4}}}),
              HasSubstr("cannot reshape f32[2,3] to 4"));
  EXPECT_THAT(TypeRefusal(OpKind::kReshape, {F32({4})}, {{"shape", Shape{-2, -2}}}),
              HasSubstr("cannot be"));
  EXPECT_THAT(TypeRefusal(OpKind::kTile, {F32({4})}, {{"repeats", Shape{INT64_MAX / 2}}}),
              HasSubstr("too often"));
  EXPECT_THAT(TypeRefusal(OpKind::kTranspose, {F32({2, 3})}, {{"perm", Shape{0, 0}}}),
              HasSubstr("permutation"));
  EXPECT_THAT(TypeRefusal(OpKind::kReduceSum, {F32({2})}, {{"axes", Shape{1}}}),
              HasSubstr("axis 1 is outside"));
  EXPECT_THAT(TypeRefusal(OpKind::kConcat, {F32({2, 3}), F32({3, 3})}, {{"axis", int64_t{1}}}),
              HasSubstr("cannot join"));
  EXPECT_THAT(TypeRefusal(OpKind::kSlice, {F32({4})},
                          {{"starts", Shape{3}}, {"steps", Shape{1}}, {"sizes", Shape{2}}}),
              HasSubstr("outside"));
  EXPECT_THAT(TypeRefusal(OpKind::kWhere, {F32({2}), F32({2}), F32({2})}),
              HasSubstr("bool condition"));
}

// A convolution in seven loops.
std::vector<double> ConvReference(const TensorData& x, const TensorData& w, int64_t stride,
                                  int64_t pad, int64_t groups) {
  const Shape &xs = x.type.shape, &ws = w.type.shape;
  const std::vector<double> xv = ToDoubles(x), wv = ToDoubles(w);
  const int64_t oh = (xs[2] + 2 * pad - ws[2]) / stride + 1,
                ow = (xs[3] + 2 * pad - ws[3]) / stride + 1;
  std::vector<double> out;
  for (int64_t n = 0; n < xs[0]; ++n) {
    for (int64_t o = 0; o < ws[0]; ++o) {
      for (int64_t p = 0; p < oh * ow; ++p) {
        double sum = 0;
        for (int64_t i = 0; i < ws[1]; ++i) {
          for (int64_t k = 0; k < ws[2] * ws[3]; ++k) {
            const int64_t y = p / ow * stride + k / ws[3] - pad,
                          z = p % ow * stride + k % ws[3] - pad;
            if (y < 0 || y >= xs[2] || z < 0 || z >= xs[3]) continue;
            const int64_t c = o / (ws[0] / groups) * ws[1] + i;
            sum += xv[((n * xs[1] + c) * xs[2] + y) * xs[3] + z] *
                   wv[(o * ws[1] + i) * ws[2] * ws[3] + k];
          }
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

TEST(Ops, ConvolutionMatchesSevenLoops) {
  TestRng rng(11);
  for (int64_t groups : {1, 2, 4}) {
    for (int64_t stride : {1, 2}) {
      for (int64_t pad : {0, 1, 2}) {
        const TensorData x = RandomTensor(rng, F32({2, 4, 6, 5})),
                         w = RandomTensor(rng, F32({8, 4 / groups, 3, 3}));
        auto y = EvaluateOp(
            OpKind::kConv2d,
            {{"groups", groups}, {"strides", Shape{stride, stride}}, {"pads", Shape(4, pad)}},
            std::vector{x, w});
        ASSERT_TRUE(y.ok()) << y.status();
        const std::vector<double> got = ToDoubles(*y),
                                  expected = ConvReference(x, w, stride, pad, groups);
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5);
      }
    }
  }
}

// One axis of a pool in plain loops: windows begin inside of the input or its leading padding. The
// pool's value is the sum or the maximum of the elements inside, and the number of taps that count.
struct PooledAxis {
  std::vector<double> sums, maxima, inside, with_padding;
};

PooledAxis PoolReference(const std::vector<double>& x, int64_t kernel, int64_t stride,
                         int64_t dilation, int64_t begin, int64_t end, bool ceil) {
  const int64_t extent = static_cast<int64_t>(x.size()), reach = (kernel - 1) * dilation + 1;
  PooledAxis out;
  for (int64_t start = -begin; start < extent; start += stride) {
    // All of a window must fit, or at least some of what would be the next step of it.
    const int64_t missing = start + reach - (extent + end);
    if (ceil ? missing >= stride : missing > 0) break;
    double sum = 0, max = -INFINITY, inside = 0, counted = 0;
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t i = start + k * dilation;
      counted += i < extent + end;
      if (i < 0 || i >= extent) continue;
      inside += 1;
      sum += x[i];
      max = std::max(max, x[i]);
    }
    out.sums.push_back(sum);
    out.maxima.push_back(max);
    out.inside.push_back(inside);
    out.with_padding.push_back(counted);
  }
  return out;
}

TEST(Ops, PoolsMatchPlainLoops) {
  TestRng rng(5);
  int compared = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto draw = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(rng);
    };
    const int64_t extent = draw(1, 9), kernel = draw(1, 4), stride = draw(1, 4);
    const int64_t dilation = draw(1, 2), begin = draw(0, kernel - 1), end = draw(0, kernel - 1);
    const int64_t ceil = draw(0, 1), count_padding = draw(0, 1);
    const TensorData x = RandomTensor(rng, F32({1, 1, extent}));
    Attrs attrs{{"kernel", Shape{kernel}},
                {"strides", Shape{stride}},
                {"dilations", Shape{dilation}},
                {"pads", Shape{begin, end}},
                {"ceil_mode", ceil}};
    const PooledAxis expected =
        PoolReference(ToDoubles(x), kernel, stride, dilation, begin, end, ceil != 0);
    const auto max = EvaluateOp(OpKind::kMaxPool, attrs, std::vector{x});
    attrs["count_include_pad"] = count_padding;
    const auto mean = EvaluateOp(OpKind::kAvgPool, attrs, std::vector{x});
    if (expected.sums.empty()) {
      EXPECT_FALSE(max.ok());
      continue;
    }
    ASSERT_TRUE(max.ok() && mean.ok()) << max.status() << mean.status();
    const std::vector<double> maxima = ToDoubles(*max), means = ToDoubles(*mean);
    ASSERT_EQ(maxima.size(), expected.sums.size())
        << extent << " by " << kernel << " stride " << stride << " dilation " << dilation
        << " pads " << begin << " " << end << " ceil " << ceil;
    for (size_t i = 0; i < maxima.size(); ++i) {
      if (expected.inside[i] == 0) continue;  // the padding alone has no maximum and no mean
      EXPECT_FLOAT_EQ(maxima[i], expected.maxima[i]);
      EXPECT_NEAR(means[i],
                  expected.sums[i] / (count_padding ? expected.with_padding : expected.inside)[i],
                  1e-5);
      ++compared;
    }
  }
  EXPECT_GT(compared, 3000);
}

TEST(Ops, ReshapeKeepsTheOrderOfElements) {
  const TensorData x = FromDoubles(
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23},
      {2, 3, 1, 4}, ir::DType::kF32);
  for (const Shape& to : std::vector<Shape>{
           {24}, {6, 4}, {1, 2, 12}, {2, 1, 3, 4, 1}, {4, 6}, {3, 8}, {1, 24, 1}, {2, 3, 4}}) {
    tensor::Builder b("reshape");
    std::vector<tensor::Tensor> in{b.Input("p0", ir::DType::kF32, x.type.shape)};
    auto out = Express(OpKind::kReshape, b, in, {{"shape", to}});
    ASSERT_TRUE(out.ok());
    auto y = EvaluateProgram(*b.Build({*out}), std::vector{x});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ(ToDoubles((*y)[0]), ToDoubles(x)) << ShapeText(to);
  }
}

TEST(Ops, RunningSumsAndProductsOfAPrefix) {
  const std::vector<double> x = {2, 3, 0.5, -1, 4, 2};
  for (const OpKind kind : {OpKind::kCumSum, OpKind::kCumProd}) {
    for (int exclusive = 0; exclusive < 2; ++exclusive) {
      std::vector<double> expected;
      for (size_t row = 0; row < 2; ++row) {
        double running = kind == OpKind::kCumSum ? 0 : 1;
        for (size_t i = 0; i < 3; ++i) {
          const double v = x[row * 3 + i];
          const double next = kind == OpKind::kCumSum ? running + v : running * v;
          expected.push_back(exclusive != 0 ? running : next);
          running = next;
        }
      }
      const auto y = EvaluateOp(kind, {{"axis", int64_t{1}}, {"exclusive", int64_t{exclusive}}},
                                std::vector{FromDoubles(x, {2, 3}, ir::DType::kF32)});
      ASSERT_TRUE(y.ok()) << y.status();
      EXPECT_EQ(ToDoubles(*y), expected) << NameOf(kind) << " " << exclusive;
    }
  }
}

// Squares as its author writes it: the halves of a number change places.
uint64_t SquaresOf(uint64_t counter, uint64_t key) {
  uint64_t x = counter * key;
  const uint64_t y = x, z = y + key;
  for (const uint64_t add : {y, z, y}) x = std::rotl(x * x + add, 32);
  return (x * x + z) >> 32;
}

TEST(Ops, RandomBitsAreThoseOfSquares) {
  constexpr int64_t kBits = 27;
  for (const int64_t seed : {int64_t{0}, int64_t{-7}, int64_t{1} << 62}) {
    for (const int64_t stream : {int64_t{3}, std::numeric_limits<int64_t>::min() + 11}) {
      const uint64_t sum = static_cast<uint64_t>(seed) + static_cast<uint64_t>(stream);
      const uint64_t key =
          ((SquaresOf(sum, 0x9e3779b97f4a7c15) << 32) + SquaresOf(sum, 0x6a09e667f3bcc909)) * 2 + 1;
      std::vector<int64_t> expected;
      for (uint64_t i = 0; i < 30; ++i)
        expected.push_back(static_cast<int64_t>(SquaresOf(i, key) >> (32 - kBits)));
      const std::vector<TensorData> operands = {Repeated(FromInts({seed}), {}),
                                                Repeated(FromInts({stream}), {})};
      const auto bits =
          EvaluateOp(OpKind::kRandomBits, {{"shape", Shape{5, 2, 3}}, {"bits", kBits}}, operands);
      ASSERT_TRUE(bits.ok()) << bits.status();
      EXPECT_EQ(bits->type, (TensorType{ir::DType::kI32, {5, 2, 3}}));
      EXPECT_EQ(ToInts(*bits), expected) << seed << " " << stream;
    }
  }
}

TEST(Ops, EvaluationOutOfBoundsIsAnErrorNotACrash) {
  tensor::Builder b("bad");
  const tensor::Tensor x = b.Input("x", ir::DType::kF32, {4});
  const tensor::Tensor y =
      b.Compute("y", {4}, [&](tensor::Iters s) { return x(s[0] + ir::Int(1)); });
  const TensorData data = FromDoubles({1, 2, 3, 4}, {4}, ir::DType::kF32);
  auto result = EvaluateProgram(*b.Build({y}), std::vector{data});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace heddle::graph
