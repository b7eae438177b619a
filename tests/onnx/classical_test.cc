// Operators of ai.onnx.ml against the same computations in plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/graph/core/row_blocks.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/onnx/import.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph::classical_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Rng = std::mt19937_64;
using Row = std::vector<double>;
using Rows = std::vector<Row>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

onnx::ModelProto Model(const std::string& graph, int ml_opset = 1) {
  return onnx_cases::ClassicalModelOf(18, ml_opset, graph);
}

std::vector<TensorData> Results(const onnx::ModelProto& model,
                                const std::vector<TensorData>& inputs) {
  const auto graph = ImportOnnx(model.SerializeAsString());
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  const auto outputs = EvaluateGraph(*graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *outputs : std::vector<TensorData>{};
}

std::vector<TensorData> Results(const std::string& graph, const std::vector<TensorData>& inputs,
                                int ml_opset = 1) {
  return Results(Model(graph, ml_opset), inputs);
}

// The values of the only output.
Row Values(const std::string& graph, const std::vector<TensorData>& inputs, int ml_opset = 1) {
  const std::vector<TensorData> results = Results(graph, inputs, ml_opset);
  EXPECT_EQ(results.size(), 1u) << graph;
  return results.size() == 1 ? ToDoubles(results[0]) : Row{};
}

std::string Refusal(const std::string& graph, int ml_opset = 1) {
  const absl::Status status = ImportOnnx(Model(graph, ml_opset).SerializeAsString()).status();
  EXPECT_FALSE(status.ok()) << graph;
  const std::string text(status.message());
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  return text;
}

// A list of numbers as text. A float needs a point or an exponent.
std::string List(const Row& numbers) {
  return absl::StrCat("[",
                      absl::StrJoin(numbers, ", ",
                                    [](std::string* out, double v) {
                                      char text[32];
                                      std::snprintf(text, sizeof(text), "%.9e", v);
                                      out->append(text);
                                    }),
                      "]");
}
std::string Integers(const std::vector<int64_t>& numbers) {
  return absl::StrCat("[", absl::StrJoin(numbers, ", "), "]");
}

double Random(Rng& rng) {  // an f32 from -2 to 2
  return static_cast<float>(static_cast<double>(rng() % 4001) / 1000 - 2);
}
Row Randoms(Rng& rng, size_t count) {
  Row numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back(Random(rng));
  return numbers;
}
Rows RandomRows(Rng& rng, size_t rows, size_t columns) {
  Rows out;
  for (size_t i = 0; i < rows; ++i) out.push_back(Randoms(rng, columns));
  return out;
}
Row Flat(const Rows& rows) {
  Row out;
  for (const Row& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}
TensorData Matrix(const Rows& rows, ir::DType dtype = ir::DType::kF32) {
  return FromDoubles(
      Flat(rows), {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}, dtype);
}
TensorData Floats(const Row& values, const Shape& shape) {
  return FromDoubles(values, shape, ir::DType::kF32);
}
TensorData Ints(const std::vector<int64_t>& values, const Shape& shape,
                ir::DType dtype = ir::DType::kI64) {
  return {{dtype, shape}, FromInts(values, dtype).bytes};
}

void ExpectNear(const Row& found, const Row& expected, double near = 2e-5) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << "element " << i;
    } else {
      EXPECT_NEAR(found[i], expected[i], near * (1 + std::fabs(expected[i]))) << "element " << i;
    }
  }
}

// ---- Numbers to numbers ----

TEST(MlFeatures, ScalersSubtractAndMultiply) {
  Rng rng(1);
  const Rows x = RandomRows(rng, 3, 4);
  const Row offset = Randoms(rng, 4), scale = Randoms(rng, 4);
  Row expected;
  for (const Row& row : x) {
    for (size_t f = 0; f < 4; ++f) expected.push_back((row[f] - offset[f]) * scale[f]);
  }
  const std::string scaler =
      absl::StrCat("ai.onnx.ml.Scaler<offset = ", List(offset), ", scale = ", List(scale), ">(x)");
  ExpectNear(
      Values(absl::StrCat("(float[3,4] x) => (float[a,b] y) {y = ", scaler, "}"), {Matrix(x)}),
      expected);
  ExpectNear(Values(absl::StrCat("(double[3,4] x) => (float[a,b] y) {y = ", scaler, "}"),
                    {Matrix(x, ir::DType::kF64)}),
             expected);
  EXPECT_THAT(Values("(int64[1,2] x) => (float[a,b] y) {"
                     "y = ai.onnx.ml.Scaler<offset = [0.5], scale = [2.0]>(x)}",
                     {Ints({1, -2}, {1, 2})}),
              ElementsAre(1, -5));
  EXPECT_THAT(Values("(float[2] x) => (float[a] y) {"
                     "y = ai.onnx.ml.Scaler<offset = [1.0, 2.0], scale = [2.0, 3.0]>(x)}",
                     {Floats({1, 3}, {2})}),
              ElementsAre(0, 3));
}

TEST(MlFeatures, NormsOfZeroChangeNothing) {
  Rng rng(2);
  Rows x = RandomRows(rng, 4, 3);
  x[1] = {0, 0, 0};
  for (const std::string norm : {"MAX", "L1", "L2"}) {
    Row expected;
    for (const Row& row : x) {
      double length = 0;
      for (const double v : row) {
        length = norm == "MAX"  ? std::max(length, std::fabs(v))
                 : norm == "L1" ? length + std::fabs(v)
                                : length + v * v;
      }
      if (norm == "L2") length = std::sqrt(length);
      for (const double v : row) expected.push_back(length == 0 ? v : v / length);
    }
    ExpectNear(Values(absl::StrCat("(float[4,3] x) => (float[a,b] y) {"
                                   "y = ai.onnx.ml.Normalizer<norm = \"",
                                   norm, "\">(x)}"),
                      {Matrix(x)}),
               expected);
  }
  EXPECT_THAT(Values("(int32[2] x) => (float[a] y) {y = ai.onnx.ml.Normalizer<norm = \"L1\">(x)}",
                     {Ints({1, -3}, {2}, ir::DType::kI32)}),
              ElementsAre(0.25, -0.75));
}

TEST(MlFeatures, ImputersReplaceOneValue) {
  const std::string floats =
      "(float[2,2] x) => (float[a,b] y) {y = ai.onnx.ml.Imputer<imputed_value_floats = [5.0, 6.0]";
  const TensorData x = Floats({1, -1, kNan, 4}, {2, 2});
  ExpectNear(Values(absl::StrCat(floats, ", replaced_value_float = -1.0>(x)}"), {x}),
             {1, 6, kNan, 4});
  onnx::ModelProto model = Model(absl::StrCat(floats, ", replaced_value_float = 0.0>(x)}"));
  model.mutable_graph()->mutable_node(0)->mutable_attribute(1)->set_f(static_cast<float>(kNan));
  const auto results = Results(model, {x});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(ToDoubles(results[0]), ElementsAre(1, -1, 5, 4));
  EXPECT_THAT(Values("(double[3] x) => (double[a] y) {"
                     "y = ai.onnx.ml.Imputer<imputed_value_floats = [0.5]>(x)}",
                     {FromDoubles({0, 1, 0}, {3}, ir::DType::kF64)}),
              ElementsAre(0.5, 1, 0.5));
  for (const auto& [type, dtype] :
       {std::pair{"int64", ir::DType::kI64}, {"int32", ir::DType::kI32}})
    EXPECT_THAT(
        Values(absl::StrCat("(", type, "[1,3] x) => (", type,
                            "[a,b] y) {y = ai.onnx.ml.Imputer<imputed_value_int64s = [7, 8, 9], "
                            "replaced_value_int64 = -1>(x)}"),
               {Ints({-1, 2, -1}, {1, 3}, dtype)}),
        ElementsAre(7, 2, 9));
}

TEST(MlFeatures, BinarizersCompareWithAFraction) {
  for (const auto& [type, dtype] : {std::pair{"float", ir::DType::kF32},
                                    {"double", ir::DType::kF64},
                                    {"int32", ir::DType::kI32},
                                    {"int64", ir::DType::kI64}}) {
    EXPECT_THAT(Values(absl::StrCat("(", type, "[4] x) => (", type,
                                    "[a] y) {y = ai.onnx.ml.Binarizer<threshold = 1.5>(x)}"),
                       {FromDoubles({-3, 1, 2, 3}, {4}, dtype)}),
                ElementsAre(0, 0, 1, 1))
        << type;
  }
  EXPECT_THAT(Values("(float[3] x) => (float[a] y) {y = ai.onnx.ml.Binarizer(x)}",
                     {Floats({0, kNan, 0.1}, {3})}),
              ElementsAre(0, 0, 1));
}

// ---- Columns ----

TEST(MlFeatures, VectorizersCutAndFill) {
  EXPECT_THAT(Values("(float[2,2] x, float[2,1] y, float[2,3] z) => (float[a,b] r) {"
                     "r = ai.onnx.ml.FeatureVectorizer<inputdimensions = [1, 2, 3]>(x, y, z)}",
                     {Floats({1, 2, 3, 4}, {2, 2}), Floats({5, 6}, {2, 1}),
                      Floats({7, 8, 9, 10, 11, 12}, {2, 3})}),
              ElementsAre(1, 5, 0, 7, 8, 9, 3, 6, 0, 10, 11, 12));
  EXPECT_THAT(Values("(int64[2] x, int64[1] y) => (float[a,b] r) {"
                     "r = ai.onnx.ml.FeatureVectorizer(x, y)}",
                     {Ints({1, 2}, {2}), Ints({3}, {1})}),
              ElementsAre(1, 2, 3));
}

TEST(MlFeatures, ExtractorsPickFromTheLastDimension) {
  const std::string pick =
      " {i = Constant<value = int64[1,3] {2, 0, 2}>() y = ai.onnx.ml.ArrayFeatureExtractor(x, i)}";
  const auto matrix =
      Results("(float[2,3] x) => (float[a,b] y)" + pick, {Floats({1, 2, 3, 4, 5, 6}, {2, 3})});
  ASSERT_EQ(matrix.size(), 1u);
  EXPECT_EQ(matrix[0].type.shape, (Shape{2, 3}));
  EXPECT_THAT(ToDoubles(matrix[0]), ElementsAre(3, 1, 3, 6, 4, 6));
  const auto vector = Results("(int64[3] x) => (int64[a,b] y)" + pick, {Ints({7, 8, 9}, {3})});
  ASSERT_EQ(vector.size(), 1u);
  EXPECT_EQ(vector[0].type.shape, (Shape{1, 3}));
  EXPECT_THAT(ToDoubles(vector[0]), ElementsAre(9, 7, 9));
  EXPECT_THAT(Refusal("(float[2,2] x) => (float[a,b] y)" + pick), HasSubstr("feature 2 of 2"));
}

// ---- Categories ----

TEST(MlFeatures, OneHotTakesIntegersOfAnyType) {
  for (const auto& [type, dtype] : {std::pair{"float", ir::DType::kF32},
                                    {"double", ir::DType::kF64},
                                    {"int32", ir::DType::kI32},
                                    {"int64", ir::DType::kI64}}) {
    for (const int zeros : {0, 1}) {
      const auto results =
          Results(absl::StrCat("(", type,
                               "[2,2] x) => (float[a,b,c] y) {"
                               "y = ai.onnx.ml.OneHotEncoder<cats_int64s = [3, -1, 5], zeros = ",
                               zeros, ">(x)}"),
                  {FromDoubles({5, 3, 4, -1}, {2, 2}, dtype)});
      ASSERT_EQ(results.size(), 1u);
      EXPECT_EQ(results[0].type.shape, (Shape{2, 2, 3}));
      EXPECT_THAT(ToDoubles(results[0]), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0)) << type;
    }
  }
  EXPECT_THAT(Values("(float[1] x) => (float[a,b] y) {"
                     "y = ai.onnx.ml.OneHotEncoder<cats_int64s = [3, 4]>(x)}",
                     {Floats({3.9}, {1})}),
              ElementsAre(1, 0));
  EXPECT_THAT(Refusal("(int64[1] x) => (float[a,b] y) {"
                      "y = ai.onnx.ml.OneHotEncoder<cats_int64s = [3, 3]>(x)}"),
              HasSubstr("twice"));
}

