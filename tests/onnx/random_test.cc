// Operators that draw random numbers: their distributions, what the numbers depend on, and the input
// that is their seed. All seeds are fixed, so the statistics of a test are always the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/measure/compare.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/summary.h"
#include "tests/driver/run_model.h"
#include "tests/onnx/model_text.h"

namespace heddle::graph {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string Model(int opset, const std::string& graph) {
  return onnx_cases::ModelOf(opset, graph).SerializeAsString();
}

TensorData Scalar(int64_t value) { return Repeated(FromInts({value}), {}); }

ImportOptions WithValue(const std::string& input, const std::string& value) {
  ImportOptions options;
  options.input_values[input] = value;
  return options;
}

std::vector<std::string> InputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const ValueId v : graph.inputs) names.push_back(graph.values[v].name);
  return names;
}

// All outputs for a seed, which comes after the other inputs.
std::vector<TensorData> Draw(const std::string& model, int64_t seed,
                             std::vector<TensorData> inputs = {}) {
  const auto graph = ImportOnnx(model);
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  inputs.push_back(Scalar(seed));
  auto outputs = EvaluateGraph(*graph, inputs);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<TensorData>{};
}

// The first output of an operator without operands: "RandomNormal<..>".
TensorData DrawOne(int opset, const std::string& op, const std::string& type, int64_t seed) {
  const auto drawn =
      Draw(Model(opset, absl::StrCat("() => (", type, " y) {y = ", op, "()}")), seed);
  return drawn.empty() ? TensorData{} : drawn[0];
}

// ---- Statistics ----

double Mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

double Correlation(const std::vector<double>& x, const std::vector<double>& y) {
  EXPECT_EQ(x.size(), y.size());
  const double mx = Mean(x), my = Mean(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
  }
  return xy / std::sqrt(xx * yy);
}

// Four standard deviations of the correlation of independent numbers.
double MostCorrelated(size_t count) { return 4 / std::sqrt(static_cast<double>(count)); }

// The distance of Kolmogorov and Smirnov, times the root of the number of samples: above 1.63 in one
// of a hundred cases.
double Distance(std::vector<double> x, double (*distribution)(double)) {
  std::sort(x.begin(), x.end());
  const double n = static_cast<double>(x.size());
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = distribution(x[i]), at = static_cast<double>(i);
    most = std::max({most, std::fabs(expected - at / n), std::fabs(expected - (at + 1) / n)});
  }
  return most * std::sqrt(n);
}
constexpr double kMostDistance = 1.63;

double UnitDistribution(double x) { return std::clamp(x, 0.0, 1.0); }
double NormalDistribution(double x) { return std::erfc(-x / std::sqrt(2)) / 2; }

struct FloatType {
  const char* name;
  int onnx;
  int first_opset;
  double step;  // the distance of neighbours, relative to a number
};
constexpr FloatType kFloatTypes[] = {{"float", 1, 1, 0x1p-24},
                                     {"double", 11, 1, 0x1p-53},
                                     {"float16", 10, 1, 0x1p-11},
                                     {"bfloat16", 16, 22, 0x1p-8}};

TEST(Random, UniformNumbersFillTheInterval) {
  for (const FloatType& t : kFloatTypes) {
    for (const int opset : {t.first_opset, 22, 28}) {
      const TensorData y = DrawOne(
          opset,
          absl::StrCat(
              "RandomUniform<shape = [100, 1000], low = -1.0, high = 3.0, dtype = ", t.onnx, ">"),
          absl::StrCat(t.name, "[100,1000]"), 5);
      ASSERT_NE(y.bytes, nullptr) << t.name;
      std::vector<double> x = ToDoubles(y);
      for (double& v : x) v = (v + 1) / 4;
      EXPECT_THAT(x, Each(AllOf(Ge(0), Lt(1)))) << t.name;
      EXPECT_NEAR(Mean(x), 0.5, 0.004) << t.name;
      EXPECT_LE(Distance(x, UnitDistribution),
                kMostDistance + t.step * std::sqrt(static_cast<double>(x.size())))
          << t.name;
    }
  }
}

