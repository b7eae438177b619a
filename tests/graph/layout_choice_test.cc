// The chosen layouts against every choice there is, on random small graphs.
#include "compiler/graph/layout/layout_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

namespace heddle::graph {
namespace {

using Rng = std::mt19937_64;

int64_t Draw(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

// Operators in topological order; each makes a value that some later ones or the model read.
LayoutProblem RandomProblem(Rng& rng, int most_operators = 10) {
  LayoutProblem problem;
  const int operators = static_cast<int>(Draw(rng, 1, most_operators));
  const int64_t most = Draw(rng, 1, 3) == 1 ? 2 : 1000;  // small costs: many ties
  for (int i = 0; i < operators; ++i) {
    LayoutProblem::Operator op{Draw(rng, 0, most), Draw(rng, 0, most)};
    if (Draw(rng, 0, 9) == 0) op.first_ns = LayoutProblem::kNever;
    if (op.first_ns != LayoutProblem::kNever && Draw(rng, 0, 9) == 0) {
      op.last_ns = LayoutProblem::kNever;
    }
    problem.operators.push_back(op);
  }
  for (int maker = LayoutProblem::kModel; maker < operators; ++maker) {
    LayoutProblem::Value value;
    value.maker = maker;
    value.move_ns = Draw(rng, 0, most);
    for (int reader = maker + 1; reader < operators; ++reader) {
      if (Draw(rng, 0, 2) == 0) value.readers.push_back(reader);
    }
    if (value.readers.empty() || Draw(rng, 0, 5) == 0) {
      value.readers.push_back(LayoutProblem::kModel);
    }
    problem.values.push_back(value);
  }
  return problem;
}

std::vector<Layout> FromBits(uint32_t bits, size_t count) {
  std::vector<Layout> layouts;
  for (size_t i = 0; i < count; ++i) {
    layouts.push_back(bits >> i & 1 ? Layout::kChannelsLast : Layout::kChannelsFirst);
  }
  return layouts;
}

int64_t CountLast(const std::vector<Layout>& layouts) {
  return std::count(layouts.begin(), layouts.end(), Layout::kChannelsLast);
}

TEST(LayoutChoice, CostsWhatTheBestOfAllChoicesCosts) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed);
    const LayoutProblem problem = RandomProblem(rng);
    const size_t count = problem.operators.size();
    int64_t best = INT64_MAX, most_last = 0;
    for (uint32_t bits = 0; bits < 1u << count; ++bits) {
      const std::vector<Layout> layouts = FromBits(bits, count);
      const int64_t cost = CostOf(problem, layouts);
      if (cost < best) best = cost, most_last = 0;
      if (cost == best) most_last = std::max(most_last, CountLast(layouts));
    }
    const std::vector<Layout> chosen = ChooseLayouts(problem);
    ASSERT_EQ(CostOf(problem, chosen), best) << "seed " << seed;
    ASSERT_EQ(CountLast(chosen), most_last) << "seed " << seed;
  }
}

// What the operators cost, and the transposes.
struct Parts {
  int64_t operators = 0, moves = 0;
};

Parts PartsOf(LayoutProblem problem, const std::vector<Layout>& layouts) {
  const int64_t all = CostOf(problem, layouts);
  for (LayoutProblem::Value& value : problem.values) value.move_ns = 0;
  const int64_t operators = CostOf(problem, layouts);
  return {operators, all - operators};
}

// The least cost of all choices among some layouts; `parts` of a best one.
int64_t LeastAmong(const LayoutProblem& problem, const std::vector<Layout>& among, Parts* parts) {
  const size_t count = problem.operators.size();
  std::vector<size_t> digits(count, 0);
  int64_t best = INT64_MAX;
  for (bool more = true; more;) {
    std::vector<Layout> layouts;
    for (size_t digit : digits) layouts.push_back(among[digit]);
    const int64_t cost = CostOf(problem, layouts);
    if (cost < best) {
      best = cost;
      if (parts != nullptr) *parts = PartsOf(problem, layouts);
    }
    more = false;
    for (size_t& digit : digits) {
      digit = (digit + 1) % among.size();
      if (digit != 0) {
        more = true;
        break;
      }
    }
  }
  return best;
}

