// The rules that are shipped: proved from today's axioms, true on small cases, and among them or derivable from
// them what the literature knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler/substitution/algebra.h"
#include "compiler/substitution/axioms.h"
#include "compiler/substitution/derive.h"
#include "compiler/substitution/generator.h"
#include "compiler/substitution/rule_file.h"

namespace heddle::substitution {
namespace {

TEST(Rules, AreProvedFromTheseAxioms) {
  EXPECT_EQ(ShippedRules().axioms, AxiomsDigest()) << "make them again: heddle-rules generate";
  EXPECT_GT(ShippedRules().rules.size(), 100u);
  const absl::StatusOr<RuleFile> again = ParseRuleFile(ToText(ShippedRules()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->rules, ShippedRules().rules);
}

TEST(Rules, NamesAreDistinct) {
  std::set<std::string> names;
  for (const Rule& rule : ShippedRules().rules)
    EXPECT_TRUE(names.insert(NameOf(rule)).second) << ToText(rule);
}

TEST(Rules, HoldOnSmallCases) {
  for (const Rule& rule : ShippedRules().rules) {
    const Checked checked = CheckEqual(rule.source, rule.target, {.cases = 400, .seed = 5});
    EXPECT_TRUE(checked.Holds()) << ToText(rule) << ": " << checked.counterexample;
  }
}

// Substitutions of the paper with up to three operators on each side.
TEST(Rules, KnowWhatTheLiteratureKnows) {
  std::vector<Rule> directed;
  for (const Rule& rule : ShippedRules().rules) {
    directed.push_back(rule);
    directed.push_back(Reversed(rule));
  }
  std::set<std::string> texts;
  for (const Rule& rule : ShippedRules().rules) texts.insert(ToText(rule));
  for (const char* text : {
           "matmul(matmul(x, y), z) => matmul(x, matmul(y, z))",
           "matmul(x, y), matmul(x, z) => split0[1](matmul(x, concat[1](y, z))), "
           "split1[1](matmul(x, concat[1](y, z)))",
           "transpose(matmul(x, y)) => matmul(transpose(y), transpose(x))",
           "conv[s](x, y), conv[s](x, z) => split0[1](conv[s](x, concat[0](y, z))), "
           "split1[1](conv[s](x, concat[0](y, z)))",
           "add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(y, z))",
           "conv[s](x, y) => conv[s](x, enlarge[k](y))",
           "avg_pool[k,s](x) => depthwise[s](x, pool_weights[k])",
           "add(avg_pool[k,s](x), avg_pool[k,s](y)) => avg_pool[k,s](add(x, y))",
           "matmul(x, identity) => x",
           "conv[1](x, identity_weights[k]) => x",
           "mul(x, ones) => x",
           "add(matmul(x, y), matmul(x, z)) => matmul(x, add(y, z))",
           "add(mul(x, z), mul(y, z)) => mul(add(x, y), z)",
           "add(matmul(x, y), matmul(z, w)) => matmul(concat[1](x, z), concat[0](y, w))",
           "add(conv[s](x, y), conv[s](z, w)) => conv[s](concat[1](x, z), concat[1](y, w))",
           "concat[0](matmul(x, z), matmul(y, z)) => matmul(concat[0](x, y), z)",
           "concat[a](map[f](x), map[f](y)) => map[f](concat[a](x, y))",
           "add(conv[1](x, y), x) => conv[1](x, add(y, identity_weights[k]))",
           "add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(enlarge[k](y), z))",
           "matmul(identity, x) => x",
           "add(avg_pool[k,s](x), avg_pool[k,s](x)) => depthwise[s](x, add(pool_weights[k], "
           "pool_weights[k]))",
           "grouped[s](x, y) => grouped[s](x, merge_groups[m](y))",
           "map[f](move[r](x)) => move[r](map[f](x))",
       }) {
    const Rule rule = Canonical(*ParseRule(text));
    EXPECT_TRUE(texts.contains(ToText(rule)) || Derivable(rule, directed)) << text;
  }
}

// What is applied without constants must not need any: a rule with constants asks more of a graph.
TEST(Rules, ThoseWithoutConstantsAreReachedWithoutConstants) {
  std::vector<Rule> plain;
  std::set<std::string> texts;
  for (const Rule& rule : ShippedRules().rules) {
    const std::string text = ToText(rule);
    const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    texts.insert(text);
    if (has("ones") || has("identity") || has("weights") || has("enlarge") || has("merge_groups"))
      continue;
    plain.push_back(rule);
    plain.push_back(Reversed(rule));
  }
  for (const char* text : {
           "add(avg_pool[k,s](x), avg_pool[k,s](y)) => avg_pool[k,s](add(x, y))",
           "avg_pool[k,s](concat[1](x, y)) => concat[1](avg_pool[k,s](x), avg_pool[k,s](y))",
           "add(conv[s](x, y), conv[s](x, z)) => conv[s](x, add(y, z))",
       }) {
    const Rule rule = Canonical(*ParseRule(text));
    EXPECT_TRUE(texts.contains(ToText(rule)) || Derivable(rule, plain)) << text;
  }
  // A single convolution may be enlarged, not only one of two.
  EXPECT_TRUE(texts.contains("conv[s](x, y) => conv[s](x, enlarge[k](y))"));
}

// The form of the paper's figure 2.5 has four operators: it is reached in two steps.
TEST(Rules, ReachTheTransposedProduct) {
  const std::vector<Term> start{*ParseTerm("matmul(x, y)")};
  const Rule twice = *ParseRule("matmul(x, y) => transpose(transpose(matmul(x, y)))");
  EXPECT_TRUE(CheckEqual(twice.source, twice.target).Holds());
  const Rule product = *ParseRule("transpose(matmul(x, y)) => matmul(transpose(y), transpose(x))");
  EXPECT_EQ(Rewrites({*ParseTerm("transpose(transpose(matmul(x, y)))")}, product),
            std::set<std::string>{"transpose(matmul(transpose(y), transpose(x)))"});
}

TEST(RuleFile, WhatIsNoneIsRefusedWithItsLine) {
  const auto error = [](std::string_view text) {
    return std::string(ParseRuleFile(text).status().message());
  };
  EXPECT_EQ(error("heddle rules 2\n"), "line 1: expected 'heddle rules 1'");
  EXPECT_EQ(error("heddle rules 1\nx\n"), "line 2: expected 'axioms' and their digest");
  EXPECT_EQ(error("heddle rules 1\naxioms a\n# remark\nadd(x => x\n").substr(0, 8), "line 4: ");
}

}  // namespace
}  // namespace heddle::substitution
