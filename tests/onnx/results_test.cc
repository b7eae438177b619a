// Results of single operators where the standard is easily misread. differential.py found most of
// these cases; the expected values follow from the standard's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph {
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

MATCHER(IsNear, "") { return std::fabs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-5; }

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

}  // namespace
}  // namespace heddle::graph
