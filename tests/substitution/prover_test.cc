// What is true is proved, what is wrong is not, and a random sample of the shipped rules is proved anew.
#include "compiler/substitution/prover/prover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "compiler/substitution/algebra.h"
#include "compiler/substitution/generator.h"
#include "compiler/substitution/rule_file.h"

namespace heddle::substitution {
namespace {

TEST(Prover, ProvesASampleOfTheShippedRules) {
  const uint64_t seed = std::random_device()();
  std::vector<Rule> rules = ShippedRules().rules;
  std::shuffle(rules.begin(), rules.end(), std::mt19937_64(seed));
  rules.resize(std::min<size_t>(rules.size(), 60));
  for (const Rule& rule : rules)
    EXPECT_TRUE(Prove(rule)) << ToText(rule) << " (seed " << seed << ")";
}

TEST(Prover, DoesNotProveWhatIsWrong) {
  for (const char* text : {
           "map[f](conv[s](add(x, y), z)) => add(map[f](conv[s](x, z)), map[f](conv[s](y, z)))",
           "matmul(x, y) => matmul(y, x)",
           "concat[a](x, y) => concat[a](y, x)",
           "concat[a](x, concat[a](y, z)) => concat[a](concat[a](x, y), z)",
           "conv[s](x, identity_weights[k]) => x",
           "split0[a](x) => split1[a](x)",
           "x => y",
           "add(avg_pool[k,s](x), avg_pool[k,s](z)) => depthwise[s](concat[1](x, z), "
           "concat[0](pool_weights[k], pool_weights[k]))",
       }) {
    EXPECT_FALSE(Prove(*ParseRule(text), 100'000)) << text;
  }
}

// All operators of a term, so that one of them can be changed.
void Operators(Term* term, std::vector<Term*>* out) {
  if (!term->operands.empty()) out->push_back(term);
  for (Term& operand : term->operands) Operators(&operand, out);
}

// Another operator, another axis, or the operands the other way round. False: nothing was changed.
bool Mutate(Term* term, std::mt19937_64& rng) {
  const auto is = [&](Op op) { return term->op == op; };
  if (is(Op::kAdd) || is(Op::kMul)) {
    term->op = is(Op::kAdd) ? Op::kMul : Op::kAdd;
  } else if (is(Op::kSplit0) || is(Op::kSplit1)) {
    term->op = is(Op::kSplit0) ? Op::kSplit1 : Op::kSplit0;
  } else if (is(Op::kAvgPool) || is(Op::kMaxPool)) {
    term->op = is(Op::kAvgPool) ? Op::kMaxPool : Op::kAvgPool;
  } else if (is(Op::kTranspose)) {
    *term = Term{Op::kMap, "", {"changed"}, term->operands};
  } else if (is(Op::kMap) || is(Op::kMove) || is(Op::kConv) || is(Op::kDepthwise) ||
             is(Op::kGrouped)) {
    term->parameters[0] = "changed";
  } else if (is(Op::kConcat) && rng() % 2 == 0 && std::isdigit(term->parameters[0][0])) {
    term->parameters[0] = term->parameters[0] == "0" ? "1" : "0";
  } else if (term->operands.size() == 2 && term->operands[0] != term->operands[1]) {
    std::swap(term->operands[0], term->operands[1]);
  } else {
    return false;
  }
  return true;
}

// The test changes one operator on one side of each shipped rule. The changed rule is rejected unless it holds on all cases
// and is proved, as is demanded of every rule.
TEST(Prover, AMutantOfEachRuleIsRejected) {
  constexpr int kAttempts =
      20;  // to find a change that leaves a case to which all operators can be applied
  std::mt19937_64 rng(7);
  int refuted = 0, unproved = 0, other = 0, none = 0;
  for (const Rule& rule : ShippedRules().rules) {
    Rule mutant;
    Checked checked;
    const auto says_nothing = [&] { return checked.cases == 0 && checked.counterexample.empty(); };
    for (int i = 0; i < kAttempts && says_nothing(); ++i) {
      mutant = rule;
      std::vector<Term*> operators;
      for (Term& term : rng() % 2 == 0 ? mutant.source : mutant.target)
        Operators(&term, &operators);
      if (operators.empty() || !Mutate(operators[rng() % operators.size()], rng)) continue;
      // With other names, or with the operands of a sum the other way round, it is the same rule.
      if (Canonical(mutant) == Canonical(rule)) continue;
      checked = CheckEqual(mutant.source, mutant.target, {.cases = 400, .seed = rng()});
    }
    if (says_nothing()) {
      ++none;
    } else if (!checked.counterexample.empty()) {
      ++refuted;
      // The two judges are independent: what has a counterexample cannot be proved.
      if (refuted % 2 == 0) {
        EXPECT_FALSE(Prove(mutant, 50'000)) << ToText(mutant) << ": " << checked.counterexample;
      }
    } else if (!Prove(mutant)) {
      ++unproved;
    } else {
      // It is another true rule. Then no larger case refutes it either.
      ++other;
      const Checked more =
          CheckEqual(mutant.source, mutant.target, {.extent = 3, .cases = 4000, .seed = rng()});
      EXPECT_TRUE(more.Holds()) << ToText(mutant) << ": " << more.counterexample;
    }
  }
  std::printf("%d with a counterexample, %d not proved, %d true, %d without a case\n", refuted,
              unproved, other, none);
  EXPECT_GE(refuted, 200);
  EXPECT_LT(other, refuted / 10);
  EXPECT_EQ(none, 0);
}

}  // namespace
}  // namespace heddle::substitution