// The value of the last key that equals x, which may be NaN.
double LookedUp(const Row& keys, const Row& values, double fallback, double x) {
  for (size_t i = keys.size(); i-- > 0;) {
    if (keys[i] == x || (std::isnan(keys[i]) && std::isnan(x))) return values[i];
  }
  return fallback;
}

void SetNumbers(onnx::AttributeProto* a, const std::string& name, const Row& numbers, bool real) {
  a->set_name(name);
  a->set_type(real ? onnx::AttributeProto::FLOATS : onnx::AttributeProto::INTS);
  for (const double v : numbers)
    real ? a->add_floats(static_cast<float>(v)) : a->add_ints(static_cast<int64_t>(v));
}

TEST(MlFeatures, LabelEncodersMapNumbersToNumbers) {
  Rng rng(3);
  for (const bool real_keys : {false, true}) {
    for (const bool real_values : {false, true}) {
      for (int trial = 0; trial < 20; ++trial) {
        Row keys, values, x;
        for (uint64_t i = 0, count = 1 + rng() % 8; i < count; ++i) {
          keys.push_back(static_cast<double>(rng() % 12) - 6);
          if (real_keys && rng() % 5 == 0) keys.back() = rng() % 2 ? kNan : 0.5;
          values.push_back(static_cast<double>(rng() % 100));
        }
        for (int i = 0; i < 20; ++i) {
          x.push_back(static_cast<double>(rng() % 14) - 7);
          if (real_keys && rng() % 5 == 0) x.back() = rng() % 2 ? kNan : 0.5;
        }
        for (const int opset : {2, 4}) {
          onnx::ModelProto model =
              Model(absl::StrCat("(", real_keys ? "float" : "int64", "[4,5] x) => (",
                                 real_values ? "float" : "int64",
                                 "[a,b] y) {y = ai.onnx.ml.LabelEncoder<default_int64 = 77, "
                                 "default_float = 77.0>(x)}"),
                    opset);
          onnx::NodeProto* node = model.mutable_graph()->mutable_node(0);
          SetNumbers(node->add_attribute(), real_keys ? "keys_floats" : "keys_int64s", keys,
                     real_keys);
          SetNumbers(node->add_attribute(), real_values ? "values_floats" : "values_int64s", values,
                     real_values);
          const auto results = Results(
              model, {FromDoubles(x, {4, 5}, real_keys ? ir::DType::kF32 : ir::DType::kI64)});
          ASSERT_EQ(results.size(), 1u);
          Row expected;
          for (const double v : x) expected.push_back(LookedUp(keys, values, 77, v));
          EXPECT_EQ(ToDoubles(results[0]), expected);
        }
      }
    }
  }
}

TEST(MlFeatures, LabelEncodersTakeTensors) {
  EXPECT_THAT(
      Values("(double[4] x) => (int16[a] y) {y = ai.onnx.ml.LabelEncoder<"
             "keys_tensor = double[3] {0.1, 2.0, 0.3}, values_tensor = int16[3] {5, -6, 7}, "
             "default_tensor = int16[1] {-9}>(x)}",
             {FromDoubles({0.3, 0.1, 7, 2}, {4}, ir::DType::kF64)}, 4),
      ElementsAre(7, 5, -9, -6));
  EXPECT_THAT(Values("(int32[2] x) => (double[a] y) {y = ai.onnx.ml.LabelEncoder<"
                     "keys_tensor = int32[1] {3}, values_tensor = double[1] {0.1}>(x)}",
                     {Ints({3, 4}, {2}, ir::DType::kI32)}, 4),
              ElementsAre(0.1, 0));
  EXPECT_THAT(Refusal("(int32[2] x) => (int64[a] y) {y = ai.onnx.ml.LabelEncoder<"
                      "keys_int64s = [1], values_int64s = [2]>(x)}",
                      4),
              HasSubstr("keys of type i64"));
  EXPECT_THAT(Refusal("(int64[2] x) => (int64[a] y) {y = ai.onnx.ml.LabelEncoder<"
                      "keys_int64s = [1, 2], values_int64s = [2]>(x)}",
                      2),
              HasSubstr("2 keys and 1 values"));
}

// Instead of strings out of a list, there are places in the list.
TEST(MlFeatures, StringsOfListsArePlaces) {
  const TensorData x = Ints({2, 0, 9, 1}, {4});
  EXPECT_THAT(Values("(int64[4] x) => (string[a] y) {"
                     "y = ai.onnx.ml.LabelEncoder<classes_strings = [\"a\", \"b\", \"c\"]>(x)}",
                     {x}),
              ElementsAre(2, 0, -1, 1));
  EXPECT_THAT(Values("(int64[4] x) => (string[a] y) {y = ai.onnx.ml.LabelEncoder<"
                     "keys_int64s = [9, 2], values_strings = [\"a\", \"b\"]>(x)}",
                     {x}, 2),
              ElementsAre(1, -1, 0, -1));
  EXPECT_THAT(Values("(int64[4] x) => (string[a] y) {z = ai.onnx.ml.CategoryMapper<"
                     "cats_int64s = [9, 2], cats_strings = [\"a\", \"b\"]>(x) y = Identity(z)}",
                     {x}),
              ElementsAre(1, -1, 0, -1));
  onnx::ModelProto model = Model(
      "(int64[4] x) => (string[a,b] y) {z = ai.onnx.ml.ArrayFeatureExtractor(classes, x) "
      "s = Constant<value = int64[2] {2, 2}>() y = Reshape(z, s)}");
  onnx::TensorProto* classes = model.mutable_graph()->add_initializer();
  classes->set_name("classes");
  classes->set_data_type(onnx::TensorProto::STRING);
  classes->add_dims(3);
  for (const char* name : {"a", "b", "c"}) classes->add_string_data(name);
  const auto results = Results(model, {Ints({2, 0, 1, 1}, {4})});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].type, (TensorType{ir::DType::kI64, {2, 2}}));
  EXPECT_THAT(ToDoubles(results[0]), ElementsAre(2, 0, 1, 1));
}

// ---- Scores ----

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

Row TransformedRow(Row x, const std::string& transform) {
  if (transform == "LOGISTIC") {
    for (double& v : x) v = Logistic(v);
  } else if (transform == "PROBIT") {
    // The approximation of the inverse of erf that the standard's reference has.
    for (double& v : x) {
      const double y = 2 * v - 1, log = std::log((1 - y) * (1 + y)),
                   half = 2 / (M_PI * 0.147) + log / 2;
      v = std::copysign(std::sqrt(2) * std::sqrt(std::sqrt(half * half - log / 0.147) - half), y);
    }
  } else if (transform != "NONE") {
    const bool zeros_stay = transform == "SOFTMAX_ZERO";
    double sum = 0;
    for (double& v : x) sum += v = zeros_stay && v == 0 ? 0 : std::exp(v);
    for (double& v : x) v = sum == 0 ? 0 : v / sum;
  }
  return x;
}

constexpr const char* kTransforms[] = {"NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"};

int64_t Best(const Row& scores) {
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

double Dot(const double* a, const double* b, size_t count) {
  return std::inner_product(a, a + count, b, 0.0);
}

TEST(MlLinear, RegressorsOfSeveralTargets) {
  Rng rng(4);
  for (const std::string transform : {"NONE", "LOGISTIC", "SOFTMAX"}) {
    for (const size_t targets : {1, 3}) {
      const Rows x = RandomRows(rng, 5, 4);
      const Row coefficients = Randoms(rng, 4 * targets), intercepts = Randoms(rng, targets);
      Row expected;
      for (const Row& row : x) {
        Row y;
        for (size_t t = 0; t < targets; ++t)
          y.push_back(Dot(row.data(), &coefficients[4 * t], 4) + intercepts[t]);
        y = TransformedRow(y, transform);
        expected.insert(expected.end(), y.begin(), y.end());
      }
      const auto results = Results(
          absl::StrCat(
              "(float[5,4] x) => (float[a,b] y) {y = ai.onnx.ml.LinearRegressor<targets = ",
              targets, ", coefficients = ", List(coefficients), ", intercepts = ", List(intercepts),
              ", post_transform = \"", transform, "\">(x)}"),
          {Matrix(x)});
      ASSERT_EQ(results.size(), 1u);
      EXPECT_EQ(results[0].type.shape, (Shape{5, static_cast<int64_t>(targets)}));
      ExpectNear(ToDoubles(results[0]), expected);
    }
  }
  EXPECT_THAT(Values("(int64[2] x) => (float[a,b] y) {"
                     "y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 2.0]>(x)}",
                     {Ints({3, 4}, {2})}),
              ElementsAre(11));
  EXPECT_THAT(Refusal("(float[1,2] x) => (float[a,b] y) {"
                      "y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 2.0, 3.0]>(x)}"),
              HasSubstr("3 numbers of 'coefficients'"));
}

TEST(MlLinear, ClassifiersOfSeveralClasses) {
  Rng rng(5);
  for (const std::string transform : kTransforms) {
    const std::vector<int64_t> labels = {7, -2, 30};
    Rows x = RandomRows(rng, 6, 4);
    Row coefficients = Randoms(rng, 12), intercepts = Randoms(rng, 3);
    if (transform == "PROBIT") {  // it takes probabilities
      for (double& c : coefficients) c = std::fabs(c) / 40;
      for (double& c : intercepts) c = 0.4 + c / 20;
      for (Row& row : x) {
        for (double& v : row) v = std::fabs(v);
      }
    }
    Row expected, expected_labels;
    for (const Row& row : x) {
      Row scores;
      for (size_t c = 0; c < 3; ++c)
        scores.push_back(Dot(row.data(), &coefficients[4 * c], 4) + intercepts[c]);
      expected_labels.push_back(static_cast<double>(labels[Best(scores)]));
      scores = TransformedRow(scores, transform);
      expected.insert(expected.end(), scores.begin(), scores.end());
    }
    const auto results =
        Results(absl::StrCat("(float[6,4] x) => (int64[a] label, float[b,c] z) {"
                             "label, z = ai.onnx.ml.LinearClassifier<classlabels_ints = ",
                             Integers(labels), ", coefficients = ", List(coefficients),
                             ", intercepts = ", List(intercepts), ", post_transform = \"",
                             transform, "\", multi_class = 1>(x)}"),
                {Matrix(x)});
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(ToDoubles(results[0]), expected_labels) << transform;
    ExpectNear(ToDoubles(results[1]), expected, transform == "PROBIT" ? 2e-4 : 2e-5);
  }
}

TEST(MlLinear, ClassifiersOfOneScore) {
  for (const std::string transform : {"NONE", "LOGISTIC", "SOFTMAX"}) {
    const auto results =
        Results(absl::StrCat("(double[3,1] x) => (int64[a] label, float[b,c] z) {"
                             "label, z = ai.onnx.ml.LinearClassifier<classlabels_ints = [4, 5], "
                             "coefficients = [2.0], intercepts = [-1.0], post_transform = \"",
                             transform, "\">(x)}"),
                {FromDoubles({0.5, 0.75, -1}, {3, 1}, ir::DType::kF64)});
    ASSERT_EQ(results.size(), 2u);
    EXPECT_THAT(ToDoubles(results[0]), ElementsAre(4, 5, 4));
    Row expected;
    for (const double score : {0.0, 0.5, -3.0}) {
      const Row both = TransformedRow({-score, score}, transform);
      expected.insert(expected.end(), both.begin(), both.end());
    }
    ExpectNear(ToDoubles(results[1]), expected);
  }
}

TEST(MlLinear, SoftmaxZeroLeavesZerosOut) {
  ExpectNear(Values("(float[3,2] x) => (float[a,b] y) {y = ai.onnx.ml.LinearRegressor<targets = 2, "
                    "coefficients = [1.0, 0.0, 0.0, 1.0], post_transform = \"SOFTMAX_ZERO\">(x)}",
                    {Floats({0, 2, 0, 0, 1, 1}, {3, 2})}),
             {0, 1, 0, 0, 0.5, 0.5});
}

// ---- Support vector machines ----

struct Svm {
  std::string kernel;
  double gamma = 0.2, offset = 0.25, degree = 3;
  Rows vectors = {};

  double operator()(const Row& x, const Row& v) const {
    if (kernel == "RBF") {
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - v[i]) * (x[i] - v[i]);
      return std::exp(-gamma * sum);
    }
    const double product = Dot(x.data(), v.data(), x.size());
    if (kernel == "LINEAR") return product;
    const double inner = gamma * product + offset;
    return kernel == "SIGMOID" ? std::tanh(inner) : std::pow(inner, degree);
  }

  std::string Attributes() const {
    return absl::StrCat("kernel_type = \"", kernel,
                        "\", kernel_params = ", List({gamma, offset, degree}),
                        ", support_vectors = ", List(Flat(vectors)));
  }
};

