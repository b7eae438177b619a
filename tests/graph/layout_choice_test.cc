// The chosen layouts against every choice there is, on random small graphs.
#include "compiler/graph/layout_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace heddle::graph {
namespace {

using Rng = std::mt19937_64;

int64_t Draw(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

// Operators in topological order; each makes a value that some later ones or the model read.
LayoutProblem RandomProblem(Rng& rng) {
  LayoutProblem problem;
  const int operators = static_cast<int>(Draw(rng, 1, 10));
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
