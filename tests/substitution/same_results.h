// What the tests of rules share: a graph and what a rule made of it compute the same.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/evaluate.h"
#include "compiler/runtime/numerics.h"
#include "compiler/substitution/match.h"
#include "compiler/substitution/rule_file.h"
#include "tests/graph/random_graph.h"

namespace heddle::substitution {

inline constexpr double kTolerance =
    runtime::kDirectTolerance.relative;  // as SubstitutedAndChecked

inline DirectedRule Directed(const std::string& text) { return {"test", *ParseRule(text)}; }

// Of random inputs.
inline void ExpectSame(const graph::Graph& before, const graph::Graph& after, uint64_t seed = 3) {
  ASSERT_TRUE(graph::CheckGraph(after).ok()) << graph::CheckGraph(after) << "\n"
                                             << graph::Print(after);
  graph::TestRng rng(seed);
  const auto inputs = graph::RandomInputs(rng, before);
  const auto a = graph::EvaluateGraph(before, inputs);
  const auto b = graph::EvaluateGraph(after, inputs);
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_LE(graph::Difference(*a, *b), kTolerance) << graph::Print(before) << "\n"
                                                   << graph::Print(after);
}

}  // namespace heddle::substitution
