// Text of terms and rules: it round-trips, and what is no rule is refused with the place.
#include "compiler/substitution/term.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/substitution/axioms.h"
#include "compiler/substitution/generator.h"

namespace heddle::substitution {
namespace {

using testing::HasSubstr;

TEST(Term, AxiomsRoundTrip) {
  for (const Axiom& axiom : Axioms()) {
    const Rule rule = RuleOf(axiom);
    EXPECT_EQ(ToText(rule), axiom.text);
    EXPECT_EQ(*ParseRule(ToText(Reversed(rule))), Reversed(rule));
  }
}

TEST(Term, WhatIsNoRuleIsRefused) {
  const auto error = [](std::string_view text) {
    return std::string(ParseRule(text).status().message());
  };
  EXPECT_THAT(error("add(x, y)"), HasSubstr("expected '=>' at column 10"));
  EXPECT_THAT(error("add(x) => x"), HasSubstr("expected ','"));
  EXPECT_THAT(error("sub(x, y) => x"), HasSubstr("no operator 'sub'"));
  EXPECT_THAT(error("map(x) => x"), HasSubstr("expected '['"));
  EXPECT_THAT(error("x, y => x"), HasSubstr("as many terms"));
  EXPECT_THAT(error("x => y z"), HasSubstr("expected the end"));
  std::string deep = "x";
  for (int i = 0; i < 1000; ++i) deep = "transpose(" + deep + ")";
  EXPECT_THAT(error(deep + " => x"), HasSubstr("nested too deeply"));
}

TEST(Term, EqualSubtermsAndBothPartsOfASplitAreOneOperator) {
  const auto count = [](std::string_view text) { return NumOperators(ParseRule(text)->source); };
  EXPECT_EQ(count("add(map[f](x), map[f](x)) => x"), 2);
  EXPECT_EQ(count("split0[a](x), split1[a](x) => x, x"), 1);
  EXPECT_EQ(count("split0[0](x), split1[1](x) => x, x"), 2);
}

// Variables and parameters may have any names, operands of add any order, and sides and outputs too.
TEST(Term, TheCanonicalFormIsOne) {
  const char* const kSame[] = {
      "matmul(x, y), matmul(x, z) => split0[1](matmul(x, concat[1](y, z))), split1[1](matmul(x, "
      "concat[1](y, z)))",
      "matmul(a, c), matmul(a, b) => split1[1](matmul(a, concat[1](b, c))), split0[1](matmul(a, "
      "concat[1](b, c)))",
      "split0[1](matmul(u, concat[1](v, w))), split1[1](matmul(u, concat[1](v, w))) => matmul(u, "
      "v), matmul(u, w)"};
  for (const char* text : kSame)
    EXPECT_EQ(ToText(Canonical(*ParseRule(text))), ToText(Canonical(*ParseRule(kSame[0]))));
  EXPECT_EQ(ToText(Canonical(*ParseRule("map[f9](add(b, a)) => add(map[f9](a), b)"))),
            ToText(Canonical(*ParseRule("map[f](add(y, x)) => add(x, map[f](y))"))));
}

}  // namespace
}  // namespace heddle::substitution
