// The generator finds the same rules whatever the number of threads, and pruning loses none.
#include "compiler/substitution/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/substitution/algebra.h"
#include "compiler/substitution/derive.h"

namespace heddle::substitution {
namespace {

std::set<std::string> Texts(const std::vector<Rule>& rules) {
  std::set<std::string> texts;
  for (const Rule& rule : rules) texts.insert(ToText(rule));
  return texts;
}

TEST(Generator, ThreadsAndSeedsDoNotMatter) {
  const Generated one = Generate({.size = 2, .threads = 1});
  EXPECT_GT(one.candidates.size(), 300u);
  for (const GeneratorOptions& options : {GeneratorOptions{.size = 2, .threads = 2},
                                          GeneratorOptions{.size = 2, .threads = 3, .seed = 77}}) {
    const Generated other = Generate(options);
    EXPECT_EQ(other.graphs, one.graphs);
    EXPECT_EQ(other.buckets, one.buckets);
    EXPECT_EQ(Texts(other.candidates), Texts(one.candidates));
  }
}

// Counting all gives what is built; counting a part comes near.
TEST(Generator, CountsWithoutKeeping) {
  const int64_t graphs = Generate({.size = 2}).graphs;
  EXPECT_EQ(CountGraphs({.size = 2}, 1).graphs, graphs);
  const double estimate = static_cast<double>(CountGraphs({.size = 2}, 5).graphs);
  EXPECT_NEAR(estimate / static_cast<double>(graphs), 1, 0.15);
  const int64_t matrices = Generate({.size = 2, .domains = Domains::kMatrices}).graphs;
  const int64_t images = Generate({.size = 2, .domains = Domains::kImages}).graphs;
  EXPECT_EQ(matrices + images, graphs);
}

// Equal fingerprints are no chance: candidates hold for other tensors of other shapes, too.
TEST(Generator, CandidatesHold) {
  const Generated generated = Generate({.size = 2});
  const Pruned pruned = Prune(generated.candidates, {.size = 2, .threads = 2});
  EXPECT_LT(pruned.renamed, static_cast<int64_t>(generated.candidates.size()));
  EXPECT_LT(pruned.common, pruned.renamed);
  EXPECT_EQ(pruned.common, static_cast<int64_t>(pruned.rules.size()));
  for (const Rule& rule : pruned.rules) {
    EXPECT_TRUE(CheckEqual(rule.source, rule.target, {.cases = 200, .seed = 99}).Holds())
        << ToText(rule);
  }
}

// Nothing is lost on the way: kept rules lead from one side of each candidate to the other, step by step, unless it does
// not hold. A candidate's window may be the plain one only, as it was built.
TEST(Generator, KeptRulesLeadToEveryCandidate) {
  const Generated generated = Generate({.size = 2});
  const Pruned pruned = Prune(generated.candidates, {.size = 2});
  std::vector<Rule> directed = pruned.rules;
  for (const Rule& rule : pruned.rules) directed.push_back(Reversed(rule));
  int reached = 0, wrong = 0;
  for (const Rule& candidate : generated.candidates) {
    bool holds = false;
    for (const Rule& rule : {candidate, WithParameter(candidate, "s", "1")}) {
      holds = holds || CheckEqual(rule.source, rule.target, {.cases = 64}).Holds();
      if (!holds) continue;
      EXPECT_TRUE(Derivable(rule, directed)) << ToText(rule);
      break;
    }
    (holds ? reached : wrong) += 1;
  }
  EXPECT_GT(reached, 300);
  EXPECT_LT(wrong, reached / 10);
}

// What a dropped rule follows from is kept, or dropped for something that is.
TEST(Generator, EveryDroppedRuleFollowsFromKeptOnes) {
  const Generated generated = Generate({.size = 2});
  const Pruned pruned = Prune(generated.candidates, {.size = 2});
  const std::set<std::string> kept = Texts(pruned.rules);
  std::map<std::string, const Pruned::Dropped*> dropped;
  for (const auto& d : pruned.dropped) dropped.emplace(ToText(d.rule), &d);
  EXPECT_GT(dropped.size(), 20u);
  for (const auto& [text, first] : dropped) {
    std::vector<std::string> open{text};
    std::set<std::string> seen;
    while (!open.empty()) {
      const std::string now = open.back();
      open.pop_back();
      if (kept.contains(now) || !seen.insert(now).second) continue;
      const auto found = dropped.find(now);
      ASSERT_NE(found, dropped.end()) << text << " needs " << now;
      for (const Rule& rule : found->second->follows_from) open.push_back(ToText(rule));
    }
  }
}

// The rules that a dropped one is said to follow from do lead from its one side to the other, and each is needed.
TEST(Generator, ADroppedRuleFollowsFromTheRulesThatItNames) {
  const Generated generated = Generate({.size = 2});
  const Pruned pruned = Prune(generated.candidates, {.size = 2});
  int needed = 0;
  for (const Pruned::Dropped& dropped : pruned.dropped) {
    std::vector<Rule> named = dropped.follows_from;
    for (const Rule& rule : dropped.follows_from) named.push_back(Reversed(rule));
    EXPECT_TRUE(Derivable(dropped.rule, named)) << ToText(dropped.rule);
    if (dropped.follows_from.size() != 1) continue;
    EXPECT_FALSE(Derivable(dropped.rule, {})) << ToText(dropped.rule);
    ++needed;
  }
  EXPECT_GT(needed, 20);
}

// A rule that was left out because others lead to it: they do, step by step, within the bound.
TEST(Generator, WhatIsNotIndependentIsDerivable) {
  const Generated generated = Generate({.size = 2});
  const std::vector<Rule> rules = Prune(generated.candidates, {.size = 2}).rules;
  const std::vector<Rule> kept = Independent(rules, {}, nullptr);
  EXPECT_LT(kept.size(), rules.size());
  const std::set<std::string> texts = Texts(kept);
  std::vector<Rule> directed = kept;
  for (const Rule& rule : kept) directed.push_back(Reversed(rule));
  DeriveOptions far;
  far.steps = 6;
  for (const Rule& rule : rules) {
    if (texts.contains(ToText(rule))) continue;
    EXPECT_TRUE(Derivable(rule, directed, far)) << ToText(rule);
  }
}

TEST(Derive, RewritesEverywhereAndKnowsThatSumsCommute) {
  const Rule rule = *ParseRule("matmul(x, add(y, z)) => add(matmul(x, y), matmul(x, z))");
  const std::vector<Term> terms =
      ParseRule("map[f](matmul(a, add(b, c))), matmul(a, add(b, c)) => x, x")->source;
  EXPECT_EQ(Rewrites(terms, rule),
            std::set<std::string>{
                "map[f](add(matmul(a, b), matmul(a, c))), add(matmul(a, b), matmul(a, c))"});
  EXPECT_TRUE(Rewrites(ParseRule("matmul(a, b) => x")->source, rule).empty());
  EXPECT_EQ(
      Rewrites(ParseRule("add(matmul(a, c), matmul(a, b)) => x")->source, Reversed(rule)).size(),
      1u);
}

}  // namespace
}  // namespace heddle::substitution