TEST(Random, NormalNumbersHaveTheirDistribution) {
  for (const FloatType& t : kFloatTypes) {
    const TensorData y = DrawOne(
        std::max(t.first_opset, 17),
        absl::StrCat("RandomNormal<shape = [100000], mean = 2.0, scale = 0.5, dtype = ", t.onnx,
                     ">"),
        absl::StrCat(t.name, "[100000]"), 6);
    ASSERT_NE(y.bytes, nullptr) << t.name;
    std::vector<double> x = ToDoubles(y), squares;
    for (double& v : x) v = (v - 2) / 0.5;
    for (const double v : x) squares.push_back(v * v);
    EXPECT_NEAR(Mean(x), 0, 0.01) << t.name;
    EXPECT_NEAR(Mean(squares), 1, 0.015) << t.name;
    EXPECT_GT(*std::max_element(x.begin(), x.end()), 3.7) << t.name;
    EXPECT_LT(*std::max_element(x.begin(), x.end()), 6) << t.name;
    EXPECT_LE(Distance(x, NormalDistribution),
              kMostDistance + 4 * t.step * std::sqrt(static_cast<double>(x.size())))
        << t.name;
  }
}

// Rounding must not reach the upper bound, and low = high is one number.
TEST(Random, UniformNumbersStayBelowTheUpperBound) {
  const auto drawn = [](const std::string& bounds, int type, const std::string& name) {
    return ToDoubles(
        DrawOne(22, absl::StrCat("RandomUniform<shape = [5000], ", bounds, ", dtype = ", type, ">"),
                name + "[5000]", 1));
  };
  EXPECT_THAT(drawn("low = 16777214.0, high = 16777216.0", 1, "float"),
              AllOf(Each(AllOf(Ge(16777214), Lt(16777216))), Contains(16777215)));
  EXPECT_THAT(drawn("low = 2046.0, high = 2048.0", 10, "float16"),
              AllOf(Each(AllOf(Ge(2046), Lt(2048))), Contains(2047)));
  EXPECT_THAT(drawn("low = 0.1, high = 0.11", 16, "bfloat16"), Each(AllOf(Ge(0.1f), Lt(0.11f))));
  EXPECT_THAT(drawn("low = -256.0, high = -254.0", 16, "bfloat16"),
              Each(AllOf(Ge(-256), Lt(-254))));
  EXPECT_THAT(drawn("low = 1.5, high = 1.5", 1, "float"), Each(1.5));
}

// ---- What numbers depend on ----

TEST(Random, NodesSeedsAndPlacesAreIndependent) {
  const std::string model = Model(17, R"(() => (float[20000] a, float[20000] b, float[20000] c,
                                                float[20000] d) {
    a = RandomUniform<shape = [20000]>()
    b = RandomUniform<shape = [20000]>()
    c = RandomUniform<shape = [20000], seed = 1.0>()
    d = RandomUniform<shape = [20000], seed = 2.0>()
  })");
  std::vector<std::vector<double>> all;
  for (const int64_t seed : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{1} << 32}) {
    const auto first = Draw(model, seed), again = Draw(model, seed);
    ASSERT_EQ(first.size(), 4u);
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(*first[i].bytes, *again[i].bytes);
      all.push_back(ToDoubles(first[i]));
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < i; ++k)
      EXPECT_LT(std::fabs(Correlation(all[i], all[k])), MostCorrelated(20000)) << i << " " << k;
    for (const int64_t step : {1, 2, 1000}) {
      const std::vector<double> head(all[i].begin(), all[i].end() - step),
          tail(all[i].begin() + step, all[i].end());
      EXPECT_LT(std::fabs(Correlation(head, tail)), MostCorrelated(head.size()))
          << i << " " << step;
    }
  }
}

// An attribute `seed` makes other numbers than none, and the same number in two nodes does not make
// them equal.
TEST(Random, TheNodesOwnSeedCountsToo) {
  const auto drawn = [](const std::string& attribute) {
    return ToDoubles(
        DrawOne(17, absl::StrCat("RandomUniform<shape = [4]", attribute, ">"), "float[4]", 3));
  };
  EXPECT_NE(drawn(""), drawn(", seed = 0.0"));
  EXPECT_NE(drawn(", seed = 1.0"), drawn(", seed = 0.0"));
  EXPECT_EQ(drawn(", seed = 1.0"), drawn(", seed = 1.0"));
}

