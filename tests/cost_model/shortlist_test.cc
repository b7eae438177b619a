// What a search keeps: the best candidates of a walk, and what was measured.
#include "cost_model/search/shortlist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "cost_model/features/features.h"
#include "cost_model/model/samples.h"

namespace heddle::cost_model {
namespace {

TEST(Shortlist, HoldsTheBestOncePerTrace) {
  Shortlist list(3);
  EXPECT_TRUE(list.Offer({0}, 10, 1.0f));
  EXPECT_FALSE(list.Offer({1}, 10, 5.0f)) << "another point of the same trace";
  EXPECT_TRUE(list.Offer({2}, 12, 3.0f));
  EXPECT_TRUE(list.Offer({3}, 13, 2.0f));
  EXPECT_FALSE(list.Offer({4}, 14, 0.5f)) << "worse than all of a full list";
  EXPECT_TRUE(list.Offer({5}, 15, 2.5f));
  std::vector<uint64_t> hashes;
  for (const Shortlist::Entry& e : list.entries()) hashes.push_back(e.hash);
  EXPECT_EQ(hashes, (std::vector<uint64_t>{12, 15, 13}));
  EXPECT_TRUE(list.Offer({0}, 10, 4.0f)) << "what fell off may come back";
  EXPECT_FALSE(Shortlist(0).Offer({0}, 1, 1.0f));
}

// The greedy choice against the best of all batches: for a monotone submodular sum of scores that
// are not negative and covered choices it is within 1 - 1/e.
TEST(Shortlist, DiverseOrderIsWithinTheBoundOfTheBestBatch) {
  std::mt19937_64 rng(7);
  constexpr size_t kEntries = 9, kBatch = 4;
  double worst = 1;
  for (int round = 0; round < 50; ++round) {
    Shortlist list(kEntries);
    while (list.entries().size() < kEntries) {
      list.Offer({static_cast<int32_t>(rng() % 3), static_cast<int32_t>(rng() % 3),
                  static_cast<int32_t>(rng() % 3)},
                 rng(), static_cast<float>(rng() % 100) / 50);
    }
    std::vector<float> scores;
    for (const auto& e : list.entries()) scores.push_back(e.score);
    const double unit = Spread(scores);
    const auto value = [&](const std::vector<size_t>& batch) {
      double sum = 0;
      std::set<std::pair<size_t, int32_t>> covered;
      for (size_t i : batch) {
        const auto& e = list.entries()[i];
        sum += e.score / unit;
        for (size_t d = 0; d < e.point.size(); ++d) covered.insert({d, e.point[d]});
      }
      return sum + 2 * static_cast<double>(covered.size()) / 3;
    };
    double best = 0;
    for (unsigned mask = 0; mask < 1u << kEntries; ++mask) {
      if (__builtin_popcount(mask) != kBatch) continue;
      std::vector<size_t> batch;
      for (size_t i = 0; i < kEntries; ++i) {
        if (mask >> i & 1) batch.push_back(i);
      }
      best = std::max(best, value(batch));
    }
    std::vector<size_t> greedy = list.DiverseOrder(2);
    greedy.resize(kBatch);
    EXPECT_EQ(std::set<size_t>(greedy.begin(), greedy.end()).size(), kBatch);
    worst = std::min(worst, value(greedy) / best);
  }
  EXPECT_GE(worst, 1 - 1 / std::exp(1));
}

TEST(Shortlist, PrefersChoicesThatNoEarlierEntryMade) {
  Shortlist list(4);
  list.Offer({1, 1}, 1, 1.00f);
  list.Offer({1, 1}, 2, 0.99f);
  list.Offer({2, 2}, 3, 0.98f);
  list.Offer({3, 1}, 4, -5.0f);
  EXPECT_EQ(list.DiverseOrder(2), (std::vector<size_t>{0, 2, 1, 3}));
}

std::vector<size_t> AllColumns() { return *ColumnsWithout({}); }

Measured MakeMeasured(uint64_t hash, double seconds, uint64_t seed) {
  Measured m;
  m.hash = hash;
  m.seconds = seconds;
  m.point = {1, 2, 3, 4, 5, 6};
  std::mt19937_64 rng(seed);
  for (size_t k = 0; k < FeatureTable().size(); ++k) {
    m.features.push_back(k % 3 == 0 ? static_cast<float>(rng() % 8192) / 256 : 7.5f);
  }
  return m;
}

TEST(SampleSet, KeepsTheBestAndTheLatestInAModestState) {
  SampleSet samples;
  constexpr int kAll = 2500;
  for (int i = 0; i < kAll; ++i) {
    // The first 600 are the best ones.
    samples.Add(MakeMeasured(static_cast<uint64_t>(i), i < 600 ? 1e-3 + i * 1e-6 : 1.0 + i % 7,
                             static_cast<uint64_t>(i)));
  }
  std::set<uint64_t> kept;
  for (const Measured& m : samples.all()) kept.insert(m.hash);
  EXPECT_EQ(kept.size(), SampleSet::kMaxBest + SampleSet::kMaxRecent);
  for (uint64_t i = 0; i < 600; ++i) EXPECT_TRUE(kept.contains(i)) << i;
  for (uint64_t i = kAll - 900; i < kAll; ++i) EXPECT_TRUE(kept.contains(i)) << i;

  BlobWriter w;
  samples.Save(w);
  const std::string bytes = std::move(w).Take();
  EXPECT_LT(bytes.size(), size_t{1} << 20);
  SampleSet copy;
  BlobReader r(bytes);
  ASSERT_TRUE(copy.Load(r).ok());
  EXPECT_TRUE(r.AtEnd());
  ASSERT_EQ(copy.all().size(), samples.all().size());
  for (size_t i = 0; i < copy.all().size(); ++i) {
    EXPECT_EQ(copy.all()[i].features, samples.all()[i].features);
    EXPECT_EQ(copy.all()[i].seconds, samples.all()[i].seconds);
    EXPECT_EQ(copy.all()[i].point, samples.all()[i].point);
  }
}

TEST(SampleSet, ScoresAreRelativeToTheBestAndARepeatKeepsTheBetter) {
  SampleSet samples;
  samples.Add(MakeMeasured(1, 4e-3, 1));
  samples.Add(MakeMeasured(2, 0, 2));
  EXPECT_TRUE(samples.Rankable());
  samples.Add(MakeMeasured(3, 1e-3, 3));
  samples.Add(MakeMeasured(1, 2e-3, 1));
  samples.Add(MakeMeasured(3, 0, 3));
  const std::vector<Sample> training = samples.Training(32, AllColumns());
  ASSERT_EQ(training.size(), 3u);
  EXPECT_FLOAT_EQ(training[0].score, 0.5f);
  EXPECT_FLOAT_EQ(training[1].score, 0.0f);
  EXPECT_FLOAT_EQ(training[2].score, 1.0f);
  samples.Add(MakeMeasured(4, 1.01e-3, 4));
  EXPECT_FLOAT_EQ(samples.Training(32, AllColumns())[3].score, 1.0f) << "a difference of noise";
  EXPECT_EQ(samples.BestPoints(5).size(), 3u);  // failures are no place to start
}

}  // namespace
}  // namespace heddle::cost_model