Svm RandomSvm(Rng& rng, const std::string& kernel, size_t vectors, size_t features) {
  Svm svm{.kernel = kernel};
  svm.degree = static_cast<double>(1 + rng() % 4);
  svm.vectors = RandomRows(rng, vectors, features);
  return svm;
}

constexpr const char* kKernels[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};

TEST(MlSvm, RegressorsOfAllKernels) {
  Rng rng(6);
  for (const std::string kernel : kKernels) {
    for (int trial = 0; trial < 8; ++trial) {
      const Svm svm = RandomSvm(rng, kernel, 5, 3);
      const Rows x = RandomRows(rng, 4, 3);
      const Row coefficients = Randoms(rng, 5);
      const double rho = Random(rng);
      for (const int one_class : {0, 1}) {
        Row expected;
        for (const Row& row : x) {
          double y = rho;
          for (size_t v = 0; v < 5; ++v) y += coefficients[v] * svm(row, svm.vectors[v]);
          expected.push_back(one_class == 0 ? y : y > 0 ? 1 : -1);
        }
        ExpectNear(
            Values(absl::StrCat("(float[4,3] x) => (float[a,b] y) {"
                                "y = ai.onnx.ml.SVMRegressor<n_supports = 5, rho = ",
                                List({rho}), ", coefficients = ", List(coefficients),
                                ", one_class = ", one_class, ", ", svm.Attributes(), ">(x)}"),
                   {Matrix(x)}),
            expected, 1e-4);
      }
    }
  }
  EXPECT_THAT(Values("(float[1,2] x) => (float[a,b] y) {y = ai.onnx.ml.SVMRegressor<"
                     "kernel_type = \"RBF\", coefficients = [2.0, 3.0], rho = [1.0]>(x)}",
                     {Floats({1, 10}, {1, 2})}),
              ElementsAre(33));
}

// Platt's probabilities of pairs, coupled step by step as LIBSVM does it.
Row Coupled(size_t classes, const Rows& r) {
  Rows q(classes, Row(classes, 0));
  for (size_t i = 0; i < classes; ++i) {
    for (size_t j = 0; j < classes; ++j) {
      if (i == j) continue;
      q[i][i] += r[j][i] * r[j][i];
      q[i][j] = -r[j][i] * r[i][j];
    }
  }
  Row p(classes, 1.0 / static_cast<double>(classes)), qp(classes);
  for (int sweep = 0; sweep < 100; ++sweep) {
    double pqp = 0, error = 0;
    for (size_t i = 0; i < classes; ++i) {
      qp[i] = Dot(q[i].data(), p.data(), classes);
      pqp += p[i] * qp[i];
    }
    for (const double v : qp) error = std::max(error, std::fabs(v - pqp));
    if (error < 0.005 / static_cast<double>(classes)) break;
    for (size_t i = 0; i < classes; ++i) {
      const double step = (pqp - qp[i]) / q[i][i];
      pqp = (pqp + step * (step * q[i][i] + 2 * qp[i])) / (1 + step) / (1 + step);
      for (size_t j = 0; j < classes; ++j) {
        qp[j] = (qp[j] + step * q[i][j]) / (1 + step);
        p[j] = (p[j] + (i == j ? step : 0)) / (1 + step);
      }
    }
  }
  return p;
}

TEST(MlSvm, ClassifiersVoteByPairs) {
  Rng rng(7);
  for (int trial = 0; trial < 60; ++trial) {
    const size_t classes = trial == 0 ? 13 : 2 + rng() % 3, pairs = classes * (classes - 1) / 2;
    const bool probabilities = trial == 0 || rng() % 2 == 0;
    const std::string transform = kTransforms[rng() % 3];
    std::vector<int64_t> per_class, labels;
    size_t vectors = 0;
    for (size_t c = 0; c < classes; ++c) {
      per_class.push_back(static_cast<int64_t>(1 + rng() % 3));
      labels.push_back(static_cast<int64_t>(10 * c + 3));
      vectors += per_class.back();
    }
    const Svm svm = RandomSvm(rng, kKernels[trial % 4], vectors, 3);
    const Row coefficients = Randoms(rng, (classes - 1) * vectors), rho = Randoms(rng, pairs);
    const Row a = Randoms(rng, pairs), b = Randoms(rng, pairs);
    const Rows x = RandomRows(rng, 8, 3);
    Row expected, expected_labels;
    for (const Row& row : x) {
      Row scores;
      std::vector<int> votes(classes, 0);
      Rows r(classes, Row(classes, 0));
      for (size_t i = 0; i < classes; ++i) {
        for (size_t j = i + 1; j < classes; ++j) {
          double sum = rho[scores.size()];
          size_t v = 0;
          for (size_t c = 0; c < classes; ++c) {
            for (int64_t k = 0; k < per_class[c]; ++k, ++v) {
              const double value = svm(row, svm.vectors[v]);
              if (c == i) sum += coefficients[(j - 1) * vectors + v] * value;
              if (c == j) sum += coefficients[i * vectors + v] * value;
            }
          }
          ++votes[sum > 0 ? i : j];
          const double p = 1 - Logistic(sum * a[scores.size()] + b[scores.size()]);
          r[i][j] = std::clamp(p, 1e-7, 1 - 1e-7);
          r[j][i] = 1 - r[i][j];
          scores.push_back(sum);
        }
      }
      expected_labels.push_back(static_cast<double>(
          labels[std::max_element(votes.begin(), votes.end()) - votes.begin()]));
      if (probabilities)
        scores = Coupled(classes, r);
      else if (classes == 2)
        scores = {-scores[0], scores[0]};
      scores = TransformedRow(scores, transform);
      expected.insert(expected.end(), scores.begin(), scores.end());
    }
    const auto results = Results(
        absl::StrCat(
            "(float[8,3] x) => (int64[s] label, float[t,u] z) {"
            "label, z = ai.onnx.ml.SVMClassifier<classlabels_ints = ",
            Integers(labels), ", vectors_per_class = ", Integers(per_class),
            ", coefficients = ", List(coefficients), ", rho = ", List(rho), ", ",
            probabilities ? absl::StrCat("prob_a = ", List(a), ", prob_b = ", List(b), ", ") : "",
            svm.Attributes(), ", post_transform = \"", transform, "\">(x)}"),
        {Matrix(x)});
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(ToDoubles(results[0]), expected_labels) << trial;
    SCOPED_TRACE(trial);
    ExpectNear(ToDoubles(results[1]), expected, 1e-4);
  }
}

TEST(MlSvm, ClassifiersWithoutVectorsAreLinear) {
  const auto results = Results(
      "(float[2,2] x) => (string[s] label, float[t,u] z) {label, z = ai.onnx.ml.SVMClassifier<"
      "classlabels_strings = [\"a\", \"b\"], kernel_type = \"RBF\", "
      "coefficients = [1.0, 0.0, 0.0, 1.0], rho = [0.5]>(x)}",
      {Floats({3, 1, 1, 3}, {2, 2})});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].type.dtype, ir::DType::kI64);
  EXPECT_THAT(ToDoubles(results[0]), ElementsAre(0, 1));
  EXPECT_THAT(ToDoubles(results[1]), ElementsAre(3.5, 1.5, 1.5, 3.5));
}

// ---- Trees ----

// Two trees of one node each: x[0] <= 0.5, NaN included, and x[1] > -1. Node 1 is the leaf of "true".
const std::string kNodes =
    "nodes_treeids = [0, 0, 0, 1, 1, 1], nodes_nodeids = [0, 1, 2, 0, 1, 2], "
    "nodes_featureids = [0, 0, 0, 1, 0, 0], "
    "nodes_modes = [\"BRANCH_LEQ\", \"LEAF\", \"LEAF\", \"BRANCH_GT\", \"LEAF\", \"LEAF\"], "
    "nodes_values = [0.5, 0.0, 0.0, -1.0, 0.0, 0.0], nodes_truenodeids = [1, 0, 0, 1, 0, 0], "
    "nodes_falsenodeids = [2, 0, 0, 2, 0, 0], "
    "nodes_missing_value_tracks_true = [1, 0, 0, 0, 0, 0]";
const Rows kTreeRows = {{0, 0}, {0.5, -1}, {1, -2}, {2, 3}, {kNan, kNan}};

// What each row gets from the trees: of leaf "true" or "false" of tree 0, and of tree 1.
std::vector<std::pair<size_t, size_t>> LeavesOfRows() {
  std::vector<std::pair<size_t, size_t>> leaves;
  for (const Row& x : kTreeRows)
    leaves.emplace_back(std::isnan(x[0]) || x[0] <= 0.5 ? 0 : 1, x[1] > -1 ? 0 : 1);
  return leaves;
}

// Votes of the four leaves for one output each, under the names of an operator.
std::string Votes(const std::string& what, const std::vector<int64_t>& outputs,
                  const Row& weights) {
  return absl::StrCat(what, "_treeids = [0, 0, 1, 1], ", what, "_nodeids = [1, 2, 1, 2], ", what,
                      "_ids = ", Integers(outputs), ", ", what, "_weights = ", List(weights));
}

TEST(MlTrees, RegressorsAggregate) {
  const Row w = {1, 2.5, -3, 4};
  for (const std::string aggregate : {"SUM", "AVERAGE", "MIN", "MAX"}) {
    for (const std::string transform : {"NONE", "LOGISTIC"}) {
      Row expected;
      for (const auto& [first, second] : LeavesOfRows()) {
        const double a = w[first], b = w[2 + second];
        const double y = aggregate == "SUM"       ? a + b
                         : aggregate == "AVERAGE" ? (a + b) / 2
                         : aggregate == "MIN"     ? std::min(a, b)
                                                  : std::max(a, b);
        expected.push_back(TransformedRow({y + 0.25}, transform)[0]);
      }
      ExpectNear(Values(absl::StrCat("(float[5,2] x) => (float[a,b] y) {"
                                     "y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, ",
                                     kNodes, ", ", Votes("target", {0, 0, 0, 0}, w),
                                     ", base_values = [0.25], aggregate_function = \"", aggregate,
                                     "\", post_transform = \"", transform, "\">(x)}"),
                        {Matrix(kTreeRows)}),
                 expected);
    }
  }
}