// The same element for many seeds, as of many runs of one module.
TEST(Random, SuccessiveSeedsGiveIndependentNumbers) {
  const auto graph = ImportOnnx(Model(17, "() => (float[3] y) {y = RandomUniform<shape = [3]>()}"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<std::vector<double>> by_place(3);
  for (int64_t seed = 0; seed < 2000; ++seed) {
    const auto y = EvaluateGraph(*graph, std::vector{Scalar(seed)});
    ASSERT_TRUE(y.ok()) << y.status();
    for (size_t i = 0; i < 3; ++i) by_place[i].push_back(ToDoubles((*y)[0])[i]);
  }
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<double>& x = by_place[i];
    EXPECT_LE(Distance(x, UnitDistribution), kMostDistance) << i;
    EXPECT_LT(std::fabs(Correlation(x, by_place[(i + 1) % 3])), MostCorrelated(x.size()));
    EXPECT_LT(std::fabs(Correlation({x.begin(), x.end() - 1}, {x.begin() + 1, x.end()})),
              MostCorrelated(x.size()));
  }
}

TEST(Random, EveryIterationOfALoopDrawsItsOwnNumbers) {
  const auto drawn = Draw(Model(17, R"(() => (float[3,2] y) {
    count = Constant<value = int64 {3}>()
    go = Constant<value = bool {1}>()
    y = Loop<body = (int64 i, bool c) => (bool d, float[2] z) {
      d = Identity(c)
      z = RandomUniform<shape = [2]>()
    }>(count, go)
  })"),
                          4);
  ASSERT_EQ(drawn.size(), 1u);
  std::vector<double> x = ToDoubles(drawn[0]);
  std::sort(x.begin(), x.end());
  EXPECT_EQ(std::unique(x.begin(), x.end()) - x.begin(), 6);
}

// ---- Operators ----

TEST(Random, NumbersLikeAnOperand) {
  const TensorData half = FromDoubles({1, 2, 3, 4}, {2, 2}, ir::DType::kF16);
  for (const char* op : {"RandomNormalLike", "RandomUniformLike"}) {
    const auto own =
        Draw(Model(17, absl::StrCat("(float16[2,2] x) => (float16[2,2] y) {y = ", op, "(x)}")), 1,
             {half});
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0].type, half.type);
    const auto other =
        Draw(Model(17, absl::StrCat("(int32[3] x) => (double[3] y) {y = ", op, "<dtype = 11>(x)}")),
             1, {FromInts({1, 2, 3}, ir::DType::kI32)});
    ASSERT_EQ(other.size(), 1u);
    EXPECT_EQ(other[0].type, (TensorType{ir::DType::kF64, {3}}));
  }
}

TEST(Random, BernoulliTakesItsProbabilities) {
  constexpr int64_t kCount = 20000;
  for (const FloatType& t : kFloatTypes) {
    std::vector<double> p;
    for (int64_t i = 0; i < kCount; ++i) p.insert(p.end(), {0, 1, 0.25});
    const ir::DType dtype = ImportOnnx(Model(22, absl::StrCat("(", t.name, "[1] x) => (", t.name,
                                                              "[1] y) {y = Identity(x)}")))
                                ->values[0]
                                .type.dtype;
    const auto drawn = Draw(Model(std::max(t.first_opset, 15),
                                  absl::StrCat("(", t.name, "[", 3 * kCount, "] p) => (", t.name,
                                               "[", 3 * kCount, "] y) {y = Bernoulli(p)}")),
                            2, {FromDoubles(p, {3 * kCount}, dtype)});
    ASSERT_EQ(drawn.size(), 1u);
    EXPECT_EQ(drawn[0].type.dtype, dtype);
    const std::vector<double> y = ToDoubles(drawn[0]);
    double ones = 0;
    for (size_t i = 0; i < y.size(); i += 3) {
      ASSERT_EQ(y[i], 0) << i;
      ASSERT_EQ(y[i + 1], 1) << i;
      ones += y[i + 2];
    }
    EXPECT_NEAR(ones / kCount, 0.25, 0.012) << t.name;
  }
}

TEST(Random, BernoulliGivesEveryType) {
  for (const auto& [name, onnx] : {std::pair{"bool", 9},
                                   {"int8", 3},
                                   {"uint64", 13},
                                   {"int32", 6},
                                   {"float16", 10},
                                   {"double", 11}}) {
    const auto drawn =
        Draw(Model(15, absl::StrCat("(float[4] p) => (", name,
                                    "[4] y) {y = Bernoulli<dtype = ", onnx, ">(p)}")),
             9, {FromDoubles({0, 1, 1, 0}, {4}, ir::DType::kF32)});
    ASSERT_EQ(drawn.size(), 1u) << name;
    EXPECT_THAT(ToDoubles(drawn[0]), ElementsAre(0, 1, 1, 0)) << name;
  }
}

