// What is true is proved, what is wrong is not, and a random sample of the shipped rules is proved anew.
#include "compiler/substitution/prover/prover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "compiler/substitution/algebra.h"
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

// A rule with one operator changed on one side is rejected: it has a counterexample. What has no case to which its
// operators can be applied says nothing of either judge, and does not count.
TEST(Prover, MutatedRulesAreRejected) {
  std::mt19937_64 rng(7);
  const std::vector<Rule>& rules = ShippedRules().rules;
  int rejected = 0, still_true = 0, without_a_case = 0;
  while (rejected < 200) {
    Rule rule = rules[rng() % rules.size()];
    std::vector<Term*> operators;
    for (Term& term : rng() % 2 == 0 ? rule.source : rule.target) Operators(&term, &operators);
    if (operators.empty() || !Mutate(operators[rng() % operators.size()], rng)) continue;
    const Checked checked = CheckEqual(rule.source, rule.target, {.cases = 400, .seed = rng()});
    if (checked.cases == 0) {
      ASSERT_LT(++without_a_case, 2000) << ToText(rule);
      continue;
    }
    if (checked.Holds()) {
      // It is another true rule, such as a sum of equal terms in another order, or one in which types leave no other
      // window than the changed one; then the solver may agree.
      ASSERT_LT(++still_true, 200) << ToText(rule);
      continue;
    }
    ++rejected;
    // The two judges are independent: what has a counterexample cannot be proved.
    ASSERT_NE(checked.counterexample, "") << ToText(rule);
    if (rejected % 10 == 0) {
      EXPECT_FALSE(Prove(rule, 100'000)) << ToText(rule);
    }
  }
  std::printf("%d with a counterexample, %d still true, %d without a case\n", rejected, still_true,
              without_a_case);
}

}  // namespace
}  // namespace heddle::substitution