// Doubles come as tensors. Equality is exact, also of what is no f32.
TEST(MlTrees, RegressorsTakeTensorsAndEqualities) {
  const std::string regressor =
      "y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 2, nodes_treeids = [0, 0, 0, 0, 0], "
      "nodes_nodeids = [4, 3, 2, 1, 0], nodes_featureids = [0, 0, 0, 0, 0], "
      "nodes_modes = [\"LEAF\", \"LEAF\", \"BRANCH_NEQ\", \"LEAF\", \"BRANCH_EQ\"], "
      "nodes_values_as_tensor = double[5] {0, 0, 3, 0, 1.5}, "
      "nodes_truenodeids = [0, 0, 3, 0, 1], nodes_falsenodeids = [0, 0, 4, 0, 2], "
      "target_treeids = [0, 0, 0, 0], target_nodeids = [1, 3, 4, 4], target_ids = [0, 1, 0, 1], "
      "target_weights_as_tensor = double[4] {1, 2, 3, 4}, "
      "base_values_as_tensor = double[2] {0.5, -0.5}>(x)}";
  EXPECT_THAT(Values("(float[4,1] x) => (float[a,b] y) {" + regressor,
                     {Floats({1.5, 3, 1.25, kNan}, {4, 1})}, 3),
              ElementsAre(1.5, -0.5, 3.5, 3.5, 0.5, 1.5, 0.5, 1.5));
  EXPECT_THAT(Values("(int64[1] x) => (float[a,b] y) {" + regressor, {Ints({3}, {1})}, 3),
              ElementsAre(3.5, 3.5));
}

// 0.1 and the numbers beside it are no f32; neither are their comparisons.
TEST(MlTrees, DoublesAreComparedAsDoubles) {
  const Row values = {0.1, 0.3, 0.7, std::nextafter(0.3, 1), 1.5, -2};
  Row x = {kNan};
  for (const double v : values) {
    for (const double near : {v, std::nextafter(v, 9), std::nextafter(v, -9)}) x.push_back(near);
  }
  // A chain of nodes, each with a leaf of its own.
  const std::vector<std::string> modes = {"BRANCH_LT",  "BRANCH_GTE", "BRANCH_EQ",
                                          "BRANCH_LEQ", "BRANCH_GT",  "BRANCH_EQ"};
  std::vector<int64_t> ids, yes, no, zeros, votes;
  Row weights, all_values;
  std::vector<std::string> words;
  for (int64_t i = 0; i < 13; ++i) {
    const bool leaf = i % 2 == 1 || i == 12;
    ids.push_back(i);
    yes.push_back(leaf ? 0 : i + 1);
    no.push_back(leaf ? 0 : i + 2);
    zeros.push_back(0);
    all_values.push_back(leaf ? 0 : values[i / 2]);
    words.push_back(absl::StrCat("\"", leaf ? "LEAF" : modes[i / 2], "\""));
    if (leaf) votes.push_back(i), weights.push_back(static_cast<double>(i));
  }
  Row expected;
  for (const double v : x) {
    double y = 12;
    for (size_t i = 0; i < modes.size() && y == 12; ++i) {
      const double t = values[i];
      const std::string& mode = modes[i];
      const bool is_true = mode == "BRANCH_LT"    ? v < t
                           : mode == "BRANCH_LEQ" ? v <= t
                           : mode == "BRANCH_GTE" ? v >= t
                           : mode == "BRANCH_GT"  ? v > t
                                                  : v == t;
      if (is_true) y = static_cast<double>(2 * i + 1);
    }
    expected.push_back(y);
  }
  const auto count = static_cast<int64_t>(votes.size());
  onnx::ModelProto model =
      Model(absl::StrCat("(double[", x.size(),
                         ",1] x) => (float[a,b] y) {"
                         "y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, nodes_treeids = ",
                         Integers(zeros), ", nodes_nodeids = ", Integers(ids),
                         ", nodes_featureids = ", Integers(zeros), ", nodes_modes = [",
                         absl::StrJoin(words, ", "), "], nodes_truenodeids = ", Integers(yes),
                         ", nodes_falsenodeids = ", Integers(no),
                         ", target_treeids = ", Integers(std::vector<int64_t>(count, 0)),
                         ", target_nodeids = ", Integers(votes),
                         ", target_ids = ", Integers(std::vector<int64_t>(count, 0)),
                         ", target_weights = ", List(weights), ">(x)}"),
            3);
  onnx::AttributeProto* a = model.mutable_graph()->mutable_node(0)->add_attribute();
  a->set_name("nodes_values_as_tensor");
  a->set_type(onnx::AttributeProto::TENSOR);
  a->mutable_t()->set_data_type(onnx::TensorProto::DOUBLE);
  a->mutable_t()->add_dims(13);
  for (const double v : all_values) a->mutable_t()->add_double_data(v);
  const auto results =
      Results(model, {FromDoubles(x, {static_cast<int64_t>(x.size()), 1}, ir::DType::kF64)});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(ToDoubles(results[0]), expected);
}

TEST(MlTrees, ClassifiersOfOneColumn) {
  for (const bool positive : {true, false}) {
    const Row w = {0.25, 0.5, positive ? 0.125 : -0.75, 0.375};
    for (const std::string transform : {"NONE", "LOGISTIC", "SOFTMAX"}) {
      Row expected, labels;
      for (const auto& [first, second] : LeavesOfRows()) {
        const double score = w[first] + w[2 + second];
        const bool complement = positive && transform == "NONE";
        labels.push_back(score > (complement ? 0.5 : 0) ? 9 : 8);
        const Row both = TransformedRow({complement ? 1 - score : -score, score}, transform);
        expected.insert(expected.end(), both.begin(), both.end());
      }
      const auto results = Results(absl::StrCat("(float[5,2] x) => (int64[a] label, float[b,c] z) {"
                                                "label, z = ai.onnx.ml.TreeEnsembleClassifier<"
                                                "classlabels_int64s = [8, 9], ",
                                                kNodes, ", ", Votes("class", {0, 0, 0, 0}, w),
                                                ", post_transform = \"", transform, "\">(x)}"),
                                   {Matrix(kTreeRows)});
      ASSERT_EQ(results.size(), 2u);
      EXPECT_EQ(ToDoubles(results[0]), labels) << positive << transform;
      ExpectNear(ToDoubles(results[1]), expected);
    }
  }
}

TEST(MlTrees, ClassifiersOfSeveralClasses) {
  const Row w = {0.5, 0.75, 0.25, 1};
  const std::vector<int64_t> classes = {0, 1, 2, 1};
  Row expected, labels;
  for (const auto& [first, second] : LeavesOfRows()) {
    Row scores = {0.125, 0, 0};
    scores[classes[first]] += w[first];
    scores[classes[2 + second]] += w[2 + second];
    labels.push_back(static_cast<double>(Best(scores)));
    scores = TransformedRow(scores, "SOFTMAX");
    expected.insert(expected.end(), scores.begin(), scores.end());
  }
  const auto results = Results(
      absl::StrCat("(double[5,2] x) => (string[a] label, float[b,c] z) {"
                   "label, z = ai.onnx.ml.TreeEnsembleClassifier<"
                   "classlabels_strings = [\"a\", \"b\", \"c\"], base_values = [0.125, 0.0, 0.0], ",
                   kNodes, ", ", Votes("class", classes, w), ", post_transform = \"SOFTMAX\">(x)}"),
      {Matrix(kTreeRows, ir::DType::kF64)});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(ToDoubles(results[0]), labels);
  ExpectNear(ToDoubles(results[1]), expected);
}

TEST(MlTrees, EnsemblesOfOpset5) {
  onnx::ModelProto model = Model(
      "(float16[5,1] x) => (float16[a,b] y) {y = ai.onnx.ml.TreeEnsemble<n_targets = 2, "
      "tree_roots = [0, 2], nodes_featureids = [0, 0, 0], nodes_modes = uint8[3] {6, 0, 0}, "
      "nodes_splits = float16[3] {0, 0, 0}, nodes_truenodeids = [0, 1, 3], nodes_trueleafs = [1, "
      "1, 1], "
      "nodes_falsenodeids = [1, 2, 3], nodes_falseleafs = [0, 1, 1], "
      "leaf_targetids = [0, 1, 0, 1], leaf_weights = float16[4] {0, 0, 0, 0}, "
      "membership_values = float[4] {1, 4, 2, 0}>(x)}",
      5);
  const auto set = [&](const std::string& name, const Row& values, ir::DType dtype) {
    for (onnx::AttributeProto& a : *model.mutable_graph()->mutable_node(0)->mutable_attribute()) {
      if (a.name() != name) continue;
      a.mutable_t()->clear_float_data();
      a.mutable_t()->clear_int32_data();
      a.mutable_t()->set_raw_data(
          std::string(*FromDoubles(values, {static_cast<int64_t>(values.size())}, dtype).bytes));
    }
  };
  set("nodes_splits", {0, 1.5, 0}, ir::DType::kF16);
  set("leaf_weights", {1, 10, 100, 0.5}, ir::DType::kF16);
  set("membership_values", {1, 4, 2.5, kNan}, ir::DType::kF32);
  const auto results =
      Results(model, {FromDoubles({4, 1, 1.25, 2, kNan}, {5, 1}, ir::DType::kF16)});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].type.dtype, ir::DType::kF16);
  EXPECT_THAT(ToDoubles(results[0]), ElementsAre(1, 0.5, 1, 0.5, 0, 10.5, 100, 0.5, 100, 0.5));
}

TEST(MlTrees, WhatIsNoEnsembleIsRefused) {
  const auto regressor = [&](const std::string& attributes, const std::string& x = "float[5,2]") {
    return Refusal(absl::StrCat("(", x,
                                " x) => (float[a,b] y) {"
                                "y = ai.onnx.ml.TreeEnsembleRegressor<",
                                attributes, ">(x)}"));
  };
  const std::string votes = Votes("target", {0, 0, 0, 0}, {1, 2, 3, 4});
  EXPECT_THAT(regressor(absl::StrCat("n_targets = 1, ", kNodes, ", ", votes), "float[5,1]"),
              HasSubstr("feature 1 of 1"));
  EXPECT_THAT(regressor(absl::StrCat("n_targets = 2, ", kNodes, ", ",
                                     Votes("target", {0, 0, 0, 1}, {1, 2, 3, 4}),
                                     ", aggregate_function = \"MIN\"")),
              HasSubstr("MIN or MAX"));
  EXPECT_THAT(regressor(absl::StrCat("n_targets = 1, ", votes)), HasSubstr("is not there"));
}

// ---- Whole models ----

TEST(MlModels, APipelineWithStringLabelsAndAMap) {
  onnx::ModelProto model = Model(
      "(float[2,2] x) => (string[a] label, float[b,c] probabilities) {"
      "s = ai.onnx.ml.Scaler<offset = [1.0, 0.0], scale = [2.0, 1.0]>(x) "
      "l, z = ai.onnx.ml.LinearClassifier<classlabels_strings = [\"no\", \"yes\"], "
      "coefficients = [1.0, 0.0, 0.0, 1.0], post_transform = \"SOFTMAX\">(s) "
      "label = Identity(l) "
      "probabilities = ai.onnx.ml.ZipMap<classlabels_strings = [\"no\", \"yes\"]>(z)}");
  onnx::TypeProto* map = model.mutable_graph()->mutable_output(1)->mutable_type();
  map->clear_value();
  map->mutable_sequence_type();
  const auto results = Results(model, {Floats({1, 2, 3, 1}, {2, 2})});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].type, (TensorType{ir::DType::kI64, {2}}));
  EXPECT_THAT(ToDoubles(results[0]), ElementsAre(1, 0));
  Row expected = TransformedRow({0, 2}, "SOFTMAX"), second = TransformedRow({4, 1}, "SOFTMAX");
  expected.insert(expected.end(), second.begin(), second.end());
  ExpectNear(ToDoubles(results[1]), expected);
}

// ---- Strings of inputs ----

// Texts as a module takes them.
TensorData Texts(const std::vector<std::string>& texts, Shape shape, int64_t width) {
  std::string bytes;
  for (const std::string& text : texts) {
    std::string element = text.substr(0, static_cast<size_t>(width));
    element.resize(static_cast<size_t>(width), '\0');
    bytes += element;
  }
  shape.push_back(width);
  return {{ir::DType::kU8, shape}, SharedBytes::Of(bytes)};
}

std::string RandomText(Rng& rng) {  // short, so that many are equal, and some begin like others
  std::string text;
  for (uint64_t n = rng() % 4; n > 0; --n) text += static_cast<char>('a' + rng() % 2);
  return text;
}

