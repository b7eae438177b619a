// Results of single operators where the standard is easily misread. differential.py found most of
// these cases; the expected values follow from the standard's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph::results_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// A model in ONNX's text form. `graph` is "(inputs) => (outputs) { nodes }".
std::string Model(int opset, const std::string& graph) {
  return onnx_cases::ModelOf(opset, graph).SerializeAsString();
}

// The first output of a model for these inputs.
TensorData Result(int opset, const std::string& graph, const std::vector<TensorData>& inputs) {
  const auto imported = ImportOnnx(Model(opset, graph));
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  const auto outputs = EvaluateGraph(*imported, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? outputs->front() : TensorData{};
}

std::vector<double> Values(int opset, const std::string& graph,
                           const std::vector<TensorData>& inputs) {
  const TensorData result = Result(opset, graph, inputs);
  return result.bytes == nullptr ? std::vector<double>{} : ToDoubles(result);
}

TensorData Floats(const std::vector<double>& values, const Shape& shape) {
  return FromDoubles(values, shape, ir::DType::kF32);
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

MATCHER(IsNan, "") { return std::isnan(arg); }
MATCHER(IsNear, "") { return std::fabs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-5; }

// Before opset 10, the mask of Dropout has the operand's type.
TEST(Results, MasksOfDropout) {
  for (const auto& [opset, type] :
       {std::pair{7, "float"}, {9, "float"}, {10, "bool"}, {13, "bool"}}) {
    const std::string graph =
        absl::StrCat("(float[2] x) => (float[2] y, ", type, "[2] m) {y, m = Dropout(x)}");
    const auto imported = ImportOnnx(Model(opset, graph));
    ASSERT_TRUE(imported.ok()) << opset << ": " << imported.status();
    const auto outputs = EvaluateGraph(*imported, std::vector{Floats({3, -4}, {2})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(ToDoubles((*outputs)[0]), ElementsAre(3, -4));
    EXPECT_THAT(ToDoubles((*outputs)[1]), ElementsAre(1, 1));
  }
}

// (27 + 64 + 125)^(1/3) = 6
TEST(Results, GlobalLpPoolTakesEveryNorm) {
  for (const auto& [p, expected] : {std::pair{1, 12.0}, {2, std::sqrt(50.0)}, {3, 6.0}}) {
    EXPECT_THAT(
        Values(
            22,
            absl::StrCat("(float[1,1,3] x) => (float[1,1,1] y) {y = GlobalLpPool<p = ", p, ">(x)}"),
            {Floats({3, -4, 5}, {1, 1, 3})}),
        Pointwise(IsNear(), {expected}));
  }
}

// Of each channel, the mean is 4 or 14, and the variance 5.
TEST(Results, BatchNormalizationByTheStatisticsOfTheBatch) {
  const std::string graph =
      "(float[2,2,2] x, float[2] s, float[2] b, float[2] m, float[2] v) => (float[2,2,2] y, "
      "float[2] rm, "
      "float[2] rv) {y, rm, rv = BatchNormalization<training_mode = 1, epsilon = 4.0, momentum = "
      "0.75>(x, s, b, m, v)}";
  const std::vector<TensorData> inputs = {Floats({1, 3, 11, 13, 5, 7, 15, 17}, {2, 2, 2}),
                                          Floats({3, 6}, {2}), Floats({1, 0}, {2}),
                                          Floats({8, 2}, {2}), Floats({1, 3}, {2})};
  for (int opset : {14, 15}) {
    const auto imported = ImportOnnx(Model(opset, graph));
    ASSERT_TRUE(imported.ok()) << imported.status();
    const auto outputs = EvaluateGraph(*imported, inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(ToDoubles((*outputs)[0]),
                Pointwise(IsNear(), {-2.0, 0.0, -6.0, -2.0, 2.0, 4.0, 2.0, 6.0}));
    EXPECT_THAT(ToDoubles((*outputs)[1]), Pointwise(IsNear(), {7.0, 5.0}));
    EXPECT_THAT(ToDoubles((*outputs)[2]), Pointwise(IsNear(), {2.0, 3.5}));
  }
}

// Between the edge and two elements beyond it, a cubic interpolation of the repeated edge overshoots.
TEST(Results, CubicTapsBeyondTheBorderReadTheEdge) {
  const std::vector<double> row = {1, 5, 2, 8};
  const std::vector<double> at = {-1e9, -1.7, -0.3, 0, 0.4, 3, 3.2, 4.5, 1e9};
  std::vector<double> grid, expected;
  for (double x : at) {
    grid.insert(grid.end(), {x / 1.5 - 1, 0});
    constexpr double a = -0.75;
    const double base = std::floor(x), t = x - base;
    const auto near = [&](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto far = [&](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    const auto tap = [&](double i) { return row[static_cast<size_t>(std::clamp(i, 0.0, 3.0))]; };
    expected.push_back(far(1 + t) * tap(base - 1) + near(t) * tap(base) +
                       near(1 - t) * tap(base + 1) + far(2 - t) * tap(base + 2));
  }
  EXPECT_THAT(
      Values(
          16,
          "(float[1,1,1,4] x, float[1,1,9,2] g) => (float[a,b,c,d] y) {"
          "y = GridSample<mode = \"bicubic\", padding_mode = \"border\", align_corners = 1>(x, g)}",
          {Floats(row, {1, 1, 1, 4}), Floats(grid, {1, 1, 9, 2})}),
      Pointwise(IsNear(), expected));
}

TEST(Results, HalfPixelSymmetricKeepsTheCentre) {
  const std::string graph =
      "(float[1,1,1,4] x) => (float[a,b,c,d] y) {"
      "scales = Constant<value = float[4] {1.0, 1.0, 1.0, 0.6}>()\n"
      "y = Resize<mode = \"linear\", coordinate_transformation_mode = \"half_pixel_symmetric\">"
      "(x, , scales)}";
  // Two elements of 1/0.6 = 5/3, around the centre between the second and the third.
  EXPECT_THAT(Values(17, graph, {Floats({1, 2, 3, 4}, {1, 1, 1, 4})}),
              Pointwise(IsNear(), std::vector<double>{2.5 - 5.0 / 6, 2.5 + 5.0 / 6}));
}

TEST(Results, ANormOfZeroGivesZero) {
  for (const int p : {1, 2}) {
    EXPECT_THAT(Values(13,
                       absl::StrCat("(float[2,2] x) => (float[a,b] y) {"
                                    "y = LpNormalization<axis = 1, p = ",
                                    p, ">(x)}"),
                       {Floats({0, 0, 0, 4}, {2, 2})}),
                ElementsAre(0, 0, 0, 1));
  }
}

// The window begins in the input, but ends beyond all padding.
TEST(Results, APartialWindowCountsIfItIsRoundedUp) {
  EXPECT_THAT(Values(12,
                     "(float[1,1,2] x) => (float[a,b,c] y) {"
                     "y = MaxPool<kernel_shape = [3], strides = [2], ceil_mode = 1>(x)}",
                     {Floats({1, 2}, {1, 1, 2})}),
              ElementsAre(2));
}

TEST(Results, RootsAndLogarithmsOfIntegersAreTruncated) {
  const TensorData x = FromInts({3, -4, 1, 9}, ir::DType::kI32);
  const auto reduced = [&](const std::string& op) {
    return Values(13, "(int32[4] x) => (int32 y) {y = " + op + "<keepdims = 0>(x)}", {x});
  };
  EXPECT_THAT(reduced("ReduceL2"), ElementsAre(10));        // sqrt(107)
  EXPECT_THAT(reduced("ReduceLogSum"), ElementsAre(2));     // log(9)
  EXPECT_THAT(reduced("ReduceLogSumExp"), ElementsAre(9));  // 9.003
  // The squares exceed 32 bits, the result does not.
  const std::string l2 = "(int32[2] x) => (int32 y) {y = ReduceL2<keepdims = 0>(x)}";
  EXPECT_THAT(Values(13, l2, {FromInts({300000, 400000}, ir::DType::kI32)}), ElementsAre(500000));
}

TEST(Results, InfinitiesPassThroughLogSumExp) {
  const std::string graph =
      "(float[3,2] x) => (float[a] y) {y = ReduceLogSumExp<axes = [1], keepdims = 0>(x)}";
  EXPECT_THAT(Values(13, graph, {Floats({kInf, 1, -kInf, -kInf, 2, -kInf}, {3, 2})}),
              ElementsAre(kInf, -kInf, 2));
}

TEST(Results, ShrinkOfIntegersHasAFraction) {
  const std::string graph = "(int32[5] x) => (int32[a] y) {y = Shrink<bias = 0.7, lambd = 1.5>(x)}";
  EXPECT_THAT(Values(13, graph, {FromInts({-5, -1, 1, 2, 9}, ir::DType::kI32)}),
              ElementsAre(-4, 0, 0, 1, 8));
}

// The quotient of the first has no exact whole part in single precision, that of the others is
// larger than all integers that single precision has.
TEST(Results, RemaindersOfFloatsAreExact) {
  const std::vector<double> x = {7, 1e10, -1e10, 3e38, -2.5, 2.5, 1, kInf, kNan},
                            y = {0.1, 0.540363, 2.75, 2.6871226, kInf, -kInf, 0, 1, 1};
  const TensorData left = Floats(x, {9}), right = Floats(y, {9});
  const std::vector<double> a = ToDoubles(left), b = ToDoubles(right);
  const std::vector<double> found = Values(
      13, "(float[9] x, float[9] y) => (float[a] z) {z = Mod<fmod = 1>(x, y)}", {left, right});
  ASSERT_EQ(found.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::fmod(a[i], b[i]);
    EXPECT_TRUE(found[i] == expected || (std::isnan(found[i]) && std::isnan(expected)))
        << x[i] << " mod " << y[i] << " = " << found[i] << ", not " << expected;
  }
}

TEST(Results, AnIgnoredTargetAddsNothingEvenIfInfinite) {
  const std::string graph =
      "(float[2,2] x, int64[2] t) => (float y) {"
      "y = NegativeLogLikelihoodLoss<ignore_index = 1, reduction = \"sum\">(x, t)}";
  EXPECT_THAT(Values(13, graph, {Floats({-3, 0, 0, -kInf}, {2, 2}), FromInts({0, 1})}),
              ElementsAre(3));
}

TEST(Results, AProductOfIntegersTakesFractions) {
  const std::string graph =
      "(int32[1,2] a, int32[2,2] b, int32[2] c) => (int32[m,n] y) {"
      "y = Gemm<alpha = 0.5, beta = 1.5>(a, b, c)}";
  const auto ints = [](const std::vector<int64_t>& values, const Shape& shape) {
    TensorData data = FromInts(values, ir::DType::kI32);
    data.type.shape = shape;
    return data;
  };
  // 0.5 * 7 + 1.5 * 1 and 0.5 * 10 + 1.5 * -5
  EXPECT_THAT(
      Values(13, graph, {ints({1, 2}, {1, 2}), ints({1, 2, 3, 4}, {2, 2}), ints({1, -5}, {2})}),
      ElementsAre(5, -2));
}

// Whether a bound is a constant or not, the maximum comes last.
TEST(Results, AClipWithCrossedBoundsGivesTheMaximum) {
  const std::string graph =
      "(float[1] x, float high) => (float[a] y) {"
      "low = Constant<value_float = 2.0>()\ny = Clip(x, low, high)}";
  EXPECT_THAT(Values(13, graph, {Floats({0}, {1}), Floats({-1}, {})}), ElementsAre(-1));
}

TEST(Results, DefaultsAreOfSinglePrecision) {
  const std::string graph = "(double[1] x) => (double[a] y) {y = LeakyRelu(x)}";
  EXPECT_THAT(Values(16, graph, {FromDoubles({-1}, {1}, ir::DType::kF64)}),
              ElementsAre(-static_cast<double>(0.01F)));
}

TEST(Results, NansPassThrough) {
  const TensorData x = Floats({kNan, -2}, {2}), zero = Floats({0, kNan}, {2});
  const auto first = [&](const std::string& call) {
    return Values(14, "(float[2] x, float[2] z) => (float[a] y) {y = " + call + "}", {x, zero});
  };
  for (const char* call : {"Max(x, z)", "Min(x, z)", "Max(z, x)", "Min(z, x)"})
    EXPECT_THAT(first(call), ElementsAre(IsNan(), IsNan())) << call;
  EXPECT_THAT(first("Sign(x)"), ElementsAre(IsNan(), -1));
  EXPECT_THAT(first("HardSigmoid(x)"), ElementsAre(IsNan(), testing::DoubleNear(0.1, 1e-6)));
  EXPECT_THAT(first("HardSwish(x)"), ElementsAre(IsNan(), testing::DoubleNear(-1.0 / 3, 1e-6)));
}

TEST(Results, WhatIsNotLookedForIsNotFound) {
  const std::string graph =
      "(float[3] x) => (bool[a] y) {y = IsInf<detect_negative = 0, detect_positive = 0>(x)}";
  EXPECT_THAT(Values(13, graph, {Floats({kNan, kInf, 1}, {3})}), ElementsAre(0, 0, 0));
}

TEST(Results, AnUnknownWayIsNamedWithTheKnownOnes) {
  struct Case {
    const char *graph, *name, *known;
  };
  const Case cases[] = {
      {"(float[1,1,4,4] x, float[1,2,2,2] g) => (float[a,b,c,d] y) {"
       "y = GridSample<mode = \"odd\">(x, g)}",
       "mode", "bilinear"},
      {"(float[1,1,4,4] x, float[1,2,2,2] g) => (float[a,b,c,d] y) {"
       "y = GridSample<padding_mode = \"odd\">(x, g)}",
       "padding_mode", "reflection"},
      {"(float[1,1,4,4] x) => (float[a,b,c,d] y) {"
       "s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()\ny = Resize<mode = \"odd\">(x, , s)}",
       "mode", "nearest, linear, cubic"},
      {"(float[1,1,4,4] x) => (float[a,b,c,d] y) {"
       "s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()\n"
       "y = Resize<coordinate_transformation_mode = \"odd\">(x, , s)}",
       "coordinate_transformation_mode", "half_pixel_symmetric"},
      {"(float[1,1,4,4] x) => (float[a,b,c,d] y) {"
       "s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()\n"
       "y = Resize<nearest_mode = \"odd\">(x, , s)}",
       "nearest_mode", "round_prefer_floor"},
      {"(float[1,1,4,4] x, float[1,1,3,3] w) => (float[a,b,c,d] y) {"
       "y = Conv<auto_pad = \"odd\">(x, w)}",
       "auto_pad", "SAME_UPPER"},
      {"(float[1,1,4,4] x, float[1,1,3,3] w) => (float[a,b,c,d] y) {"
       "y = ConvTranspose<auto_pad = \"odd\">(x, w)}",
       "auto_pad", "SAME_UPPER"},
      {"(uint8[1,1,4,4] x, uint8[1,1,3,3] w) => (int32[a,b,c,d] y) {"
       "y = ConvInteger<auto_pad = \"odd\">(x, w)}",
       "auto_pad", "NOTSET"},
      {"(float[1,1,4,4] x) => (float[a,b,c,d] y) {"
       "y = MaxPool<kernel_shape = [2, 2], auto_pad = \"odd\">(x)}",
       "auto_pad", "SAME_UPPER"},
      {"(float[4] x) => (float[a] y) {"
       "p = Constant<value = int64[2] {1, 1}>()\ny = Pad<mode = \"odd\">(x, p)}",
       "mode", "constant, reflect, edge, wrap"},
      {"(float[1,4,2,2] x) => (float[a,b,c,d] y) {"
       "y = DepthToSpace<blocksize = 2, mode = \"odd\">(x)}",
       "mode", "DCR, CRD"},
      {"(uint8[4] x, uint8[4] by) => (uint8[a] y) {y = BitShift<direction = \"odd\">(x, by)}",
       "direction", "LEFT, RIGHT"},
      {"(float[4] x, int64[1] i, float[1] u) => (float[a] y) {"
       "y = ScatterElements<reduction = \"odd\">(x, i, u)}",
       "reduction", "none, add"},
      {"(float[4] x, int64[1,1] i, float[1] u) => (float[a] y) {"
       "y = ScatterND<reduction = \"odd\">(x, i, u)}",
       "reduction", "none, add"},
      {"(float[2,3] x, int64[2] t) => (float y) {"
       "y = NegativeLogLikelihoodLoss<reduction = \"odd\">(x, t)}",
       "reduction", "mean, sum, none"},
      {"(float[2,1,3] x, float[1,2,3] w, float[1,2,2] r) => (float[a,b,c,d] y) {"
       "y = RNN<hidden_size = 2, direction = \"odd\">(x, w, r)}",
       "direction", "bidirectional"},
  };
  for (const Case& c : cases) {
    const absl::Status status = ImportOnnx(Model(16, c.graph)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << c.graph << "\n" << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat(c.name, " 'odd'")), HasSubstr(c.known)))
        << c.graph;
  }
}

// Two elements a byte, the first in the low bits; the scale of a block of two counts for both.
TEST(Results, PackedWeightsInBlocks) {
  onnx::ModelProto model = onnx_cases::ModelOf(
      21,
      "(float[2,2] s) => (float[2,3] y) { y = DequantizeLinear<axis = 1, block_size = 2>(w, s) }");
  auto* weights = model.mutable_graph()->add_initializer();
  weights->set_name("w");
  weights->set_data_type(onnx::TensorProto::INT4);
  weights->add_dims(2);
  weights->add_dims(3);
  weights->set_raw_data("\x21\x8f\x07", 3);  // 1 2 -1, -8 7 0
  const auto graph = ImportOnnx(model.SerializeAsString());
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto y = EvaluateGraph(*graph, std::vector<TensorData>{Floats({1, 10, 2, 0.5}, {2, 2})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(ToDoubles(y->front()), ElementsAre(1, 2, -10, -16, 14, 0));
}

// Every value of an 8-bit float is its own cast; between two, the nearer one, or the even one.
TEST(Results, CastsToFloatsOfEightBits) {
  const std::string to_and_back =
      "(float[11] x) => (float[11] y) { e = Cast<to = 17>(x) y = Cast<to = 1>(e) }";
  const TensorData x =
      Floats({448, 464, 465, -1e30, 1.0625, 1.1875, 0x1p-10, 0x1.8p-10, kInf, -0.0, kNan}, {11});
  EXPECT_THAT(Values(19, to_and_back, {x}),
              ElementsAre(448, 448, 448, -448, 1, 1.25, 0, 0x1p-9, 448, 0, IsNan()));
  const std::string without =
      "(float[4] x) => (float[4] y) { e = Cast<to = 19, saturate = 0>(x) y = Cast<to = 1>(e) }";
  EXPECT_THAT(Values(19, without, {Floats({57344, 61440, -70000, 1.125}, {4})}),
              ElementsAre(57344, kInf, -kInf, 1));
}

TEST(Results, ShiftsOfSignedIntegers) {
  const std::string right =
      "(int8[5] x, int8[5] y) => (int8[5] z) { z = BitShift<direction = \"RIGHT\">(x, y) }";
  const TensorData x = FromInts({-128, -1, 127, -100, 100}, ir::DType::kI8);
  EXPECT_THAT(Values(28, right, {x, FromInts({7, 1, 6, 100, -1}, ir::DType::kI8)}),
              ElementsAre(-1, -1, 1, -1, 0));
}

}  // namespace
}  // namespace heddle::graph::results_test