TEST(Random, MultinomialDrawsClassesByTheirWeights) {
  constexpr int64_t kSamples = 20000;
  const std::vector<double> weights = {0.1, 0.4, 0, 0.3, 0.2};
  std::vector<double> logs;
  for (const double shift : {0.0, 50.0}) {  // the weights need not add up to 1
    for (const double w : weights) logs.push_back(std::log(w) + shift);
  }
  for (const auto& [type, name] : {std::pair{6, "int32"}, {7, "int64"}}) {
    const auto drawn = Draw(Model(17, absl::StrCat("(float[2,5] x) => (", name, "[2,", kSamples,
                                                   "] y) {y = Multinomial<dtype = ", type,
                                                   ", sample_size = ", kSamples, ">(x)}")),
                            8, {FromDoubles(logs, {2, 5}, ir::DType::kF32)});
    ASSERT_EQ(drawn.size(), 1u);
    EXPECT_EQ(drawn[0].type,
              (TensorType{type == 6 ? ir::DType::kI32 : ir::DType::kI64, {2, kSamples}}));
    const std::vector<int64_t> y = ToInts(drawn[0]);
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<double> counts(5, 0);
      for (int64_t i = 0; i < kSamples; ++i) {
        const int64_t drawn_class = y[row * kSamples + i];
        ASSERT_TRUE(drawn_class >= 0 && drawn_class < 5) << drawn_class;
        ++counts[drawn_class];
      }
      EXPECT_EQ(counts[2], 0);
      double chi_squared = 0;
      for (size_t k = 0; k < 5; ++k) {
        const double expected = weights[k] * kSamples;
        if (expected > 0) chi_squared += (counts[k] - expected) * (counts[k] - expected) / expected;
      }
      EXPECT_LT(chi_squared, 11.3) << "three degrees of freedom, one of a hundred cases";
    }
  }
}

TEST(Random, MultinomialNeverLeavesTheClasses) {
  const auto drawn = Draw(
      Model(22, "(double[4,3] x) => (int32[4,50] y) {y = Multinomial<sample_size = 50>(x)}"), 1,
      {FromDoubles({-kInf, -kInf, -kInf, kNan, kNan, kNan, -kInf, kInf, 0, kNan, 1, 2}, {4, 3},
                   ir::DType::kF64)});
  ASSERT_EQ(drawn.size(), 1u);
  const std::vector<double> y = ToDoubles(drawn[0]);
  EXPECT_THAT(y, Each(AllOf(Ge(0), Lt(3))));
  for (size_t i = 100; i < 150; ++i) EXPECT_EQ(y[i], 1);
}

TEST(Random, DropoutInTrainingDropsAndScales) {
  constexpr size_t kCount = 20000;
  const auto draw = [&](const std::string& ratio, int64_t seed) {
    return Draw(Model(13, absl::StrCat("(float[20000] x) => (float[20000] y, bool[20000] m) {r = "
                                       "Constant<value = float {",
                                       ratio,
                                       "}>() t = Constant<value = bool {1}>() "
                                       "y, m = Dropout<seed = 3>(x, r, t)}")),
                seed, {FromDoubles(std::vector<double>(kCount, 3), {kCount}, ir::DType::kF32)});
  };
  const auto drawn = draw("0.25", 4);
  ASSERT_EQ(drawn.size(), 2u);
  const std::vector<double> y = ToDoubles(drawn[0]), mask = ToDoubles(drawn[1]);
  EXPECT_NEAR(Mean(mask), 0.75, 0.012);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(y[i], mask[i] * 4) << i;
  EXPECT_NE(*draw("0.25", 5)[0].bytes, *drawn[0].bytes);
}

TEST(Random, DropoutTakesAComputedRatio) {
  const std::string model = Model(13, R"((float16[6] x, float r) => (float16[6] y, bool[6] m) {
                     t = Constant<value = bool {1}>()
                     y, m = Dropout(x, r, t)
                   })");
  const TensorData x = FromDoubles({1, 2, 3, 4, 5, 6}, {6}, ir::DType::kF16);
  const auto kept = Draw(model, 4, {x, FromDoubles({0}, {}, ir::DType::kF32)});
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].type, x.type);
  EXPECT_THAT(ToDoubles(kept[0]), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(ToDoubles(kept[1]), Each(1));
}