std::string Quoted(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts)
    absl::StrAppend(&list, list.size() > 1 ? ", \"" : "\"", text, "\"");
  return list + "]";
}

TEST(MlStrings, EncodersCompareTexts) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    std::vector<std::string> keys;
    for (uint64_t n = 1 + rng() % 5; n > 0; --n) {
      const std::string key = RandomText(rng);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
    size_t longest = 0;
    std::vector<int64_t> values;
    for (const std::string& key : keys) {
      longest = std::max(longest, key.size());
      values.push_back(static_cast<int64_t>(rng() % 100));
    }
    const auto width = static_cast<int64_t>(longest) + 1;
    std::vector<std::string> texts;
    for (int i = 0; i < 12; ++i) texts.push_back(RandomText(rng));
    const TensorData x = Texts(texts, {6, 2}, width);
    Row hot, encoded;
    for (const std::string& text : texts) {
      const auto found = std::find(keys.begin(), keys.end(), text);
      for (const std::string& key : keys) hot.push_back(key == text);
      encoded.push_back(
          found == keys.end()
              ? -7
              : static_cast<double>(values[static_cast<size_t>(found - keys.begin())]));
    }
    const std::string list = Quoted(keys);
    EXPECT_EQ(
        Values(absl::StrCat("(string[6,2] x) => (float[a,b,c] y) {y = ai.onnx.ml.OneHotEncoder<"
                            "cats_strings = ",
                            list, ">(x)}"),
               {x}),
        hot)
        << "seed " << seed;
    EXPECT_EQ(
        Values(absl::StrCat(
                   "(string[6,2] x) => (int64[a,b] y) {y = ai.onnx.ml.LabelEncoder<keys_strings = ",
                   list, ", values_int64s = ", Integers(values), ", default_int64 = -7>(x)}"),
               {x}, 2),
        encoded);
    EXPECT_EQ(
        Values(
            absl::StrCat(
                "(string[6,2] x) => (int64[a,b] y) {y = ai.onnx.ml.CategoryMapper<cats_strings = ",
                list, ", cats_int64s = ", Integers(values), ", default_int64 = -7>(x)}"),
            {x}),
        encoded);
  }
}

TEST(MlStrings, TheFirstEncoderGivesPlaces) {
  EXPECT_THAT(Values("(string[4] x) => (int64[a] y) {"
                     "y = ai.onnx.ml.LabelEncoder<classes_strings = [\"a\", \"b\", \"c\"]>(x)}",
                     {Texts({"c", "a", "", "bb"}, {4}, 2)}),
              ElementsAre(2, 0, -1, -1));
}

// Each input is as wide as its own keys, and what is moved about stays what it is.
TEST(MlStrings, InputsMayBeMovedAboutBeforeTheyAreRead) {
  const onnx::ModelProto model = Model(
      "(string[2,1] color, string[2,1] place, string[2,1] unused, float[2,1] x) => (float[a,b] y) {"
      "both = Concat<axis = 1>(color, place) s = Constant<value = int64[3] {2, 2, 1}>() t = "
      "Constant<value = int64[2] {2, -1}>() "
      "tall = Reshape(both, s) same = Cast<to = 8>(tall) back = Reshape(same, t) "
      "e = ai.onnx.ml.LabelEncoder<keys_strings = [\"red\", \"rome\"], values_floats = [1.0, 2.0], "
      "default_float = 9.0>(back) "
      "h = ai.onnx.ml.OneHotEncoder<cats_strings = [\"ox\", \"oxford\"]>(place) f = Reshape(h, t) "
      "y = Concat<axis = 1>(e, f, x)}",
      2);
  const auto graph = ImportOnnx(model.SerializeAsString());
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<Shape> shapes;
  for (ValueId v : graph->inputs) shapes.push_back(graph->values[v].type.shape);
  EXPECT_THAT(shapes, ElementsAre(Shape{2, 1, 5}, Shape{2, 1, 7}, Shape{2, 1, 1}, Shape{2, 1}));
  const auto results =
      Results(model, {Texts({"red", "redder"}, {2, 1}, 5), Texts({"oxford", "rome"}, {2, 1}, 7),
                      Texts({"", ""}, {2, 1}, 1), Floats({3, 4}, {2, 1})});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(ToDoubles(results[0]), ElementsAre(1, 9, 0, 1, 3, 9, 2, 0, 0, 4));
  const Tables& tables = graph->tables;
  EXPECT_TRUE(tables.independent_rows);
  EXPECT_TRUE(tables.inputs[0].text && tables.inputs[2].text && !tables.inputs[3].text);
  EXPECT_EQ(tables.inputs[1].columns, std::vector<std::string>{"place"});
}

// The strings that an encoder reads may be those that the model has made of numbers, which are places.
TEST(MlStrings, WhatTheModelGivesIsEncodedToo) {
  const std::string named =
      "(int64[6] x) => (int64[a] y) {s = ai.onnx.ml.LabelEncoder<keys_int64s = [1, 2, 3, 4], "
      "values_strings = [\"red\", \"blue\", \"red\", \"green\"], default_string = \"none\">(x) ";
  const std::vector<TensorData> x = {FromInts({3, 2, 1, 4, 9, 2})};
  EXPECT_THAT(Values(named + "y = ai.onnx.ml.CategoryMapper<cats_strings = [\"blue\", \"red\", "
                             "\"none\"], cats_int64s = [10, 20, 30], default_int64 = -5>(s)}",
                     x, 2),
              ElementsAre(20, 10, 20, -5, 30, 10));
  EXPECT_THAT(
      Values(named + "t = Identity(s) f = ai.onnx.ml.LabelEncoder<keys_strings = [\"green\", "
                     "\"red\"], values_floats = [1.0, 2.0], default_float = 0.0>(t) "
                     "y = Cast<to = 7>(f)}",
             x, 2),
      ElementsAre(2, 0, 2, 1, 0, 0));
  // Strings again: their places in the second list. No key is among the first strings of the last encoder.
  EXPECT_THAT(Values(named + "y = ai.onnx.ml.LabelEncoder<keys_strings = [\"blue\", \"red\"], "
                             "values_strings = [\"cold\", \"warm\"]>(s)}",
                     x, 2),
              ElementsAre(1, 0, 1, -1, -1, 0));
  EXPECT_THAT(Values(named + "y = ai.onnx.ml.LabelEncoder<keys_strings = [\"pink\"], "
                             "values_int64s = [8], default_int64 = 3>(s)}",
                     x, 2),
              ElementsAre(3, 3, 3, 3, 3, 3));
  const std::string distinct =
      "(int64[3] x) => (float[a,b] y) {s = ai.onnx.ml.CategoryMapper<cats_int64s = [1, 2], "
      "cats_strings = [\"red\", \"blue\"]>(x) y = ai.onnx.ml.OneHotEncoder<cats_strings = "
      "[\"blue\", \"green\", \"red\"]>(s)}";
  EXPECT_THAT(Values(distinct, {FromInts({2, 1, 7})}), ElementsAre(1, 0, 0, 0, 0, 1, 0, 0, 0));
  EXPECT_THAT(Refusal(named + "h = ai.onnx.ml.OneHotEncoder<cats_strings = [\"red\"]>(s) "
                              "y = Cast<to = 7>(h)}",
                      2),
              AllOf(HasSubstr("OneHotEncoder"), HasSubstr("two labels")));
}

// ---- Maps ----

// The model, whose input x is a map from such keys to such values.
onnx::ModelProto WithMap(onnx::ModelProto model, int key, int value) {
  for (auto& input : *model.mutable_graph()->mutable_input()) {
    if (input.name() != "x") continue;
    auto* map = input.mutable_type()->mutable_map_type();
    map->set_key_type(key);
    map->mutable_value_type()->mutable_tensor_type()->set_elem_type(value);
  }
  return model;
}

