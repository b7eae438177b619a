// The network over loops: its gradient against differences, and what it learns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "cost_model/features/features.h"
#include "cost_model/model/attention_network.h"
#include "cost_model/model/model.h"

namespace heddle::cost_model {
namespace {

TEST(AttentionNetwork, GradientIsThatOfItsScore) {
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal;
  for (const auto& [rest, tokens, each] :
       {std::tuple(5, 3, 4), std::tuple(7, 0, 0), std::tuple(0, 2, 3), std::tuple(3, 1, 1)}) {
    const AttentionNetwork::Shape shape(static_cast<size_t>(rest), static_cast<size_t>(tokens),
                                        static_cast<size_t>(each));
    AttentionNetwork network(shape);
    network.Draw(rng);
    for (float& v : network.parameters()) v += 0.1f * normal(rng);
    std::vector<float> x(shape.inputs());
    for (float& v : x) v = normal(rng);
    AttentionNetwork::Pass pass, moved;
    network.Forward(x.data(), pass);
    std::vector<float> gradient(shape.size);
    network.Backward(x.data(), pass, 2, gradient);
    int wrong = 0;
    for (size_t i = 0; i < shape.size; ++i) {
      constexpr float kStep = 2e-3f;
      float& v = network.parameters()[i];
      const float old = v;
      v = old + kStep;
      network.Forward(x.data(), moved);
      const double above = moved.score;
      v = old - kStep;
      network.Forward(x.data(), moved);
      v = old;
      const double slope = 2 * (above - moved.score) / (2 * kStep);
      wrong += std::abs(slope - gradient[i]) > 2e-3 + 0.02 * std::abs(slope);
    }
    // A step may go across the kink of a relu.
    EXPECT_LE(wrong, static_cast<int>(shape.size / 50)) << rest << " " << tokens << " " << each;
  }
}

// What matters is what the longest of four loops is like; and a feature of no loop.
constexpr size_t kLoops = 4;
ModelSpec Spec() {
  ModelSpec spec{.kind = ModelKind::kAttention};
  for (size_t k = 0; k < kLoops; ++k) spec.tokens.push_back({2 + 2 * k, 3 + 2 * k});
  return spec;
}
std::vector<Sample> MakeSamples(int n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<Sample> samples(static_cast<size_t>(n));
  for (Sample& s : samples) {
    for (size_t i = 0; i < 2 + 2 * kLoops; ++i) {
      s.features.push_back(static_cast<float>(rng() % 16));
    }
    size_t longest = 0;
    for (size_t k = 1; k < kLoops; ++k) {
      if (s.features[2 + 2 * k] > s.features[2 + 2 * longest]) longest = k;
    }
    s.score = (s.features[3 + 2 * longest] + s.features[0]) / 30;
  }
  return samples;
}
std::vector<std::vector<float>> FeaturesOf(const std::vector<Sample>& samples) {
  std::vector<std::vector<float>> features;
  for (const Sample& s : samples) features.push_back(s.features);
  return features;
}
double PairsInOrder(const Model& model, const std::vector<Sample>& samples) {
  const auto found = *model.Predict(FeaturesOf(samples));
  double right = 0, all = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t j = 0; j < samples.size(); ++j) {
      if (samples[i].score <= samples[j].score) continue;
      ++all;
      right += found[i].score > found[j].score;
    }
  }
  return right / all;
}

TEST(AttentionModel, AttendsToTheLoopThatMatters) {
  const auto model = MakeModel(Spec(), 1);
  EXPECT_FALSE(model->trained());
  EXPECT_EQ(*model->Predict(FeaturesOf(MakeSamples(3, 1))), std::vector<Estimate>(3));
  ASSERT_TRUE(model->Fit(MakeSamples(1000, 1)).ok());
  const double pairs = PairsInOrder(*model, MakeSamples(300, 2));
  std::printf("pairs in order: %.3f\n", pairs);
  EXPECT_GE(pairs, 0.85);
  const std::vector<double> importance = model->Importance();
  ASSERT_EQ(importance.size(), 2 + 2 * kLoops);
  EXPECT_GT(importance[0], importance[1]) << "which says nothing";
}

TEST(AttentionModel, RepeatsExactlyAndSerialises) {
  const std::vector<Sample> samples = MakeSamples(100, 3);
  const auto rows = FeaturesOf(MakeSamples(50, 4));
  const auto a = MakeModel(Spec(), 5), b = MakeModel(Spec(), 5);
  ASSERT_TRUE(a->Fit(samples).ok());
  ASSERT_TRUE(b->Fit(samples).ok());
  EXPECT_EQ(*a->Predict(rows), *b->Predict(rows));
  const auto copy = ParseModel(a->Serialize(), Spec(), 5);
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*(*copy)->Predict(rows), *a->Predict(rows));
  EXPECT_EQ((*copy)->Serialize(), a->Serialize());
  std::string bytes = a->Serialize();
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_EQ(ParseModel(bytes, Spec(), 5).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(ParseModel(a->Serialize(), {}, 5).ok()) << "another kind of model";
}

TEST(AttentionModel, RefusesWhatItCannotUse) {
  const auto model = MakeModel(Spec(), 1);
  EXPECT_EQ(model->Fit({}).code(), absl::StatusCode::kInvalidArgument);
  std::vector<Sample> samples = MakeSamples(20, 1);
  samples[3].features.pop_back();
  EXPECT_EQ(model->Fit(samples).code(), absl::StatusCode::kInvalidArgument);
  std::vector<Sample> equal = MakeSamples(20, 1);
  for (Sample& s : equal) s.score = 0.5f;
  ASSERT_TRUE(model->Fit(equal).ok());
  const std::vector<Estimate> found = *model->Predict(FeaturesOf(equal));
  for (const Estimate& e : found) {
    EXPECT_TRUE(std::isfinite(e.score));
  }
  EXPECT_EQ(model->Predict(std::vector<std::vector<float>>{{1.0f}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LoopTokens, AreThoseOfTheTable) {
  const std::vector<size_t> columns = *ColumnsWithout(std::vector<std::string>{"side"});
  const std::vector<std::vector<size_t>> tokens = LoopTokens(columns);
  ASSERT_GE(tokens.size(), 4u);
  for (const std::vector<size_t>& token : tokens) {
    ASSERT_EQ(token.size(), tokens[0].size());
    const std::string name = FeatureTable()[columns[token[0]]].name;
    EXPECT_EQ(name.substr(0, 4), "loop");
    EXPECT_EQ(name.substr(name.find('.')), ".extent");
  }
  EXPECT_TRUE(LoopTokens(*ColumnsWithout(std::vector<std::string>{"loop"})).empty());
}

}  // namespace
}  // namespace heddle::cost_model
