// What libxgboost trains, compiled in every form, predicts what libxgboost predicts: margins and probabilities of all rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xgboost/c_api.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/driver/compile.h"
#include "tests/classical/xgboost_handles.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kFeatures = 6;
constexpr int64_t kTrainRows = 500, kRows = 300;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Setting {
  int depth = 3;
  int rounds = 4;
  const char* objective = "reg:squarederror";
  int classes = 1;           // more: multi:softprob
  const char* gamma = "0";   // large: no split is worth it, and every tree is one leaf
  const char* leaves = "0";  // more: trees grow leaf by leaf, and so become uneven
  int bins = 256;
};

// Values in steps of 1/8, so that rows often lie on thresholds; a tenth is missing.
std::vector<float> RandomRows(int64_t rows, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < rows * kFeatures; ++i) {
    values.push_back(rng() % 10 == 0 ? kNan : static_cast<float>(rng() % 1024) / 8 + 20);
  }
  return values;
}

Matrix MakeMatrix(const std::vector<float>& values) {
  DMatrixHandle handle = nullptr;
  CheckXgboost(XGDMatrixCreateFromMat_omp(values.data(), values.size() / kFeatures, kFeatures, kNan,
                                          &handle, 1));
  return Matrix(handle);
}

Booster Train(const Setting& setting) {
  const std::vector<float> rows = RandomRows(kTrainRows, 1);
  std::mt19937_64 rng(2);
  std::vector<float> labels;
  for (int64_t r = 0; r < kTrainRows; ++r) {
    const float* x = rows.data() + r * kFeatures;
    const double noise = static_cast<double>(rng() % 100) / 50;
    const double score = (std::isnan(x[0]) ? 3 : x[0] / 50) + (x[1] > 80 ? 1 : -1) + noise;
    const std::string objective = setting.objective;
    double label = score;
    if (setting.classes > 1) label = static_cast<int>(score) % setting.classes;
    if (objective.starts_with("binary:")) label = score > 2.5 ? 1 : 0;
    if (objective.starts_with("count:")) label = std::floor(std::abs(score));
    labels.push_back(static_cast<float>(label));
  }
  const Matrix matrix = MakeMatrix(rows);
  CheckXgboost(XGDMatrixSetFloatInfo(matrix.get(), "label", labels.data(), labels.size()));
  BoosterHandle handle = nullptr;
  DMatrixHandle matrices[] = {matrix.get()};
  CheckXgboost(XGBoosterCreate(matrices, 1, &handle));
  Booster booster(handle);
  std::vector<std::pair<std::string, std::string>> parameters = {
      {"nthread", "1"},
      {"verbosity", "0"},
      {"min_child_weight", "0"},
      {"tree_method", "hist"},
      {"objective", setting.objective},
      {"max_depth", absl::StrCat(setting.depth)},
      {"max_bin", absl::StrCat(setting.bins)},
      {"gamma", setting.gamma}};
  if (setting.classes > 1) parameters.emplace_back("num_class", absl::StrCat(setting.classes));
  if (std::string(setting.leaves) != "0") {
    parameters.emplace_back("max_leaves", setting.leaves);
    parameters.emplace_back("grow_policy", "lossguide");
  }
  for (const auto& [name, value] : parameters)
    CheckXgboost(XGBoosterSetParam(handle, name.c_str(), value.c_str()));
  for (int i = 0; i < setting.rounds; ++i)
    CheckXgboost(XGBoosterUpdateOneIter(handle, i, matrix.get()));
  return booster;
}

std::string Save(BoosterHandle booster) {
  bst_ulong bytes = 0;
  const char* data = nullptr;
  CheckXgboost(XGBoosterSaveModelToBuffer(booster, R"({"format": "json"})", &bytes, &data));
  return std::string(data, bytes);
}

std::vector<float> Predict(BoosterHandle booster, const std::vector<float>& rows) {
  const Matrix matrix = MakeMatrix(rows);
  const bst_ulong* shape = nullptr;
  bst_ulong rank = 0;
  const float* result = nullptr;
  CheckXgboost(XGBoosterPredictFromDMatrix(
      booster, matrix.get(),
      R"({"type": 0, "training": false, "strict_shape": true, "iteration_begin": 0, "iteration_end": 0})",
      &shape, &rank, &result));
  size_t count = 1;
  for (bst_ulong i = 0; i < rank; ++i) count *= shape[i];
  return std::vector<float>(result, result + count);
}