TEST(MlMaps, BecomeTablesOfTheirKeys) {
  const onnx::ModelProto model = WithMap(
      Model("(float x) => (float[a,b] y) {v = ai.onnx.ml.DictVectorizer<string_vocabulary = "
            "[\"age\", \"income\"]>(x) y = ai.onnx.ml.Scaler<offset = [1.0, 2.0], scale = [2.0, "
            "3.0]>(v)}"),
      onnx::TensorProto::STRING, onnx::TensorProto::FLOAT);
  const auto graph = ImportOnnx(model.SerializeAsString(), {.shapes = {{"rows", {3, 1}}}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(graph->tables.blocks, ElementsAre(3, 1));
  EXPECT_EQ(graph->tables.inputs[0].columns, (std::vector<std::string>{"age", "income"}));
  const TensorData rows = Matrix({{1, 2}, {3, 4}, {0, 0}});
  EXPECT_EQ(ToDoubles(EvaluateGraph(RowBlock(*graph, 0), {&rows, 1}).value()[0]),
            (Row{0, 0, 4, 6, -2, -6}));
  // Numbers as keys, and values that are cast; beside a tensor, whose rows they share.
  const onnx::ModelProto both = WithMap(
      Model(
          "(float x, float[2,1] z) => (float[a,b] y) {c = ai.onnx.ml.CastMap<map_form = "
          "\"SPARSE\", max_map = 2, cast_to = \"TO_INT64\">(x) f = Cast<to = 1>(c) y = Concat<axis "
          "= 1>(f, z)}"),
      onnx::TensorProto::INT64, onnx::TensorProto::FLOAT);
  EXPECT_EQ(ToDoubles(Results(both, {Matrix({{1.5, -2.5}, {0, 7}}), Matrix({{5}, {6}})})[0]),
            (Row{1, -2, 5, 0, 7, 6}));
}

TEST(MlMaps, OthersAreRefusedByName) {
  const auto refusal = [](const std::string& nodes, int key, int value) {
    const auto model = WithMap(Model("(float x) => (float[a,b] y) {" + nodes + "}"), key, value);
    return std::string(ImportOnnx(model.SerializeAsString()).status().message());
  };
  constexpr int kText = onnx::TensorProto::STRING, kInt = onnx::TensorProto::INT64,
                kFloat = onnx::TensorProto::FLOAT;
  const std::string dense = "y = ai.onnx.ml.CastMap(x)",
                    two =
                        "a = ai.onnx.ml.DictVectorizer<string_vocabulary = [\"a\"]>(x) b = "
                        "ai.onnx.ml.DictVectorizer<string_vocabulary = [\"b\"]>(x) y = Add(a, b)",
                    texts = "y = ai.onnx.ml.DictVectorizer<string_vocabulary = [\"a\"]>(x)";
  for (const std::string& message :
       {refusal(dense, kInt, kFloat), refusal(two, kText, kFloat), refusal(texts, kText, kText)}) {
    EXPECT_THAT(message, AllOf(HasSubstr("input 'x', which is not a tensor"),
                               HasSubstr("looks up one list of keys"), Not(HasSubstr("\n"))));
  }
}

// ---- Tables ----

using Names = std::vector<std::string>;

Tables TablesOf(const onnx::ModelProto& model) {
  const auto graph = ImportOnnx(model.SerializeAsString());
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? graph->tables : Tables();
}
Tables TablesOf(const std::string& graph, int ml_opset = 1) {
  return TablesOf(Model(graph, ml_opset));
}

constexpr const char* kTwoColumns =
    "(float[4,1] age, float[4,1] size) => (string[a] label, float[b,c] scores) {"
    "x = Concat<axis = 1>(age, size) "
    "l, z = ai.onnx.ml.LinearClassifier<classlabels_strings = [\"no\", \"yes\", \"never\"], "
    "coefficients = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]>(x) "
    "label = Identity(l) n = ai.onnx.ml.Normalizer<norm = \"L1\">(z) two = Constant<value = float "
    "{2.0}>() "
    "scores = Mul(n, two)}";

TEST(MlTables, ClassesAreLabelsAndNamesOfScores) {
  const Tables tables = TablesOf(kTwoColumns);
  EXPECT_TRUE(tables.independent_rows);
  ASSERT_EQ(tables.inputs.size(), 2u);
  EXPECT_EQ(tables.inputs[0].columns, Names{"age"});
  EXPECT_EQ(tables.inputs[1].columns, Names{"size"});
  ASSERT_EQ(tables.outputs.size(), 2u);
  EXPECT_EQ(tables.outputs[0].labels, (Names{"no", "yes", "never"}));
  EXPECT_EQ(tables.outputs[0].columns, Names());
  EXPECT_EQ(tables.outputs[1].columns, (Names{"no", "yes", "never"}));
  EXPECT_EQ(tables.outputs[1].labels, Names());
}

TEST(MlTables, IntegersNameScoresAndMeanThemselves) {
  const Tables tables = TablesOf(
      "(float[4,2] x) => (int64[a] label, float[b,c] scores) {"
      "label, z = ai.onnx.ml.LinearClassifier<classlabels_ints = [-3, 7], coefficients = [1.0, "
      "2.0]>(x) "
      "scores = ai.onnx.ml.ZipMap<classlabels_int64s = [-3, 7]>(z)}");
  EXPECT_TRUE(tables.independent_rows);
  EXPECT_EQ(tables.inputs, std::vector<TensorNames>(1)) << "a matrix says nothing of its columns";
  EXPECT_EQ(tables.outputs[0], TensorNames());
  EXPECT_EQ(tables.outputs[1].columns, (Names{"-3", "7"}));
}

// A model of one tree, which compares feature 0 of `features` with 5.
std::string OfOneTree(const std::string& inputs, const std::string& features,
                      const std::string& mode) {
  return absl::StrCat(
      "(", inputs, ") => (float[a,b] y) {", features,
      " y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, nodes_treeids = [0, 0, 0], "
      "nodes_nodeids = [0, 1, 2], nodes_featureids = [0, 0, 0], nodes_modes = [\"",
      mode,
      "\", \"LEAF\", \"LEAF\"], nodes_values = [5.0, 0.0, 0.0], nodes_truenodeids = [1, 0, 0], "
      "nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2], "
      "target_ids = [0, 0], target_weights = [1.0, 2.0]>(f)}");
}

// The least and the greatest value of the first element of a row of input 0.
std::pair<float, float> Sampled(const Tables& tables) {
  if (tables.inputs.empty() || tables.inputs[0].samples.empty() ||
      tables.inputs[0].samples[0].empty())
    return {0, 0};
  const auto [least, greatest] =
      std::minmax_element(tables.inputs[0].samples[0].begin(), tables.inputs[0].samples[0].end());
  return {*least, *greatest};
}

// Numbers of one range, such as -1 to 1, would all take one side of the trees.
TEST(MlTables, RowsToTryLieOnBothSidesOfWhatTreesCompare) {
  const struct {
    const char *inputs, *features;
    float middle;  // of the first input, where the first feature is 5
  } cases[] = {
      {"float[4,2] x", "f = Identity(x)", 5},
      {"float[4,2] x", "f = ai.onnx.ml.Scaler<offset = [10.0, 0.0], scale = [2.0, 1.0]>(x)", 12.5},
      {"float[4,2] x", "k = Constant<value = float[2] {-4.0, 3.0}>() f = Div(x, k)", -20},
      {"float[4,2] x", "k = Constant<value = float[2] {-4.0, 3.0}>() f = Add(k, x)", 9},
      {"float[4,2] x", "f = ai.onnx.ml.Imputer<imputed_value_floats = [70.0, 80.0]>(x)", 5},
      {"float[4,1] x, float[4,1] z", "f = Concat<axis = 1>(x, z)", 5},
      {"float[4,2] x",
       "k = Constant<value = int64[2] {1, 0}>() r = Gather<axis = 1>(x, k) "
       "f = Gather<axis = 1>(r, k)",
       5},
      {"float[4,2] x", "f = Cast<to = 11>(x)", 5},
  };
  for (const auto& [inputs, features, middle] : cases) {
    for (const char* mode : {"BRANCH_LEQ", "BRANCH_GTE", "BRANCH_EQ"}) {
      const Tables tables = TablesOf(OfOneTree(inputs, features, mode));
      const auto [least, greatest] = Sampled(tables);
      EXPECT_LT(least, middle) << features << " " << mode;
      EXPECT_GT(greatest, middle) << features << " " << mode;
      if (std::string(mode) == "BRANCH_EQ" && !tables.inputs.empty() &&
          !tables.inputs[0].samples.empty())
        EXPECT_THAT(tables.inputs[0].samples[0], ::testing::Contains(middle)) << features;
      // The other feature, which no tree asks, may be anything.
      const bool alone = tables.inputs.size() == 1;
      if (!tables.inputs.empty() && alone)
        EXPECT_EQ(tables.inputs[0].samples.size(), 2u) << features;
      else if (!tables.inputs.empty())
        EXPECT_TRUE(tables.inputs[1].samples.empty()) << features;
    }
  }
}

// Each of 40 pairs of operators leads to its input twice, so the ways to the input are 2^40.
TEST(MlTables, RowsToTryAreFoundAlongOneWay) {
  std::string features = "k = Constant<value = int64[2] {0, 3}>() v0 = Identity(x) ";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&features, "c", i, " = Concat<axis = 1>(v", i, ", v", i, ") v", i + 1,
                    " = Gather<axis = 1>(c", i, ", k) ");
  }
  absl::StrAppend(&features, "f = Identity(v40)");
  const auto [least, greatest] =
      Sampled(TablesOf(OfOneTree("float[4,2] x", features, "BRANCH_LEQ")));
  EXPECT_LT(least, 5);
  EXPECT_GT(greatest, 5);
}

TEST(MlTables, NothingIsSaidOfRowsBehindOtherOperators) {
  for (const char* features :
       {"f = Softmax<axis = 1>(x)", "f = ai.onnx.ml.Normalizer<norm = \"L2\">(x)",
        "z = Constant<value = float {0.0}>() f = Mul(x, z)"})
    EXPECT_EQ(Sampled(TablesOf(OfOneTree("float[4,2] x", features, "BRANCH_LEQ"))),
              (std::pair<float, float>(0, 0)))
        << features;
}

TEST(MlTables, PickedStringsAreLabels) {
  onnx::ModelProto model = Model(
      "(float[2,3] x) => (string[a,b] y) {i = ArgMax<axis = 1>(x) "
      "z = ai.onnx.ml.ArrayFeatureExtractor(classes, i) "
      "s = Constant<value = int64[2] {2, 1}>() y = Reshape(z, s)}");
  onnx::TensorProto* classes = model.mutable_graph()->add_initializer();
  classes->set_name("classes");
  classes->set_data_type(onnx::TensorProto::STRING);
  classes->add_dims(3);
  for (const char* name : {"a", "b", "c"}) classes->add_string_data(name);
  EXPECT_EQ(TablesOf(model).outputs[0].labels, (Names{"a", "b", "c"}));
  EXPECT_EQ(TablesOf("(int64[4] x) => (string[a] y) {y = ai.onnx.ml.LabelEncoder<"
                     "keys_int64s = [9, 2], values_strings = [\"a\", \"b\"]>(x)}",
                     2)
                .outputs[0]
                .labels,
            (Names{"a", "b"}));
}

TEST(MlTables, StringsThatAreMovedAboutStayLabels) {
  const auto labels = [](const std::string& moves) {
    return TablesOf(
               absl::StrCat("(int64[4] x) => (string[a] y) {"
                            "s = ai.onnx.ml.LabelEncoder<keys_int64s = [9, 2], values_strings = "
                            "[\"a\", \"b\"]>(x) ",
                            moves, "}"),
               2)
        .outputs[0]
        .labels;
  };
  EXPECT_EQ(labels("y = Concat<axis = 0>(s, s)"), (Names{"a", "b"}));
  EXPECT_EQ(labels("two = Constant<value = int64[1] {2}>() y = Tile(s, two)"), (Names{"a", "b"}));
  EXPECT_EQ(labels("front, back = Split<axis = 0, num_outputs = 2>(s) y = Identity(back)"),
            (Names{"a", "b"}));
  // Places in two lists are no places in one.
  EXPECT_THAT(Refusal("(int64[4] x) => (string[a] y) {"
                      "s = ai.onnx.ml.LabelEncoder<keys_int64s = [9], values_strings = [\"a\"]>(x) "
                      "t = ai.onnx.ml.LabelEncoder<keys_int64s = [9], values_strings = [\"b\"]>(x) "
                      "y = Concat<axis = 0>(s, t)}",
                      2),
              HasSubstr("string"));
}

TEST(MlTables, ScoresOfPairsHaveNoNames) {
  const auto machine = [](const std::string& more) {
    return TablesOf(absl::StrCat(
        "(float[4,1] x) => (int64[a] label, float[b,c] scores) {"
        "label, scores = ai.onnx.ml.SVMClassifier<classlabels_ints = [1, 2, 3], "
        "kernel_params = [0.5, 0.0, 3.0], vectors_per_class = [1, 1, 1], "
        "support_vectors = [1.0, 0.5, -1.0], coefficients = [1.0, -0.5, 0.75, -1.0, 0.5, 1.0], ",
        more, "rho = [0.1, -0.2, 0.3]>(x)}"));
  };
  EXPECT_EQ(machine("").outputs[1].columns, Names());
  EXPECT_EQ(
      machine("prob_a = [-1.5, -2.0, -0.5], prob_b = [0.25, 0.0, -0.25], ").outputs[1].columns,
      (Names{"1", "2", "3"}));
}

TEST(MlTables, ModelsThatMixRowsOrAreNoTablesAreNone) {
  const auto scaled = [](const std::string& rows, const std::string& y) {
    return TablesOf(
               absl::StrCat("(float[", rows,
                            ",2] x) => (float[a,b] y) {"
                            "s = ai.onnx.ml.Scaler<offset = [0.5, 1.0], scale = [2.0, 3.0]>(x) ",
                            y, "}"))
        .independent_rows;
  };
  EXPECT_FALSE(scaled("4", "y = Softmax<axis = 0>(s)"));
  EXPECT_TRUE(scaled("4", "y = Softmax<axis = 1>(s)"));
  // One row looks like any other extent of 1, and a length that was asked for is a constant of the graph.
  EXPECT_FALSE(scaled("1", "y = Softmax<axis = 1>(s)"));
  EXPECT_FALSE(scaled("4", "l = Shape(s) f = Cast<to = 1>(l) y = Mul(s, f)"));
  // A network is no pipeline.
  EXPECT_FALSE(
      TablesOf("(float[4,2] x) => (float[a,b] y) {y = Softmax<axis = 1>(x)}").independent_rows);
  EXPECT_FALSE(TablesOf("(float[4,2,2,2] x) => (float[a,b,c,d] y) {y = Relu(x)}").independent_rows);
  // What a module of four rows reads beside them has no rows.
  EXPECT_FALSE(TablesOf("(float[4,2] x, float[2,2] w) => (float[a,b] y) {y = MatMul(x, w)}")
                   .independent_rows);
}

constexpr const char* kScaledRows =
    "(float[N,2] x) => (float[a,b] y) {"
    "s = ai.onnx.ml.Scaler<offset = [0.5, 1.0], scale = [2.0, 3.0]>(x) y = Softmax<axis = 1>(s)}";

