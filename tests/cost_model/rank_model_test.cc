#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cost_model/model/model.h"

namespace heddle::cost_model {
namespace {

// A cost with interactions, a kink and forty features that say nothing.
float SyntheticScore(const std::vector<float>& x) {
  const double cost = 0.2 * x[0] + std::abs(x[1] - 7) + (x[2] > 10 ? 0.5 * x[3] : 0) + 0.1 * x[4];
  return static_cast<float>(1 / (1 + cost));
}

std::vector<Sample> MakeSamples(int n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<Sample> samples(static_cast<size_t>(n));
  for (Sample& s : samples) {
    for (int i = 0; i < 45; ++i) s.features.push_back(static_cast<float>(rng() % 20));
    s.score = SyntheticScore(s.features);
  }
  return samples;
}

std::vector<std::vector<float>> FeaturesOf(const std::vector<Sample>& samples) {
  std::vector<std::vector<float>> features;
  for (const Sample& s : samples) features.push_back(s.features);
  return features;
}

// Share of pairs of different score that the model orders correctly.
double PairAccuracy(const Model& model, const std::vector<Sample>& samples) {
  const auto predicted = model.Predict(FeaturesOf(samples));
  EXPECT_TRUE(predicted.ok()) << predicted.status();
  int right = 0, all = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (samples[i].score == samples[j].score) continue;
      ++all;
      right +=
          (samples[i].score > samples[j].score) == ((*predicted)[i].score > (*predicted)[j].score);
    }
  }
  return static_cast<double>(right) / all;
}

TEST(RankModel, LearnsToRankHeldOutSamples) {
  const auto model = MakeModel({}, 1);
  EXPECT_FALSE(model->trained());
  ASSERT_TRUE(model->Fit(MakeSamples(1000, 1)).ok());
  EXPECT_TRUE(model->trained());
  EXPECT_GE(PairAccuracy(*model, MakeSamples(300, 2)), 0.9);
}

TEST(RankModel, ComparesOnlyWithinGroups) {
  // The scores of group 1 are those of group 0 shifted down: a model that compared across groups
  // would learn feature 44, which tells the groups apart, and nothing else would need it.
  std::vector<Sample> samples = MakeSamples(1000, 3);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].group = i % 2;
    samples[i].features[44] = static_cast<float>(i % 2);
    if (i % 2 == 1) samples[i].score -= 10;
  }
  const auto model = MakeModel({}, 1);
  ASSERT_TRUE(model->Fit(samples).ok());
  const std::vector<float> base = samples[0].features;
  std::vector<float> other = base;
  other[44] = 1;
  const auto predicted = model->Predict(std::vector{base, other});
  ASSERT_TRUE(predicted.ok());
  EXPECT_NEAR((*predicted)[0].score, (*predicted)[1].score,
              1.0);  // ten apart if groups were compared
  std::vector<Sample> held_out = MakeSamples(300, 4);
  for (Sample& s : held_out) s.features[44] = 0;
  EXPECT_GE(PairAccuracy(*model, held_out), 0.85);
}

TEST(RankModel, FailuresRankLast) {
  std::vector<Sample> samples = MakeSamples(400, 5);
  for (Sample& s : samples) {
    if (s.features[5] > 15) s.score = 0;
  }
  const auto model = MakeModel({}, 1);
  ASSERT_TRUE(model->Fit(samples).ok());
  std::vector<float> good = samples[0].features, bad = samples[0].features;
  good[5] = 3;
  bad[5] = 18;
  const auto predicted = model->Predict(std::vector{good, bad});
  EXPECT_GT((*predicted)[0].score, (*predicted)[1].score);
}

TEST(RankModel, RepeatsExactlyAndSerialises) {
  const std::vector<Sample> samples = MakeSamples(200, 6);
  const auto rows = FeaturesOf(MakeSamples(50, 7));
  const auto a = MakeModel({}, 9), b = MakeModel({}, 9);
  ASSERT_TRUE(a->Fit(samples).ok());
  ASSERT_TRUE(b->Fit(samples).ok());
  EXPECT_EQ(*a->Predict(rows), *b->Predict(rows));
  EXPECT_EQ(a->Serialize(), b->Serialize());
  const auto c = ParseModel(a->Serialize(), {}, 9);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_TRUE((*c)->trained());
  EXPECT_EQ(*(*c)->Predict(rows), *a->Predict(rows));
  EXPECT_EQ((*c)->Serialize(), a->Serialize());
  // Fitting again replaces what was learned, also in a model that was loaded.
  ASSERT_TRUE((*c)->Fit(samples).ok());
  EXPECT_EQ(*(*c)->Predict(rows), *a->Predict(rows));
}

TEST(RankModel, UntrainedIsAllZeroAndSerialises) {
  const auto model = MakeModel({}, 1);
  EXPECT_EQ(*model->Predict(FeaturesOf(MakeSamples(3, 1))), std::vector<Estimate>(3));
  const auto copy = ParseModel(model->Serialize(), {}, 1);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_FALSE((*copy)->trained());
}

