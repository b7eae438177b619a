// Generates substitutions (TASO, section 2.3): builds all graphs of up to `size` operators over a few leaves,
// and compares what they compute by fingerprints.
//
// Two domains are searched, because no operator takes operands of both: matrices with everything element
// by element, and images with their weights.
//
// What is not built twice or at all:
//  - A graph in two orders of its operators.
//  - add and mul in both orders of their operands: that they commute is a candidate, and matching knows it.
//  - An operator all of whose operands are constants.
//  - A graph that goes on from a tensor which equals one that was there before. That the two are equal is a
//    candidate, and it leads from the graph to a smaller one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/substitution/term.h"

namespace heddle::substitution {

enum class Domains { kAll, kMatrices, kImages };

struct GeneratorOptions {
  int size = 3;  // operators of a graph, 1 to 4
  Domains domains = Domains::kAll;
  int threads = 1;  // does not change the result
  uint64_t seed = 1;
  std::function<void(const std::string&)> progress = nullptr;
};

struct Generated {
  int64_t graphs = 0;   // built and fingerprinted
  int64_t buckets = 0;  // distinct fingerprints
  // In the order of their texts. Within a bucket, each graph is paired with the smallest, and each without constants
  // with the smallest of these. The names of parameters stand for the values with which the graphs were built.
  std::vector<Rule> candidates;
};
Generated Generate(const GeneratorOptions& options);

// How many graphs Generate builds, and how many of them it keeps to compare, without keeping any: graphs with
// one operator less are all built, and every `sample`-th of them is continued.
struct GraphCount {
  int64_t graphs = 0, kept = 0;
  // What the kept ones take: each is an entry of a hash table.
  static constexpr int64_t kBytesEach = 120;
  int64_t bytes() const { return kept * kBytesEach; }
};
GraphCount CountGraphs(const GeneratorOptions& options, int64_t sample);

// The names of variables and parameters by first use, operands of add and mul in the order of their texts, and
// the side with fewer operators first. That add and mul commute is part of this form: it is no rule.
Rule Canonical(const Rule& rule);

// The rule with the parameter `from` replaced by `to`.
Rule WithParameter(Rule rule, const std::string& from, const std::string& to);

struct Pruned {
  int64_t renamed = 0;  // left without those that are another one with two variables equal
  int64_t common = 0;   // left without those that are another one in a common context
  // Rules with parameters as general as they hold, in the order of their texts.
  std::vector<Rule> rules;
  // Every rule that was dropped, with the rules that it follows from, each a renaming or a part of it.
  struct Dropped {
    Rule rule;
    std::vector<Rule> follows_from;
  };
  std::vector<Dropped> dropped;
};
Pruned Prune(std::vector<Rule> candidates, const GeneratorOptions& options);

}  // namespace heddle::substitution