// Compiles the model for `rows` rows in one form. Unavailable forms are errors.
absl::StatusOr<runtime::Module> Compile(const std::string& model, graph::ForestForm form,
                                        int64_t rows) {
  ModelOptions options;
  options.import.shapes["rows"] = {rows};
  CompileOptions compile;
  compile.plan.forests["forest"] = form;
  HEDDLE_ASSIGN_OR_RETURN(const std::string bytes, CompileModel(model, options, {}, {}, compile));
  return runtime::ParseModule(bytes);
}

// Compares all rows in each form that the forest has, and returns how many these are.
int CompareForms(const Setting& setting) {
  const Booster booster = Train(setting);
  const std::string model = Save(booster.get());
  int forms = 0;
  for (const int64_t count : {kRows, int64_t{1}}) {
    const std::vector<float> rows = RandomRows(count, 7);
    const std::vector<float> expected = Predict(booster.get(), rows);
    for (const graph::ForestForm form : graph::kForestForms) {
      const std::string what = absl::StrCat("depth ", setting.depth, ", ", setting.objective, ", ",
                                            count, " rows, ", std::string(ForestFormName(form)));
      const absl::StatusOr<runtime::Module> module = Compile(model, form, count);
      if (!module.ok()) {
        EXPECT_THAT(std::string(module.status().message()),
                    AllOf(HasSubstr("has no form"), HasSubstr("choose 'walk'")))
            << what;
        continue;
      }
      ++forms;
      const auto outputs = RunModule(
          *module,
          {std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float))});
      EXPECT_TRUE(outputs.ok()) << what << ": " << outputs.status();
      if (!outputs.ok()) continue;
      const std::vector<float> scores = Floats((*outputs)[0]);
      EXPECT_EQ(scores.size(), expected.size()) << what;
      for (size_t i = 0; i < std::min(scores.size(), expected.size()); ++i)
        EXPECT_NEAR(scores[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << what << " " << i;
    }
  }
  return forms;
}

TEST(XgboostForms, PredictWhatXgboostPredictsAtEveryDepth) {
  for (const int depth : {1, 3, 6, 7}) EXPECT_EQ(CompareForms({.depth = depth}), 8) << depth;
  EXPECT_THAT(CompareForms({.depth = 8}), AnyOf(4, 6)) << "not select";
  for (const int depth : {10, 12}) {
    EXPECT_THAT(CompareForms({.depth = depth}), AnyOf(2, 4))
        << "walk, and leaves if there are few of them";
    EXPECT_GE(CompareForms({.depth = depth, .leaves = "31"}), 4) << "uneven trees";
  }
}

TEST(XgboostForms, PredictWhatXgboostPredictsForEveryKind) {
  for (const char* objective : {"binary:logistic", "binary:logitraw", "count:poisson"})
    EXPECT_EQ(CompareForms({.depth = 5, .objective = objective}), 8) << objective;
  EXPECT_EQ(CompareForms({.depth = 4, .objective = "multi:softprob", .classes = 3}), 8);
  EXPECT_EQ(CompareForms({.gamma = "1e9"}), 2) << "every tree is a leaf: a walk of no steps";
  EXPECT_GE(CompareForms({.depth = 8, .leaves = "20"}), 6) << "uneven trees";
  // More thresholds of a column than a byte counts.
  EXPECT_GE(CompareForms({.depth = 8, .rounds = 60, .bins = 1024}), 4);
}

TEST(XgboostForms, ARefusalSaysWhy) {
  const std::string model = Save(Train({.depth = 12}).get());
  EXPECT_THAT(
      std::string(Compile(model, graph::ForestForm::kRanks, 16).status().message()),
      AllOf(HasSubstr("the forest 'forest' has no form 'ranks'"), HasSubstr("8 are the most")));
}

}  // namespace
}  // namespace heddle