TEST(LayoutChoice, OfThreeLayoutsIsNeverWorseThanTheBestOfTwoAndKeepsItsBound) {
  constexpr Layout kFirst = Layout::kChannelsFirst, kLast = Layout::kChannelsLast,
                   kBlocked = Layout::kChannelsBlocked;
  constexpr int kSeeds = 1500;
  int optimal = 0, blocked = 0;
  double worst = 1;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rng rng(seed);
    LayoutProblem problem = RandomProblem(rng, 6);
    for (LayoutProblem::Operator& op : problem.operators) {
      const int64_t most = std::max<int64_t>(problem.values[0].move_ns, 2);
      if (Draw(rng, 0, 4) != 0) op.blocked_ns = Draw(rng, 0, most);
    }
    for (LayoutProblem::Value& value : problem.values) value.blocks = Draw(rng, 0, 4) != 0;
    const std::vector<Layout> chosen = ChooseLayouts(problem);
    const int64_t cost = CostOf(problem, chosen);
    Parts best;
    const int64_t least = LeastAmong(problem, {kFirst, kLast, kBlocked}, &best);
    ASSERT_GE(cost, least) << "seed " << seed;
    ASSERT_LE(cost, best.operators + 2 * best.moves) << "seed " << seed;
    for (const auto& two : {std::vector{kFirst, kLast}, std::vector{kFirst, kBlocked},
                            std::vector{kLast, kBlocked}}) {
      ASSERT_LE(cost, LeastAmong(problem, two, nullptr)) << "seed " << seed;
    }
    optimal += cost == least;
    blocked += std::count(chosen.begin(), chosen.end(), kBlocked) > 0;
    if (least > 0) worst = std::max(worst, static_cast<double>(cost) / static_cast<double>(least));
  }
  std::printf("best of all choices in %d of %d, at worst %.3f times as dear\n", optimal, kSeeds,
              worst);
  EXPECT_GE(optimal, kSeeds * 95 / 100);
  EXPECT_GE(blocked, kSeeds / 4);
}

TEST(LayoutChoice, WhatBlocksDoNotDivideIsMovedAsChannelsLast) {
  LayoutProblem problem;
  problem.operators = {{90, 0, 90}, {90, 90, 0}};
  problem.values = {{0, {1}, 40, false}};  // channels last either way
  EXPECT_EQ(CostOf(problem, ChooseLayouts(problem)), 0);
  problem.values[0].blocks = true;
  EXPECT_EQ(CostOf(problem, ChooseLayouts(problem)), 40);
  EXPECT_EQ(MovesOf(problem.values[0], {Layout::kChannelsLast, Layout::kChannelsBlocked}),
            std::vector{Layout::kChannelsBlocked});
}

TEST(LayoutChoice, OneTransposeServesAllReaders) {
  LayoutProblem problem;
  problem.operators = {{0, 50}, {60, 0}, {60, 0}};
  problem.values = {{0, {1, 2}, 40}};
  // A transpose for each reader would cost 80, more than to start channels last.
  EXPECT_EQ(CostOf(problem, ChooseLayouts(problem)), 40);
}

// Of a chain, value i is made by operator i - 1 and read by operator i: the least cost, operator by
// operator.
int64_t LeastOfChain(const LayoutProblem& problem) {
  constexpr Layout kLayouts[] = {Layout::kChannelsFirst, Layout::kChannelsLast};
  int64_t least[] = {0, LayoutProblem::kNever};  // of all so far, by the layout of the last
  for (size_t i = 0; i < problem.values.size(); ++i) {
    const int64_t move = problem.values[i].move_ns, before[] = {least[0], least[1]};
    for (int to : {0, 1}) {
      least[to] = std::min(before[to], before[1 - to] + move);
      if (i < problem.operators.size()) least[to] += problem.operators[i].Cost(kLayouts[to]);
    }
  }
  return least[0];  // the model reads the last value
}

TEST(LayoutChoice, LongChainsAreNoTrouble) {
  constexpr int kLength = 5000;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Rng rng(seed);
    LayoutProblem problem;
    for (int i = 0; i < kLength; ++i) {
      problem.operators.push_back({Draw(rng, 0, 20), Draw(rng, 0, 20)});
      problem.values.push_back({i - 1, {i}, Draw(rng, 0, 20)});
    }
    problem.values.push_back({kLength - 1, {LayoutProblem::kModel}, 9});
    const std::vector<Layout> chosen = ChooseLayouts(problem);
    EXPECT_EQ(CostOf(problem, chosen), LeastOfChain(problem)) << "seed " << seed;
    const int64_t last = CountLast(chosen);
    EXPECT_TRUE(last > kLength / 10 && last < kLength - kLength / 10) << last << " seed " << seed;
  }
}

}  // namespace
}  // namespace heddle::graph