TEST(RankModel, RefusesWhatItCannotUse) {
  const auto model = MakeModel({}, 1);
  std::vector<Sample> samples = MakeSamples(20, 1);
  samples[3].features.pop_back();
  EXPECT_EQ(model->Fit(samples).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(model->Fit({}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(model->trained());
  ASSERT_TRUE(model->Fit(MakeSamples(20, 1)).ok());
  EXPECT_EQ(model->Predict(std::vector<std::vector<float>>{std::vector<float>(3)}).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string bytes = model->Serialize();
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_EQ(ParseModel(bytes, {}, 1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseModel("", {}, 1).status().code(), absl::StatusCode::kDataLoss);
}

TEST(RankModel, DegenerateTrainingSetsAreHarmless) {
  std::vector<Sample> one = MakeSamples(1, 1), equal = MakeSamples(10, 1);
  for (Sample& s : equal) s.score = 0.5f;
  for (const auto& samples : {one, equal}) {
    const auto model = MakeModel({}, 1);
    ASSERT_TRUE(model->Fit(samples).ok());
    const auto predicted = model->Predict(FeaturesOf(samples));
    ASSERT_TRUE(predicted.ok());
    for (const Estimate& e : *predicted) EXPECT_TRUE(std::isfinite(e.score));
  }
}

TEST(RegressionModel, PredictsScores) {
  const auto model = MakeModel({.objective = Objective::kRegression}, 1);
  ASSERT_TRUE(model->Fit(MakeSamples(1000, 1)).ok());
  const std::vector<Sample> others = MakeSamples(300, 2);
  EXPECT_GE(PairAccuracy(*model, others), 0.85);
  const auto predicted = *model->Predict(FeaturesOf(others));
  double error = 0;
  for (size_t i = 0; i < others.size(); ++i)
    error += std::abs(predicted[i].score - others[i].score);
  EXPECT_LE(error / 300, 0.05);
}

// Members agree where there are samples and differ where there are none.
TEST(Ensemble, IsLessSureFarFromItsSamples) {
  const ModelSpec spec = {.objective = Objective::kRegression, .members = 5};
  const auto model = MakeModel(spec, 1);
  const std::vector<Sample> samples = MakeSamples(300, 1);
  ASSERT_TRUE(model->Fit(samples).ok());
  const auto near = *model->Predict(FeaturesOf(samples));
  const auto far = *model->Predict(FeaturesOf(MakeSamples(300, 2)));
  double near_sum = 0, far_sum = 0;
  for (size_t i = 0; i < 300; ++i) {
    near_sum += near[i].deviation;
    far_sum += far[i].deviation;
  }
  EXPECT_GT(near_sum, 0);
  EXPECT_GT(far_sum, 1.1 * near_sum);
  const auto copy = ParseModel(model->Serialize(), spec, 9);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*(*copy)->Predict(FeaturesOf(samples)), near);
  EXPECT_FALSE(ParseModel(model->Serialize(), {}, 9).ok()) << "another kind of model";
}

// What the priors explain is not learned again.
class Priors : public ::testing::TestWithParam<ModelKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Priors,
                         ::testing::Values(ModelKind::kTrees, ModelKind::kAttention));

TEST_P(Priors, AreWhereAModelBegins) {
  std::vector<Sample> samples = MakeSamples(600, 1), others = MakeSamples(300, 2);
  const auto known = [](const Sample& s) { return s.features[0] / 2; };  // all but feature 1
  for (auto* of : {&samples, &others}) {
    for (Sample& s : *of) s.score = (s.features[0] + s.features[1] / 4) / 30;
  }
  const auto plain = MakeModel({.kind = GetParam()}, 1), model = MakeModel({.kind = GetParam()}, 1);
  ASSERT_TRUE(plain->Fit(samples).ok());
  for (Sample& s : samples) s.prior = known(s);
  ASSERT_TRUE(model->Fit(samples).ok());
  std::vector<float> low = others[0].features, high = low;
  low[0] = 2;
  high[0] = 17;
  const auto a = *plain->Predict(std::vector{low, high});
  const auto b = *model->Predict(std::vector{low, high});
  EXPECT_LT(std::abs(b[1].score - b[0].score), 0.5 * (a[1].score - a[0].score));
  // Together they know more than the priors.
  const auto found = *model->Predict(FeaturesOf(others));
  int right = 0, right_without = 0;
  for (size_t i = 0; i < others.size(); ++i) {
    for (size_t j = 0; j < others.size(); ++j) {
      if (others[i].score <= others[j].score) continue;
      const float prior = known(others[i]) - known(others[j]);
      right += prior + found[i].score - found[j].score > 0;
      right_without += prior > 0;
    }
  }
  EXPECT_GT(right, right_without);
}

TEST(RankModel, ImportanceNamesTheFeaturesThatMatter) {
  const auto model = MakeModel({}, 1);
  EXPECT_TRUE(model->Importance().empty());
  ASSERT_TRUE(model->Fit(MakeSamples(1000, 1)).ok());
  const std::vector<double> importance = model->Importance();
  ASSERT_EQ(importance.size(), 45u);
  double all = 0, useful = 0;
  for (size_t k = 0; k < 45; ++k) {
    all += importance[k];
    if (k < 5) useful += importance[k];
  }
  EXPECT_NEAR(all, 1, 1e-6);
  EXPECT_GT(useful, 0.8);
}

}  // namespace
}  // namespace heddle::cost_model