TEST(MlTables, OpenRowsAreSeveralBlocks) {
  const auto blocks = [](const onnx::ModelProto& model, const ImportOptions& options) {
    const auto graph = ImportOnnx(model.SerializeAsString(), options);
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(!graph.ok() || CheckGraph(*graph).ok());
    return graph.ok() ? *graph : Graph();
  };
  onnx::ModelProto model = Model(kScaledRows);
  const Graph usual = blocks(model, {});
  EXPECT_TRUE(usual.tables.independent_rows);
  EXPECT_THAT(usual.tables.blocks, ElementsAre(2048, 128, 16, 1));
  EXPECT_EQ(usual.inputs.size(), 4u);
  EXPECT_THAT(blocks(model, {.shapes = {{"N", {1, 8}}}}).tables.blocks, ElementsAre(8, 1));
  // One number is a fixed one, as is a shape.
  for (const char* name : {"N", "x"}) {
    const Shape shape = name[0] == 'N' ? Shape{5} : Shape{5, 2};
    const Graph fixed = blocks(model, {.shapes = {{name, shape}}});
    EXPECT_THAT(fixed.tables.blocks, ElementsAre());
    EXPECT_EQ(fixed.values[fixed.inputs[0]].type.shape, (Shape{5, 2}));
  }
  // Tools leave the rows without a name.
  auto* dim = model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type();
  dim->mutable_shape()->mutable_dim(0)->clear_dim_param();
  EXPECT_THAT(blocks(model, {.shapes = {{"rows", {4, 2}}}}).tables.blocks, ElementsAre(4, 2));
  // Each block is the model.
  Rng rng(1);
  const Graph several = blocks(model, {.shapes = {{"rows", {4, 1}}}});
  const Rows x = RandomRows(rng, 4, 2);
  const TensorData all = Matrix(x);
  const Row together = ToDoubles(EvaluateGraph(RowBlock(several, 0), {&all, 1}).value()[0]);
  for (size_t r = 0; r < x.size(); ++r) {
    const TensorData row = Matrix({x[r]});
    EXPECT_EQ(ToDoubles(EvaluateGraph(RowBlock(several, 1), {&row, 1}).value()[0]),
              Row(together.begin() + static_cast<std::ptrdiff_t>(2 * r),
                  together.begin() + static_cast<std::ptrdiff_t>(2 * r) + 2));
  }
}

// What scikit-learn's converter writes for nearest neighbours, Gaussian processes and boosted classifiers.
TEST(MlTables, NumbersOfRowsMayBecomeShapes) {
  const auto table = [](const std::string& nodes, int rows) {
    return Model(absl::StrCat("(float[", rows > 0 ? absl::StrCat(rows) : "N",
                              ",2] x) => (float[a,b] y) {i = Constant<value = int64[1] {0}>() "
                              "one = Constant<value = int64[1] {1}>() "
                              "last = Constant<value = int64[1] {-1}>() "
                              "s = ai.onnx.ml.Scaler<scale = [2.0, 3.0]>(x) "
                              "l = Shape(x) n = Gather(l, i) ",
                              nodes, "}"));
  };
  const std::string distances =
      "t = Constant<value = float[3,2] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>() "
      "p, q = Scan<num_scan_inputs = 1, body = (float[N,2] a, float[2] b) => (float[N,2] c, "
      "float[N] "
      "d) {c = Identity(a) e = Sub(a, b) d = ReduceSumSquare<keepdims = 0>(e, one)}>(s, t) "
      "r = Transpose<perm = [1, 0]>(q) ";
  const std::string independent[] = {
      "m = Concat<axis = 0>(n, last) y = Reshape(s, m)",
      "m = Concat<axis = 0>(n, one) z = ConstantOfShape(m) y = Concat<axis = 1>(s, z)",
      // A constant kernel: all rows times all training rows, of zeros.
      "m = Concat<axis = 0>(n, one) z = ConstantOfShape(m) w = Constant<value = float[1,2] {0.0, "
      "0.0}>() k = MatMul(z, w) o = Constant<value = float[1] {1.5}>() c = Add(k, o) y = Mul(c, s)",
      distances + "y = Sqrt(r)",
      distances +
          "two = Constant<value = int64[1] {2}>() u, v = TopK<largest = 0>(r, two) "
          "labels = Constant<value = float[3] {7.0, 8.0, 9.0}>() f = Flatten(v) "
          "g = ai.onnx.ml.ArrayFeatureExtractor(labels, f) h = Constant<value = int64[2] {-1, "
          "2}>() "
          "y = Reshape(g, h)"};
  for (const std::string& nodes : independent) {
    EXPECT_TRUE(TablesOf(table(nodes, 4)).independent_rows) << nodes;
    const auto graph = ImportOnnx(table(nodes, 0).SerializeAsString(), {.shapes = {{"N", {5, 1}}}});
    ASSERT_TRUE(graph.ok()) << graph.status() << nodes;
    EXPECT_THAT(graph->tables.blocks, ElementsAre(5, 1)) << nodes;
    // Rows of one block are what the other block makes of each.
    Rng rng(3);
    const Rows x = RandomRows(rng, 5, 2);
    const TensorData all = Matrix(x);
    const Row together = ToDoubles(EvaluateGraph(RowBlock(*graph, 0), {&all, 1}).value()[0]);
    const size_t width = together.size() / 5;
    for (size_t r = 0; r < x.size(); ++r) {
      const TensorData row = Matrix({x[r]});
      const auto begin = together.begin() + static_cast<std::ptrdiff_t>(r * width);
      EXPECT_EQ(ToDoubles(EvaluateGraph(RowBlock(*graph, 1), {&row, 1}).value()[0]),
                Row(begin, begin + static_cast<std::ptrdiff_t>(width)))
          << nodes;
    }
  }
  const std::string dependent[] = {
      "f = Cast<to = 1>(n) y = Mul(s, f)",
      "w = Mul(n, one) m = Concat<axis = 0>(w, last) y = Reshape(s, m)",
      // Rows that are counted by adding up ones.
      "m = Concat<axis = 0>(n, one) z = ConstantOfShape<value = float[1] {1.0}>(m) "
      "c = Transpose<perm = [1, 0]>(z) k = MatMul(c, z) y = Mul(s, k)",
      "m = Concat<axis = 0>(n, one) z = ConstantOfShape<value = float[1] {1.0}>(m) "
      "c = ReduceSum<keepdims = 1>(z, i) y = Mul(s, c)",
      // A loop over the rows.
      "z = Constant<value = float {0.0}>() "
      "p, q = Scan<num_scan_inputs = 1, body = (float a, float[2] b) => (float c, float[2] d) {"
      "o = Constant<value = float {1.0}>() c = Add(a, o) d = Identity(b)}>(z, s) y = Mul(q, p)"};
  for (const std::string& nodes : dependent)
    EXPECT_FALSE(TablesOf(table(nodes, 4)).independent_rows) << nodes;
}

// A file of scikit-learn's converter is one of tables, though it may have no operator of ai.onnx.ml.
TEST(MlTables, FilesOfScikitLearnAreTables) {
  onnx::ModelProto model = Model(
      "(float[N,2] x) => (float[a,b] y) {c = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>() "
      "y = MatMul(x, c)}");
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->clear_dim_param();
  const ImportOptions options{.shapes = {{"rows", {8, 1}}}};
  EXPECT_FALSE(ImportOnnx(model.SerializeAsString(), options).ok());
  model.set_producer_name("skl2onnx");
  const auto graph = ImportOnnx(model.SerializeAsString(), options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(graph->tables.blocks, ElementsAre(8, 1));
}

TEST(MlTables, RowsThatAreNotIndependentAreOneNumber) {
  const auto refusal = [](const std::string& graph, const ImportOptions& options) {
    return std::string(ImportOnnx(Model(graph).SerializeAsString(), options).status().message());
  };
  const auto scaled = [](const std::string& y) {
    return absl::StrCat(
        "(float[N,2] x) => (float[a,b] y) {"
        "s = ai.onnx.ml.Scaler<offset = [0.5, 1.0], scale = [2.0, 3.0]>(x) ",
        y, "}");
  };
  const std::string mixed[] = {
      scaled("y = Softmax<axis = 0>(s)"), scaled("l = Shape(s) f = Cast<to = 1>(l) y = Mul(s, f)"),
      // One row is broadcast to two.
      scaled("c = Constant<value = float[2,2] {1.0, 2.0, 1.0, 2.0}>() y = Add(s, c)")};
  for (size_t k = 0; k < std::size(mixed); ++k) {
    const ImportOptions two{.shapes = {{"N", {2, 1}}}};
    EXPECT_THAT(refusal(mixed[k], two), HasSubstr("the dimension 'N' has one extent")) << mixed[k];
    if (k < 2) {
      EXPECT_THAT(refusal(mixed[k], {}), HasSubstr("dynamic shape [N,2]; fix it with --shape x="));
    }
  }
  EXPECT_THAT(refusal(kScaledRows, {.shapes = {{"N", {1, 2, 3, 4, 5, 6, 7, 8, 9}}}}),
              HasSubstr("'N' is one number of rows or up to 8"));
  // What is too much for many rows says how to ask for fewer.
  const std::vector<std::string> keys = {std::string(2000, 'a'), std::string(2000, 'b'),
                                         std::string(2000, 'c')};
  EXPECT_THAT(refusal(absl::StrCat("(string[N,1000] x) => (float[a,b,c] y) {"
                                   "y = ai.onnx.ml.OneHotEncoder<cats_strings = ",
                                   Quoted(keys), ">(x)}"),
                      {}),
              HasSubstr("2048 rows at once, and --shape N=1,16 takes fewer"));
  EXPECT_THAT(refusal("(float[N,2] x) => (float[a,b] y) {"
                      "y = ai.onnx.ml.DictVectorizer<string_vocabulary = [\"a\"]>(x)}",
                      {}),
              AllOf(HasSubstr("DictVectorizer"), Not(HasSubstr("at once"))));
}

TEST(MlTables, NamesOverTheLimitsAreLeftOutWithAWarning) {
  const auto labels = [](const std::string& name, std::vector<std::string>* warnings) {
    const std::string text = absl::StrCat(
        "(int64[4] x) => (string[a] y) {y = ai.onnx.ml.LabelEncoder<"
        "keys_int64s = [9, 2], values_strings = [\"",
        name, "\", \"two\"]>(x)}");
    const auto graph = ImportOnnx(Model(text, 2).SerializeAsString(), {.warnings = warnings});
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? graph->tables.outputs[0].labels : Names();
  };
  std::vector<std::string> warnings;
  const std::string longest(kMostNameBytes, 'n');
  EXPECT_EQ(labels(longest, &warnings), (Names{longest, "two"}));
  EXPECT_THAT(warnings, ElementsAre());
  EXPECT_EQ(labels(longest + "n", &warnings), Names());
  EXPECT_EQ(labels(longest + "n", nullptr), Names());
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("labels of 'y'"), HasSubstr("1025 bytes"),
                                          HasSubstr("1024 are the most"))));
  // Too many of them.
  onnx::ModelProto model = Model(
      "(int64[4] x) => (string[a] y) {y = ai.onnx.ml.LabelEncoder<"
      "classes_strings = [\"a\"]>(x)}");
  auto* classes = model.mutable_graph()->mutable_node(0)->mutable_attribute(0);
  while (classes->strings_size() <= static_cast<int>(kMostNames)) classes->add_strings("a");
  warnings.clear();
  const auto many = ImportOnnx(model.SerializeAsString(), {.warnings = &warnings});
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ(many->tables.outputs[0].labels, Names());
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("1048577 names")));
}

// ---- Refusals ----

