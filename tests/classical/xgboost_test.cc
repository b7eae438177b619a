// Models that the installed XGBoost trains, saves and predicts with.
#include "compiler/classical/xgboost.h"

#include <gtest/gtest.h>
#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/classical/read.h"
#include "tests/classical/damage.h"
#include "tests/classical/xgboost_handles.h"

namespace heddle::classical {
namespace {

using Json = nlohmann::json;
using Rng = std::mt19937_64;
using Parameters = std::map<std::string, std::string>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kColumns = 6;
constexpr int kTrainRows = 400;
constexpr int kTestRows = 600;
constexpr int kCategories = 12;

using Rows = std::vector<std::vector<float>>;

Matrix MakeMatrix(const Rows& rows, bool categorical) {
  std::vector<float> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  DMatrixHandle handle = nullptr;
  CheckXgboost(
      XGDMatrixCreateFromMat_omp(flat.data(), rows.size(), rows[0].size(), kNan, &handle, 1));
  Matrix matrix(handle);
  if (categorical) {
    // The last two columns.
    const char* types[] = {"float", "float", "float", "float", "c", "c"};
    CheckXgboost(XGDMatrixSetStrFeatureInfo(handle, "feature_type", types, kColumns));
  }
  return matrix;
}

// Rows with a tenth of the values missing; the last two columns are categories.
Rows RandomRows(int count, Rng& rng) {
  Rows rows(count);
  std::normal_distribution<float> normal(0, 2);
  for (auto& row : rows) {
    for (int c = 0; c < kColumns; ++c) {
      const float value = c < 4 ? normal(rng) : static_cast<float>(rng() % kCategories);
      row.push_back(rng() % 10 == 0 ? kNan : value);
    }
  }
  return rows;
}

// What a row says, as a score around 0, with some noise.
double Score(const std::vector<float>& row, Rng& rng) {
  const auto of = [&](int c) { return std::isnan(row[c]) ? 1.0 : row[c]; };
  return of(0) * 0.5 - std::abs(of(1)) * 0.3 + (of(2) > 0.5 ? of(3) * 0.4 : -0.2) +
         (static_cast<int>(of(4)) % 3 - 1) * 0.5 + (of(5) > 5 ? 0.3 : -0.3) +
         static_cast<double>(rng() % 100) / 200;
}

// How labels of an objective come from a score.
float Label(const std::string& objective, const Parameters& parameters, double score) {
  if (objective.starts_with("binary:") || objective == "reg:logistic") return score > 0 ? 1 : 0;
  if (objective.starts_with("multi:")) {
    const int classes = std::stoi(parameters.at("num_class"));
    return static_cast<float>(std::clamp(static_cast<int>(score + 2), 0, classes - 1));
  }
  if (objective.starts_with("rank:")) return score > 0.5 ? 1 : 0;
  if (objective.starts_with("survival:") || objective == "count:poisson" ||
      objective == "reg:gamma" || objective == "reg:tweedie" || objective == "reg:squaredlogerror")
    return static_cast<float>(std::ceil(std::exp(std::clamp(score, -3.0, 3.0))));
  return static_cast<float>(score);
}

// Labels of a matrix, and the bounds and groups that some objectives want.
void SetLabels(DMatrixHandle matrix, const Rows& rows, const std::string& objective,
               const Parameters& parameters, int targets, Rng& rng) {
  std::vector<float> labels;
  for (const auto& row : rows) {
    const double score = Score(row, rng);
    for (int t = 0; t < targets; ++t)
      labels.push_back(Label(objective, parameters, t % 2 ? score : 1 - score * (t + 1)));
  }
  const std::string interface = absl::StrCat(
      R"({"data": [)", reinterpret_cast<uintptr_t>(labels.data()),
      R"(, true], "typestr": "<f4", "version": 3, "shape": [)", rows.size(), ", ", targets, "]}");
  CheckXgboost(XGDMatrixSetInfoFromInterface(matrix, "label", interface.c_str()));
  if (objective == "survival:aft") {
    std::vector<float> upper = labels;
    for (size_t i = 0; i < upper.size(); i += 3) upper[i] += 2;
    CheckXgboost(XGDMatrixSetFloatInfo(matrix, "label_lower_bound", labels.data(), labels.size()));
    CheckXgboost(XGDMatrixSetFloatInfo(matrix, "label_upper_bound", upper.data(), upper.size()));
  }
  if (objective.starts_with("rank:")) {
    const std::vector<unsigned> groups(rows.size() / 10, 10);
    CheckXgboost(XGDMatrixSetUIntInfo(matrix, "group", groups.data(), groups.size()));
  }
}

struct Setting {
  Parameters parameters;
  bool categorical = false;
  int targets = 1;
  int rounds = 8;
};

Booster Train(const Setting& setting, Rng& rng) {
  const Rows rows = RandomRows(kTrainRows, rng);
  const Matrix matrix = MakeMatrix(rows, setting.categorical);
  const auto named = setting.parameters.find("objective");
  const std::string objective =
      named == setting.parameters.end() ? "reg:squarederror" : named->second;
  SetLabels(matrix.get(), rows, objective, setting.parameters, setting.targets, rng);
  BoosterHandle handle = nullptr;
  DMatrixHandle matrices[] = {matrix.get()};
  CheckXgboost(XGBoosterCreate(matrices, 1, &handle));
  Booster booster(handle);
  Parameters all = {{"nthread", "1"}, {"verbosity", "0"}, {"seed", "5"}, {"eta", "0.4"}};
  for (const auto& [name, value] : setting.parameters) all[name] = value;
  for (const auto& [name, value] : all)
    CheckXgboost(XGBoosterSetParam(handle, name.c_str(), value.c_str()));
  for (int i = 0; i < setting.rounds; ++i)
    CheckXgboost(XGBoosterUpdateOneIter(handle, i, matrix.get()));
  return booster;
}

std::string Save(BoosterHandle booster, const char* format) {
  bst_ulong bytes = 0;
  const char* data = nullptr;
  CheckXgboost(XGBoosterSaveModelToBuffer(
      booster, absl::StrCat(R"({"format": ")", format, "\"}").c_str(), &bytes, &data));
  return std::string(data, bytes);
}

// XGBoost's predictions, the outputs of each row side by side. `end`: so many iterations; 0: all.
std::vector<double> Predict(BoosterHandle booster, DMatrixHandle matrix, bool margin, int end) {
  const std::string config = absl::StrCat(
      R"({"type": )", margin ? 1 : 0,
      R"(, "training": false, "strict_shape": true, "iteration_begin": 0, "iteration_end": )", end,
      "}");
  const bst_ulong* shape = nullptr;
  bst_ulong rank = 0;
  const float* result = nullptr;
  CheckXgboost(
      XGBoosterPredictFromDMatrix(booster, matrix, config.c_str(), &shape, &rank, &result));
  size_t count = 1;
  for (bst_ulong i = 0; i < rank; ++i) count *= shape[i];
  return std::vector<double>(result, result + count);
}

// Random rows, whose values are often thresholds of the model, and categories that are none.
Rows RowsAround(const Forest& forest, Rng& rng) {
  std::vector<std::vector<float>> thresholds(kColumns);
  for (const Tree& tree : forest.trees) {
    for (const Node& n : tree.nodes) {
      const Column& column = forest.columns[n.column];
      if (column.kind == Column::Kind::kValue) thresholds[column.feature].push_back(n.threshold);
    }
  }
  Rows rows = RandomRows(kTestRows, rng);
  for (auto& row : rows) {
    for (int c = 0; c < kColumns; ++c) {
      if (rng() % 3 == 0 && !thresholds[c].empty())
        row[c] = thresholds[c][rng() % thresholds[c].size()];
      const float kOdd[] = {-1, -0.5f, -0.0f, 3.7f, kCategories, 99, 1 << 24, 1e9f};
      if (c >= 4 && rng() % 4 == 0) row[c] = kOdd[rng() % std::size(kOdd)];
    }
  }
  return rows;
}

void ExpectNear(double ours, double theirs) {
  EXPECT_NEAR(ours, theirs, 1e-5 * (1 + std::abs(theirs)));
}

void ExpectSamePredictions(const Setting& setting, BoosterHandle booster, int end = 0) {
  const absl::StatusOr<Forest> forest = ReadForest(Save(booster, "json"));
  ASSERT_TRUE(forest.ok()) << forest.status();
  const absl::StatusOr<Forest> binary = ReadForest(Save(booster, "ubj"));
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_TRUE(*forest == *binary);
  EXPECT_TRUE(CheckForest(*forest).ok());

  Rng rng(9);
  const Rows rows = RowsAround(*forest, rng);
  const Matrix matrix = MakeMatrix(rows, setting.categorical);
  const std::vector<double> margins = Predict(booster, matrix.get(), /*margin=*/true, end);
  const std::vector<double> predictions = Predict(booster, matrix.get(), /*margin=*/false, end);
  const size_t outputs = forest->outputs;
  ASSERT_EQ(margins.size(), rows.size() * outputs);
  for (size_t r = 0; r < rows.size(); ++r) {
    SCOPED_TRACE(absl::StrCat("row ", absl::StrJoin(rows[r], " ")));
    std::vector<double> ours = Margins(*forest, rows[r]);
    for (size_t o = 0; o < outputs; ++o) ExpectNear(ours[o], margins[r * outputs + o]);
    if (predictions.size() == rows.size() && outputs > 1) {  // multi:softmax predicts the class
      const auto most = std::ranges::max_element(ours) - ours.begin();
      EXPECT_EQ(static_cast<double>(forest->classes[most]), predictions[r]);
    } else {
      ApplyTransform(forest->transform, ours);
      for (size_t o = 0; o < outputs; ++o) ExpectNear(ours[o], predictions[r * outputs + o]);
    }
    if (testing::Test::HasFailure()) return;
  }
}

void TrainAndCompare(const Setting& setting, uint64_t seed = 1) {
  std::string trace;
  for (const auto& [name, value] : setting.parameters)
    absl::StrAppend(&trace, name, "=", value, " ");
  SCOPED_TRACE(trace);
  Rng rng(seed);
  const Booster booster = Train(setting, rng);
  ExpectSamePredictions(setting, booster.get());
}

TEST(ReadXgboost, PredictsAsXgboostForEveryObjective) {
  for (const char* objective :
       {"reg:squarederror", "reg:squaredlogerror", "reg:logistic", "reg:pseudohubererror",
        "reg:absoluteerror", "binary:logistic", "binary:logitraw", "binary:hinge", "count:poisson",
        "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft", "rank:pairwise", "rank:ndcg",
        "rank:map"}) {
    TrainAndCompare({.parameters = {{"objective", objective}, {"max_depth", "4"}}});
    // A base score that is a probability and positive.
    TrainAndCompare({.parameters = {{"objective", objective}, {"base_score", "0.3"}}});
  }
}

TEST(ReadXgboost, PredictsAsXgboostForManyClasses) {
  for (const char* objective : {"multi:softmax", "multi:softprob"}) {
    for (const char* classes : {"2", "3", "5"})
      TrainAndCompare({.parameters = {{"objective", objective}, {"num_class", classes}}});
  }
}

TEST(ReadXgboost, PredictsAsXgboostAtEveryDepth) {
  for (int depth = 1; depth <= 8; ++depth) {
    for (const char* method : {"exact", "hist", "approx"}) {
      TrainAndCompare({.parameters = {{"max_depth", std::to_string(depth)},
                                      {"tree_method", method},
                                      {"gamma", "0.05"}}},
                      depth);
    }
  }
  TrainAndCompare({.parameters = {{"max_depth", "0"},
                                  {"max_leaves", "40"},
                                  {"grow_policy", "lossguide"},
                                  {"tree_method", "hist"}}});
  // No split is worth it: every tree is a leaf.
  TrainAndCompare({.parameters = {{"gamma", "1e9"}}});
}

TEST(ReadXgboost, PredictsAsXgboostWithDroppedTrees) {
  for (const char* objective : {"reg:squarederror", "binary:logistic"}) {
    TrainAndCompare({.parameters = {{"booster", "dart"},
                                    {"objective", objective},
                                    {"rate_drop", "0.5"},
                                    {"one_drop", "1"}},
                     .rounds = 12});
  }
  TrainAndCompare({.parameters = {{"booster", "dart"},
                                  {"objective", "multi:softprob"},
                                  {"num_class", "3"},
                                  {"rate_drop", "0.5"}}});
}

TEST(ReadXgboost, PredictsAsXgboostWithParallelTrees) {
  TrainAndCompare(
      {.parameters = {
           {"num_parallel_tree", "3"}, {"subsample", "0.7"}, {"colsample_bynode", "0.7"}}});
  TrainAndCompare({.parameters = {{"num_parallel_tree", "2"},
                                  {"subsample", "0.7"},
                                  {"objective", "multi:softprob"},
                                  {"num_class", "3"}}});
}

TEST(ReadXgboost, PredictsAsXgboostForManyTargets) {
  for (const char* objective : {"reg:squarederror", "binary:logistic"})
    TrainAndCompare(
        {.parameters = {{"objective", objective}, {"tree_method", "hist"}}, .targets = 3});
}

TEST(ReadXgboost, PredictsAsXgboostWithCategories) {
  for (const char* most_one_hot :
       {"1", "100"}) {  // sets of categories, and one category against the rest
    for (const char* method : {"hist", "approx"}) {
      const Setting setting{.parameters = {{"tree_method", method},
                                           {"max_cat_to_onehot", most_one_hot},
                                           {"max_depth", "5"}},
                            .categorical = true};
      TrainAndCompare(setting);
      Rng rng(1);
      const absl::StatusOr<Forest> forest = ReadForest(Save(Train(setting, rng).get(), "ubj"));
      ASSERT_TRUE(forest.ok()) << forest.status();
      EXPECT_TRUE(std::ranges::any_of(
          forest->columns, [](const Column& c) { return c.kind == Column::Kind::kMember; }));
    }
  }
}

TEST(ReadXgboost, StopsAtTheBestIteration) {
  for (const Parameters& parameters :
       {Parameters{}, Parameters{{"num_parallel_tree", "2"}, {"subsample", "0.5"}},
        Parameters{{"objective", "multi:softprob"}, {"num_class", "3"}},
        Parameters{{"booster", "dart"}, {"rate_drop", "0.3"}}}) {
    Rng rng(2);
    const Setting setting{.parameters = parameters};
    const Booster booster = Train(setting, rng);
    for (const char* best : {"0", "4", "7", "100"}) {
      CheckXgboost(XGBoosterSetAttr(booster.get(), "best_iteration", best));
      ExpectSamePredictions(setting, booster.get(), std::min(std::stoi(best) + 1, setting.rounds));
    }
  }
}

TEST(ReadXgboost, KeepsFeatureNames) {
  Rng rng(3);
  const Booster booster = Train({}, rng);
  const char* names[kColumns] = {"age", "income", "a b", "d", "colour", "shape"};
  CheckXgboost(XGBoosterSetStrFeatureInfo(booster.get(), "feature_name", names, kColumns));
  const absl::StatusOr<Forest> forest = ReadForest(Save(booster.get(), "json"));
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(forest->feature_names, std::vector<std::string>(names, names + kColumns));
  EXPECT_EQ(forest->features, kColumns);
}

TEST(ReadXgboost, WarnsOfCategoriesOfFrames) {
  Rng rng(3);
  const std::string plain = Save(Train({}, rng).get(), "json");
  const auto warnings = [&](const std::string& lists) {
    const size_t at = plain.find("\"model\":{") + 9;
    const std::string text = plain.substr(0, at) + "\"cats\":{\"enc\":" + lists +
                             ",\"feature_segments\":[],\"sorted_idx\":[]}," + plain.substr(at);
    const absl::StatusOr<Forest> forest = ReadForest(text);
    EXPECT_TRUE(forest.ok()) << forest.status();
    return forest.ok() ? forest->warnings : std::vector<std::string>();
  };
  EXPECT_TRUE(warnings("[]").empty());
  EXPECT_EQ(warnings("[{\"type\":5,\"values\":[10,20]},{}]"),
            std::vector<std::string>{kCategoriesOfFrame});
}

TEST(ReadXgboost, GivesClassesToClassifiers) {
  Rng rng(4);
  const auto classes = [&](Parameters parameters) {
    const absl::StatusOr<Forest> forest = ReadForest(
        Save(Train({.parameters = std::move(parameters), .rounds = 1}, rng).get(), "json"));
    return forest.ok() ? forest->classes : std::vector<int64_t>{-1};
  };
  EXPECT_EQ(classes({{"objective", "binary:logistic"}}), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(classes({{"objective", "binary:hinge"}}), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(classes({{"objective", "multi:softmax"}, {"num_class", "3"}}),
            (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(classes({{"objective", "reg:logistic"}}), std::vector<int64_t>());
}

Json SavedJson(const Parameters& parameters, int rounds = 3) {
  Rng rng(5);
  return Json::parse(Save(Train({.parameters = parameters, .rounds = rounds}, rng).get(), "json"));
}

// ---- What newer versions write, made from what the installed one writes ----

TEST(ReadXgboost, ReadsListsOfBaseScores) {
  Json model =
      SavedJson({{"objective", "multi:softprob"}, {"num_class", "3"}, {"base_score", "0.5"}});
  const absl::StatusOr<Forest> one = ReadForest(model.dump());
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->base, (std::vector<float>{0.5f, 0.5f, 0.5f}));
  model["version"] = {3, 1, 0};
  Json& base_score = model["learner"]["learner_model_param"]["base_score"];
  base_score = "[1E-1,-2E0,3.5]";
  const absl::StatusOr<Forest> many = ReadForest(model.dump());
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ(many->base, (std::vector<float>{0.1f, -2, 3.5f}));
  base_score = "[5E-1]";
  EXPECT_EQ(ReadForest(model.dump())->base, one->base);
  for (const char* bad : {"[1,2]", "[1,2,3,4]", "[1,2,3", "1,x,3", "", "[]", "nan", "[1,2,inf]"}) {
    base_score = bad;
    EXPECT_EQ(ReadForest(model.dump()).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ReadXgboost, TurnsBaseScoresIntoMargins) {
  const auto base = [](const char* objective, const char* score, int minor) -> float {
    Json model = SavedJson({{"objective", objective}}, 1);
    model["version"] = {3, minor, 0};
    model["learner"]["learner_model_param"]["base_score"] = score;
    const absl::StatusOr<Forest> forest = ReadForest(model.dump());
    return forest.ok() ? forest->base[0] : kNan;
  };
  EXPECT_FLOAT_EQ(base("binary:logistic", "[0.25]", 1), std::log(0.25f / 0.75f));
  EXPECT_FLOAT_EQ(base("count:poisson", "[0.25]", 1), std::log(0.25f));
  EXPECT_FLOAT_EQ(base("binary:logitraw", "[0.25]", 1), 0.25f);
  EXPECT_TRUE(std::isnan(base("binary:logistic", "1.5", 1)));
  EXPECT_TRUE(std::isnan(base("count:poisson", "0", 1)));
  EXPECT_TRUE(std::isnan(base("binary:logistic", "0", 1)));
  // From 3.2 on, probabilities are kept away from 0 and 1.
  EXPECT_NEAR(base("binary:logistic", "0", 2), std::log(1e-6), 1e-3);
  EXPECT_NEAR(base("binary:logistic", "1", 2), -std::log(1e-6), 0.1);
  EXPECT_TRUE(std::isnan(base("binary:logistic", "1.5", 2)));
}

TEST(ReadXgboost, ReadsWeightsOfTreesBesideTheModelAndInIt) {
  Json dart = SavedJson({{"booster", "dart"}, {"rate_drop", "0.5"}, {"one_drop", "1"}}, 6);
  Json newer = dart;
  Json& booster = newer["learner"]["gradient_booster"];
  const Json weights = booster["weight_drop"];
  booster = {{"name", "gbtree"}, {"model", booster["gbtree"]["model"]}};
  booster["model"]["weight_drop"] = weights;
  const absl::StatusOr<Forest> expected = ReadForest(dart.dump());
  const absl::StatusOr<Forest> forest = ReadForest(newer.dump());
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_TRUE(*expected == *forest);
  // Trees without a weight have 1.
  booster["model"].erase("weight_drop");
  EXPECT_FALSE(*ReadForest(newer.dump()) == *expected);
}

TEST(ReadXgboost, EndsIterationsWhereTheFileSays) {
  Json model = SavedJson({}, 5);
  model["learner"]["gradient_booster"]["model"]["iteration_indptr"] = {0, 1, 3, 5};
  model["learner"]["attributes"]["best_iteration"] = "1";
  EXPECT_EQ(ReadForest(model.dump())->trees.size(), 3u);
  model["learner"]["attributes"]["best_iteration"] = "2";
  EXPECT_EQ(ReadForest(model.dump())->trees.size(), 5u);
  model["learner"]["attributes"]["best_iteration"] = "soon";
  EXPECT_FALSE(ReadForest(model.dump()).ok());
}

// A tree of two outputs: a numerical root, a categorical node on its right, three leaves.
Json VectorTree() {
  return Json::parse(R"({
    "tree_param": {"num_nodes": "5", "size_leaf_vector": "2", "num_feature": "2"},
    "left_children": [1, -1, 3, -1, -1], "right_children": [2, -1, 4, -1, -1],
    "parents": [2147483647, 0, 0, 2, 2], "split_indices": [0, 0, 1, 0, 0],
    "split_conditions": [0.5, 0, 0, 0, 0], "default_left": [1, 0, 0, 0, 0],
    "split_type": [0, 0, 1, 0, 0], "categories_nodes": [2], "categories_segments": [0],
    "categories_sizes": [2], "categories": [7, 3],
    "base_weights": [9, 9, 1, 2, 9, 9, 3, 4, 5, 6]})");
}

Json VectorModel(Json tree) {
  Json model = {{"version", {2, 1, 0}}};
  model["learner"] = {
      {"attributes", Json::object()},
      {"feature_names", Json::array()},
      {"learner_model_param",
       {{"base_score", "0E0"}, {"num_class", "0"}, {"num_feature", "2"}, {"num_target", "2"}}},
      {"objective", {{"name", "reg:squarederror"}}}};
  model["learner"]["gradient_booster"] = {
      {"name", "gbtree"}, {"model", {{"trees", {std::move(tree)}}, {"tree_info", {0}}}}};
  return model;
}

TEST(ReadXgboost, ReadsVectorLeavesOfBothFormats) {
  Json newer = VectorTree();  // from 3.2 on
  newer["right_children"] = {2, 2, 4, 0, 1};
  newer["leaf_weights"] = {3, 4, 5, 6, 1, 2};
  newer["base_weights"] = Json::array({1.5, 1.5, 1.5, 1.5, 1.5});
  for (const Json& tree : {VectorTree(), newer}) {
    const Json model = VectorModel(tree);
    const std::vector<uint8_t> bytes = Json::to_ubjson(model, true, true);
    for (const absl::StatusOr<Forest>& forest :
         {ReadXgboost(model.dump()), ReadXgboost(std::string(bytes.begin(), bytes.end()))}) {
      ASSERT_TRUE(forest.ok()) << forest.status();
      const auto leaf = [&](float x, float colour) {
        return Margins(*forest, std::vector<float>{x, colour});
      };
      const std::vector<double> first = {1, 2}, other = {3, 4}, member = {5, 6};
      EXPECT_EQ(leaf(0.4f, 3), first);
      EXPECT_EQ(leaf(kNan, 3), first);
      EXPECT_EQ(leaf(0.5f, 3), member);
      EXPECT_EQ(leaf(1, 7.5f), member);
      EXPECT_EQ(leaf(1, kNan), member);  // the default is right
      EXPECT_EQ(leaf(1, 4), other);
      EXPECT_EQ(leaf(1, -0.5f), other);
    }
  }
}

// ---- Refusals ----

TEST(ReadXgboost, NamesWhatIsWrong) {
  const Json good = VectorModel(VectorTree());
  ASSERT_TRUE(ReadXgboost(good.dump()).ok()) << ReadXgboost(good.dump()).status();
  const std::string tree = "/learner/gradient_booster/model/trees/0";
  const std::string param = "/learner/learner_model_param";
  // A place, what stands there instead (null: nothing), and a part of the message.
  const std::vector<std::tuple<std::string, Json, const char*>> cases = {
      {"/version", nullptr, "version: is missing"},
      {"/version", {4, 0, 0}, "version 4.0 is newer"},
      {"/version", {1.5, 0, 0}, "version: 1.5 is no whole number"},
      {"/learner", 3, "learner: is not an object"},
      {"/learner/objective/name", "reg:own", "objective 'reg:own' is not known here"},
      {"/learner/objective/name", "multi:softmax", "num_class: objective multi:softmax with 0"},
      {"/learner/objective/name", "reg:expectileerror", "train one model for each level"},
      {"/learner/gradient_booster/name", "gblinear", "booster gblinear is a linear model"},
      {"/learner/gradient_booster/name", "gbforest", "booster 'gbforest'"},
      {param + "/num_feature", "0", "learner.learner_model_param.num_feature: is '0'"},
      {param + "/num_feature", "99999999", "num_feature"},
      {param + "/num_feature", "1", "trees[0].split_indices[2]: 1 is no whole number from 0 to 0"},
      {param + "/num_class", "2000000000", "num_class"},
      {param + "/num_class", "x", "num_class: is 'x'"},
      {param + "/num_target", "3", "size_leaf_vector: 2 values a leaf for 3 outputs"},
      {param + "/base_score", nullptr, "base_score: is missing"},
      {"/learner/feature_names", {"a"}, "feature_names: 1 names for 2 features"},
      {"/learner/feature_names", {1, 2}, "feature_names: is not an array of objects or texts"},
      {"/learner/gradient_booster/model/tree_info", {0, 0}, "tree_info: has 2 numbers"},
      {"/learner/gradient_booster/model/tree_info", {2}, "tree_info: 2 is no whole number"},
      {"/learner/gradient_booster/model/trees", Json::array(), "tree_info"},
      {"/learner/gradient_booster/model/weight_drop", {1, 1}, "2 weights for 1 trees"},
      {"/learner/gradient_booster/model/weight_drop", {1e39}, "a leaf is inf"},
      {tree + "/tree_param", nullptr, "trees[0].tree_param: is missing"},
      {tree + "/left_children", nullptr, "trees[0].left_children: is missing"},
      {tree + "/left_children", Json::array(),
       "trees[0].right_children: has 5 numbers instead of 0"},
      {tree + "/left_children", {1, -1, 9, -1, -1}, "trees[0].left_children[2]: 9 is no whole"},
      {tree + "/left_children", {1, -1, 0, -1, -1}, "trees[0].left_children: node 0 is reached"},
      {tree + "/left_children", {1, -1, 1, -1, -1}, "trees[0].left_children: node 1 is reached"},
      {tree + "/right_children", {2, -1, -2, -1, -1}, "trees[0].right_children[2]: -2 is no"},
      {tree + "/split_conditions", {0.5, 0, 0, 0}, "trees[0].split_conditions: has 4 numbers"},
      {tree + "/split_conditions", {-1e300, 0, 0, 0, 0}, "the threshold is -inf"},
      {tree + "/default_left", {2, 0, 0, 0, 0}, "trees[0].default_left[0]: 2 is no"},
      {tree + "/split_type", {0, 0, 0, 0, 0}, "trees[0].split_type[2]: does not agree"},
      {tree + "/split_type", {1, 0, 1, 0, 0}, "trees[0].split_type[0]: does not agree"},
      {tree + "/categories_nodes", {9}, "trees[0].categories_nodes: 9 is no"},
      {tree + "/categories_nodes", {2, 2}, "trees[0].categories_segments: has 1 numbers"},
      {tree + "/categories_sizes", {3}, "trees[0].categories_sizes: 3 is no"},
      {tree + "/categories_segments", {-1}, "trees[0].categories_segments: -1 is no"},
      {tree + "/categories", {7, -3}, "trees[0].categories: -3 is no"},
      {tree + "/categories", {7, 1 << 24}, "trees[0].categories: 16777216 is no"},
      {tree + "/base_weights", {1, 2, 3}, "trees[0].base_weights: has 3 numbers instead of 10"},
      {tree + "/leaf_weights", {1, 2, 3, 4, 5, 6}, "trees[0].right_children: -1 is no"},
  };
  for (const auto& [place, value, says] : cases) {
    Json model = good;
    const Json::json_pointer at(place);
    if (value.is_null())
      model[at.parent_pointer()].erase(at.back());
    else
      model[at] = value;
    const absl::Status status = ReadXgboost(model.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << place << " " << says;
    EXPECT_NE(status.message().find(says), std::string::npos) << status << "\n" << says;
  }
}

TEST(ReadXgboost, RefusesLinearBoosters) {
  Rng rng(6);
  const Booster booster = Train({.parameters = {{"booster", "gblinear"}}}, rng);
  const absl::Status status = ReadForest(Save(booster.get(), "ubj")).status();
  EXPECT_NE(status.message().find("gblinear"), std::string::npos) << status;
}

TEST(ReadXgboost, RefusesQuantilesThatNewVersionsSort) {
  Json model = VectorModel(VectorTree());
  model["learner"]["objective"]["name"] = "reg:quantileerror";
  EXPECT_TRUE(ReadXgboost(model.dump()).ok());
  model["version"] = {3, 4, 0};
  EXPECT_NE(ReadXgboost(model.dump()).status().message().find("one model for each level"),
            std::string::npos);
}

TEST(ReadXgboost, SurvivesDamage) {
  Rng rng(7);
  const Booster booster = Train({.parameters = {{"tree_method", "hist"}, {"max_depth", "3"}},
                                 .categorical = true,
                                 .rounds = 2},
                                rng);
  ExpectSafeReadingOfDamage(Save(booster.get(), "json"));
  ExpectSafeReadingOfDamage(Save(booster.get(), "ubj"));
  ExpectSafeReadingOfDamage(VectorModel(VectorTree()).dump());
}

}  // namespace
}  // namespace heddle::classical