TEST(Random, WhatCannotBeDrawnIsRefused) {
  const auto refusal = [](int opset, const std::string& graph) {
    return std::string(ImportOnnx(Model(opset, graph)).status().message());
  };
  EXPECT_THAT(refusal(17, "() => (float[2] y) {y = RandomUniform<shape = [2], low = 2.0>()}"),
              HasSubstr("cannot draw f32 from 2 to 1"));
  EXPECT_THAT(refusal(17,
                      "() => (float16[2] y) {y = RandomUniform<shape = [2], dtype = 10, high = "
                      "100000.0>()}"),
              HasSubstr("cannot draw f16 from 0 to 100000"));
  EXPECT_THAT(refusal(17, "() => (float[2] y) {y = RandomNormal<shape = [-2]>()}"),
              HasSubstr("negative extent"));
  EXPECT_THAT(refusal(17,
                      "() => (float[2] y) {y = RandomNormal<shape = [1000000, 1000000, "
                      "1000000]>()}"),
              HasSubstr("1000000"));
  EXPECT_THAT(refusal(17, "(int32[2] x) => (int32[2] y) {y = RandomNormalLike(x)}"),
              HasSubstr("draws floats, not int32; the attribute 'dtype' decides the type"));
  EXPECT_THAT(refusal(17, "(float[2,3] x) => (int32[2,0] y) {y = Multinomial<sample_size = 0>(x)}"),
              HasSubstr("draws 0 samples"));
  EXPECT_THAT(refusal(17, "(float[3] x) => (int32[1] y) {y = Multinomial(x)}"),
              HasSubstr("takes a matrix"));
  EXPECT_THAT(refusal(17, "(float[2,3] x) => (float[2,1] y) {y = Multinomial<dtype = 1>(x)}"),
              HasSubstr("draws int32 or int64, not float"));
  EXPECT_THAT(refusal(13,
                      "(float[3] x) => (float[3] y) {r = Constant<value = float {1.0}>() t = "
                      "Constant<value = bool {1}>() y = Dropout(x, r, t)}"),
              HasSubstr("takes a ratio from 0 to below 1, not 1"));
}

// ---- The input ----

TEST(Random, TheSeedIsTheLastInput) {
  const std::string model =
      Model(17, "(float[N] x) => (float[N] y) {r = RandomNormalLike(x) y = Add(x, r)}");
  ImportOptions options;
  options.shapes["N"] = {4};
  const auto graph = ImportOnnx(model, options);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(InputNames(*graph), ElementsAre("x", "seed"));
  EXPECT_EQ(graph->values[graph->inputs[1]].type, (TensorType{ir::DType::kI64, {}}));
  const auto summary = SummarizeOnnx(model);
  ASSERT_TRUE(summary.ok());
  EXPECT_THAT(summary->inputs,
              ElementsAre(FieldsAre("x", "float", "[N]"), FieldsAre("seed", "int64", "[]")));
  EXPECT_THAT(LikelyShapes(model, WithValue("seed", "7"))->size(), 1);
}

TEST(Random, ANameThatIsTakenIsNotTheSeeds) {
  const auto names = [](const std::string& graph) {
    const auto imported = ImportOnnx(Model(17, graph));
    EXPECT_TRUE(imported.ok()) << imported.status();
    return imported.ok() ? InputNames(*imported) : std::vector<std::string>{};
  };
  EXPECT_THAT(names("(float[2] seed) => (float[2] y) {y = RandomNormalLike(seed)}"),
              ElementsAre("seed", "seed_1"));
  EXPECT_THAT(names("(float[2] x) => (float[2] seed_1) {seed = Relu(x) seed_1 = Bernoulli(seed)}"),
              ElementsAre("x", "seed_2"));
}