TEST(MlRefusals, StringsNameTheInputAndTheWayOut) {
  const auto refused = AllOf(HasSubstr("(node '"), HasSubstr("strings of an input"),
                             HasSubstr("OneHotEncoder, LabelEncoder"),
                             HasSubstr("encode them as numbers before the model"));
  EXPECT_THAT(Refusal("(string[2] name, float[2] x) => (float[a,b] y, float[c] z) {"
                      "h = Size(name) "
                      "y = ai.onnx.ml.OneHotEncoder<cats_strings = [\"a\"]>(name) z = Identity(x)}",
                      2),
              refused);
  EXPECT_THAT(Refusal("(string[2] name) => (float[a,b] y) {"
                      "y = ai.onnx.ml.OneHotEncoder<cats_int64s = [1]>(name)}"),
              refused);
  EXPECT_THAT(
      Refusal(
          "(string[2,1] name, int64[2,1] x) => (float[a,b] y) {both = Concat<axis = 1>(name, x) "
          "y = ai.onnx.ml.OneHotEncoder<cats_strings = [\"a\"]>(both)}"),
      refused);
  EXPECT_THAT(
      Refusal("(string[2] name) => (string[a] y) {y = Identity(name)}"),
      AllOf(HasSubstr("output 'y', which has strings of an input"), HasSubstr("give out numbers")));
  EXPECT_THAT(Refusal(absl::StrCat("(string[2] name) => (float[a,b] y) {"
                                   "y = ai.onnx.ml.OneHotEncoder<cats_strings = [\"",
                                   std::string(4097, 'k'), "\"]>(name)}")),
              HasSubstr("a key of 4097 bytes"));
  // An encoder of strings that the model gives has lists.
  EXPECT_THAT(
      Refusal(
          "(int64[2] x) => (int64[a] y) {"
          "s = ai.onnx.ml.LabelEncoder<keys_int64s = [1], values_strings = [\"a\"]>(x) "
          "y = ai.onnx.ml.LabelEncoder<keys_strings = [\"a\"], values_tensor = int64[1] {1}>(s)}",
          4),
      AllOf(HasSubstr("LabelEncoder (node 'y'"), HasSubstr("strings that the model gives")));
}

TEST(MlRefusals, TextsAreComparedWithinALimit) {
  const std::vector<std::string> keys = {
      "a", "b", "c", "d", "e", "f", "g", "h", std::string(99, 'i')};
  const auto encoder = [&](int64_t rows) {
    // Ten keys with the empty one, which every input has, and 100 bytes of each text.
    return absl::StrCat("(string[", rows, "] x) => (float[a,b] y) {y = ai.onnx.ml.OneHotEncoder<",
                        "cats_strings = ", Quoted(keys), ">(x)}");
  };
  EXPECT_TRUE(ImportOnnx(Model(encoder(10000000)).SerializeAsString()).ok());
  EXPECT_THAT(Refusal(encoder(10000001)),
              AllOf(HasSubstr("not supported: input 'x'"),
                    HasSubstr("comparing 10000001 texts with 10 keys of up to 99 bytes"),
                    HasSubstr("give fewer rows, or encode the texts as numbers")));
  // So are numbers.
  const auto numbers = [](int64_t rows) {
    return absl::StrCat("(int64[", rows,
                        ",1000] x) => (int64[a,b] y) {y = ai.onnx.ml.LabelEncoder<",
                        "keys_int64s = [1, 2], values_int64s = [3, 4]>(x)}");
  };
  EXPECT_TRUE(ImportOnnx(Model(numbers(5000000), 2).SerializeAsString()).ok());
  EXPECT_THAT(Refusal(numbers(5000001), 2),
              HasSubstr("a comparison of 5000001000 elements with 2 keys"));
}

TEST(MlRefusals, OpsetsAreThoseOfTheDomain) {
  const std::string trees =
      "(float[2,2] x) => (float[a,b] y) {y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1>(x)}";
  EXPECT_THAT(Refusal(trees, 5), HasSubstr("was removed in opset 5"));
  EXPECT_THAT(Refusal(trees, 6), HasSubstr("is of an opset beyond 5"));
  EXPECT_THAT(Refusal("(float[2] x) => (float[a] y) {y = ai.onnx.ml.LabelEncoder<"
                      "keys_floats = [1.0], values_floats = [2.0]>(x)}",
                      1),
              HasSubstr("takes int64 or string"));
  // A model that only lists a newer opset of the domain is none of that opset.
  EXPECT_TRUE(
      ImportOnnx(Model("(float[2] x) => (float[a] y) {y = Neg(x)}", 6).SerializeAsString()).ok());
}

TEST(MlRefusals, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(Refusal("(float[2,2] x) => (float[a,b] y) {"
                      "y = ai.onnx.ml.DictVectorizer<string_vocabulary = [\"a\"]>(x)}"),
              HasSubstr("ai.onnx.ml.DictVectorizer"));
  EXPECT_THAT(Refusal("(float[2,2] x) => (float[a,b] y) {y = ai.onnx.ml.SVMRegressor<"
                      "coefficients = [1.0, 2.0], rho = [0.0], post_transform = \"LOGISTIC\">(x)}"),
              AllOf(HasSubstr("SVMRegressor"), HasSubstr("post_transform 'LOGISTIC'")));
  EXPECT_THAT(Refusal("(float[2,1] x) => (int64[a] y, float[b,c] z) {"
                      "y, z = ai.onnx.ml.LinearClassifier<coefficients = [1.0]>(x)}"),
              HasSubstr("'classlabels_ints'"));
  EXPECT_THAT(Refusal("(float[2,2,2] x) => (float[a,b] y) {"
                      "y = ai.onnx.ml.LinearRegressor<coefficients = [1.0, 2.0]>(x)}"),
              HasSubstr("not 2x2x2"));
  EXPECT_THAT(Refusal("(float[2,2] x) => (float[a,b] y) {"
                      "y = ai.onnx.ml.Scaler<offset = [1.0, 2.0, 3.0]>(x)}"),
              HasSubstr("'offset' has 3 numbers"));
}

// ---- Damage ----

// Changes one attribute: its lists get shorter, longer or other numbers.
void Damage(onnx::NodeProto& node, Rng& rng) {
  if (node.attribute_size() == 0) return;
  onnx::AttributeProto& a =
      *node.mutable_attribute(static_cast<int>(rng() % node.attribute_size()));
  const std::vector<int64_t> numbers = {-1, 0, 1, 2, 3, 7, 1 << 20, INT64_MAX, INT64_MIN};
  const int64_t number = numbers[rng() % numbers.size()];
  const auto edit = [&](auto* list, auto value) {
    const int way = static_cast<int>(rng() % 4), size = list->size();
    if (way == 0 && size > 0)
      list->RemoveLast();
    else if (way == 1)
      *list->Add() = value;
    else if (way == 2 && size > 0)
      *list->Mutable(static_cast<int>(rng() % size)) = value;
    else
      list->Clear();
  };
  if (a.ints_size() > 0) edit(a.mutable_ints(), number);
  if (a.floats_size() > 0) edit(a.mutable_floats(), static_cast<float>(number));
  if (a.strings_size() > 0) edit(a.mutable_strings(), std::string("BRANCH_EQ"));
  if (a.has_i()) a.set_i(number);
  if (a.has_f()) a.set_f(static_cast<float>(number));
  if (a.has_s()) a.set_s("NONE");
  if (a.t().double_data_size() > 0)
    edit(a.mutable_t()->mutable_double_data(), static_cast<double>(number));
  if (a.t().int32_data_size() > 0)
    edit(a.mutable_t()->mutable_int32_data(), static_cast<int32_t>(number));
  if (a.t().dims_size() > 0 && rng() % 2) a.mutable_t()->set_dims(0, rng() % 2 ? number : 1);
}

// Whatever the attributes are, a model is refused in one line, or the graph is legal and can be
// computed.
TEST(MlRefusals, DamagedAttributesNeverCrash) {
  const std::vector<std::pair<std::string, int>> graphs = {
      {"(float[3,2] x) => (int64[a] y, float[b,c] z) {y, z = ai.onnx.ml.SVMClassifier<"
       "classlabels_ints = [4, 1, 7], kernel_type = \"POLY\", kernel_params = [0.5, 0.0, 3.0], "
       "vectors_per_class = [2, 1, 1], support_vectors = [1.0, 0.5, -1.0, 2.0, 0.25, 0.5, -0.75, "
       "-2.0], coefficients = [1.0, -0.5, 0.75, -1.0, 0.5, 1.0, -1.0, 0.25], "
       "rho = [0.1, -0.2, 0.3], prob_a = [-1.5, -2.0, -0.5], prob_b = [0.25, 0.0, -0.25]>(x)}",
       1},
      {"(float[3,2] x) => (float[b,c] z) {z = ai.onnx.ml.SVMRegressor<n_supports = 2, "
       "kernel_type = \"RBF\", kernel_params = [0.5, 0.0, 3.0], one_class = 0, "
       "support_vectors = [1.0, 0.5, -1.0, 2.0], coefficients = [1.0, -0.5], rho = [0.1]>(x)}",
       1},
      {"(float[3,2] x) => (int64[a] y, float[b,c] z) {y, z = ai.onnx.ml.LinearClassifier<"
       "classlabels_ints = [4, 1], coefficients = [1.0, -0.5, 2.0, 1.0], intercepts = [0.5, 1.0], "
       "post_transform = \"SOFTMAX\">(x)}",
       1},
      {absl::StrCat("(float[3,2] x) => (int64[a] y, float[b,c] z) {"
                    "y, z = ai.onnx.ml.TreeEnsembleClassifier<classlabels_int64s = [8, 9], "
                    "base_values = [0.5, 1.0], ",
                    kNodes, ", ", Votes("class", {0, 1, 0, 1}, {1, 2, 3, 4}), ">(x)}"),
       3},
      {absl::StrCat("(double[3,2] x) => (float[b,c] z) {z = ai.onnx.ml.TreeEnsembleRegressor<"
                    "n_targets = 2, aggregate_function = \"MAX\", ",
                    kNodes, ", ", Votes("target", {0, 0, 1, 1}, {1, 2, 3, 4}), ">(x)}"),
       3},
      {"(double[3,2] x) => (double[a,b] y) {y = ai.onnx.ml.TreeEnsemble<n_targets = 2, "
       "tree_roots = [0, 2], nodes_featureids = [0, 1, 0], nodes_modes = uint8[3] {6, 0, 4}, "
       "nodes_splits = double[3] {0.1, 1, 2}, nodes_truenodeids = [0, 1, 3], "
       "nodes_trueleafs = [1, 1, 1], nodes_falsenodeids = [1, 2, 3], nodes_falseleafs = [0, 1, 1], "
       "leaf_targetids = [0, 1, 0, 1], leaf_weights = double[4] {1, 2, 3, 4}, "
       "membership_values = double[3] {1, 4, nan}>(x)}",
       5},
      {"(int64[3,2] x) => (float[a,b] y) {y = ai.onnx.ml.LabelEncoder<"
       "keys_int64s = [1, 2, 3], values_floats = [0.5, 1.5, 2.5], default_float = 9.0>(x)}",
       2},
      {"(float[3,2] x, float[3,1] w) => (float[a,b] y) {"
       "y = ai.onnx.ml.FeatureVectorizer<inputdimensions = [2, 1]>(x, w)}",
       1},
      {"(float[3,2] x) => (float[a,b,c] y) {"
       "y = ai.onnx.ml.OneHotEncoder<cats_int64s = [1, 2], zeros = 1>(x)}",
       1},
      {"(float[3,2] x) => (float[a,b] y) {y = ai.onnx.ml.Imputer<"
       "imputed_value_floats = [1.0, 2.0], replaced_value_float = 0.5>(x)}",
       1},
  };
  int good = 0, refused = 0;
  for (const auto& [graph, opset] : graphs) {
    const onnx::ModelProto model = Model(graph, opset);
    ASSERT_TRUE(ImportOnnx(model.SerializeAsString()).ok())
        << ImportOnnx(model.SerializeAsString()).status();
    for (uint64_t seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, " of ", graph));
      Rng rng(seed);
      onnx::ModelProto damaged = model;
      for (uint64_t k = 0; k <= seed % 3; ++k)
        Damage(*damaged.mutable_graph()->mutable_node(0), rng);
      const auto imported = ImportOnnx(damaged.SerializeAsString());
      if (!imported.ok()) {
        ++refused;
        ASSERT_THAT(std::string(imported.status().message()), Not(HasSubstr("\n")));
        continue;
      }
      ++good;
      std::vector<TensorData> inputs;
      for (const ValueId v : imported->inputs)
        inputs.push_back(Filled(imported->values[v].type, 1));
      ASSERT_TRUE(EvaluateGraph(*imported, inputs).ok());
    }
  }
  EXPECT_GT(good, 300);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace heddle::graph::classical_test
