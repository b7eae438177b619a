#include "base/vocabulary/choose_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<size_t> Indices(const std::vector<ChosenTrial>& chosen, bool fastest_only = false) {
  std::vector<size_t> indices;
  for (const ChosenTrial& trial : chosen) {
    if (trial.fastest_so_far || !fastest_only) indices.push_back(trial.index);
  }
  return indices;
}

TEST(ChooseTrials, TakesAllOfAFew) {
  EXPECT_THAT(ChooseTrials({}, 10), IsEmpty());
  const std::vector<double> medians = {0, 9, 9, 8, 10, 7, 0};
  EXPECT_THAT(Indices(ChooseTrials(medians, 7)), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Indices(ChooseTrials(medians, 7), true), ElementsAre(1, 3, 5))
      << "a failed trial is never the fastest, nor is an equal one";
}

TEST(ChooseTrials, KeepsTheFastestOfMany) {
  const std::vector<double> medians = {5, 6, 6, 4, 6, 6, 6, 3, 6, 6};
  EXPECT_THAT(Indices(ChooseTrials(medians, 0)), ElementsAre(0, 3, 7));
  EXPECT_THAT(Indices(ChooseTrials(medians, 2)), ElementsAre(0, 3, 5, 7));
}

TEST(ChooseTrials, TakesSomeWhereEachIsFaster) {
  for (const size_t count : {kMostFastest, kMostFastest + 1, size_t{2500}, size_t{100'000}}) {
    std::vector<double> medians;
    for (size_t i = 0; i < count; ++i) medians.push_back(static_cast<double>(count - i));
    const std::vector<size_t> indices = Indices(ChooseTrials(medians, 0), true);
    ASSERT_EQ(indices.size(), kMostFastest) << count;
    EXPECT_EQ(indices.front(), 0u);
    EXPECT_EQ(indices.back(), count - 1);
    const double step = static_cast<double>(count - 1) / static_cast<double>(kMostFastest - 1);
    for (size_t i = 0; i < indices.size(); ++i)
      EXPECT_NEAR(static_cast<double>(indices[i]), static_cast<double>(i) * step, 1.0);
    EXPECT_LE(ChooseTrials(medians, 1500).size(), kMostFastest + 1500);
  }
}

TEST(ChooseTrials, SpreadsTheOthersEvenly) {
  std::vector<double> medians(100'000, 10);
  for (const int64_t most : {int64_t{1}, int64_t{999}, int64_t{1500}}) {
    const std::vector<ChosenTrial> chosen = ChooseTrials(medians, most);
    ASSERT_EQ(static_cast<int64_t>(chosen.size()), most);
    const double step = 100'000.0 / static_cast<double>(most);
    for (size_t i = 0; i < chosen.size(); ++i)
      EXPECT_NEAR(static_cast<double>(chosen[i].index), static_cast<double>(i) * step, 1.0);
  }
}

}  // namespace
}  // namespace heddle