TEST(Random, OnlyModelsThatDrawHaveASeed) {
  const auto has = [](const std::string& graph) {
    const auto imported = ImportOnnx(Model(17, graph));
    EXPECT_TRUE(imported.ok()) << imported.status();
    const auto names = imported.ok() ? InputNames(*imported) : std::vector<std::string>{};
    return std::count(names.begin(), names.end(), "seed") == 1;
  };
  EXPECT_FALSE(has("(float[2] x) => (float[2] y) {y = Dropout(x)}"));
  EXPECT_FALSE(
      has("(float[2] x, float r) => (float[2] y) {t = Constant<value = bool {0}>() y = "
          "Dropout(x, r, t)}"));
  EXPECT_FALSE(
      has("(float[2] x) => (float[2] y) {r = Constant<value = float {0.0}>() t = "
          "Constant<value = bool {1}>() y = Dropout(x, r, t)}"));
  EXPECT_FALSE(
      has("(float[2] x) => (float[2] y) {c = Constant<value = bool {1}>() y = "
          "If<then_branch = () => (float[2] a) {a = Neg(x)}, else_branch = () => (float[2] "
          "b) {b = RandomNormalLike(x)}>(c)}"));
  EXPECT_TRUE(
      has("(float[2] x, float r) => (float[2] y) {t = Constant<value = bool {1}>() y = "
          "Dropout(x, r, t)}"));
  EXPECT_TRUE(
      has("(float[2] x, bool c) => (float[2] y) {y = If<then_branch = () => (float[2] a) {a "
          "= Neg(x)}, else_branch = () => (float[2] b) {b = RandomNormalLike(x)}>(c)}"));
  EXPECT_TRUE(
      has("(float[2] x) => (float[2] y) {y = com.example.Noisy(x)} com.example.Noisy:17 (a) "
          "=> (b) {n = RandomNormalLike(a) b = Add(a, n)}"));
}

TEST(Random, ASeedThatIsFixedMakesConstants) {
  const std::string model = Model(17, R"((float[2] x) => (float[2] y, float[2,3] u) {
    u = RandomUniform<shape = [2, 3]>()
    y = Identity(x)
  })");
  const auto fixed = ImportOnnx(model, WithValue("seed", "7"));
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_THAT(InputNames(*fixed), ElementsAre("x"));
  for (const Node& node : fixed->nodes) EXPECT_EQ(node.kind, OpKind::kIdentity);  // of the outputs
  const TensorData x = FromDoubles({1, 2}, {2}, ir::DType::kF32);
  const auto outputs = EvaluateGraph(*fixed, std::vector{x});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(*(*outputs)[1].bytes, *Draw(model, 7, {x})[1].bytes);
  EXPECT_NE(*(*outputs)[1].bytes, *Draw(model, 8, {x})[1].bytes);
}

// ---- Machine code ----

TEST(Random, CompiledCodeDrawsTheNumbersOfTheInterpreter) {
  const std::string model = Model(22, R"((float[4,6] p) => (float[30,70] u, double[50] d,
      float16[33] h, float[4,6] b, int32[4,9] c, float[4,6] k, bool[4,6] m, float[300] z) {
    u = RandomUniform<shape = [30, 70], low = -0.3, high = 0.7>()
    d = RandomUniform<shape = [50], low = -0.3, high = 0.7, dtype = 11>()
    h = RandomUniform<shape = [33], low = -0.3, high = 0.7, dtype = 10>()
    b = Bernoulli(p)
    c = Multinomial<sample_size = 9>(p)
    r = Constant<value = float {0.3}>()
    t = Constant<value = bool {1}>()
    k, m = Dropout(p, r, t)
    z = RandomNormal<shape = [300]>()
  })");
  const int64_t seed = -3;
  const std::vector<std::string> inputs = {
      RandomFloats(4 * 6 * 4, 2), std::string(reinterpret_cast<const char*>(&seed), sizeof seed)};
  const auto expected = InterpretModel(model, {}, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const int threads : {1, 2}) {
    Target target;
    target.threads = threads;
    const auto bytes = CompileModel(model, {}, target, {}, {});
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto outputs = RunModule(*runtime::ParseModule(*bytes), inputs, /*runs=*/2);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ASSERT_EQ(outputs->size(), 8u);
    for (size_t i = 0; i < 7; ++i)
      EXPECT_EQ((*outputs)[i], (*expected)[i]) << "output " << i << ", threads " << threads;
    EXPECT_LE(RelativeError((*outputs)[7], (*expected)[7]), runtime::kDirectTolerance.relative);
  }
}

}  // namespace
}  // namespace heddle::graph
