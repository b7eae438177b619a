#include "compiler/ir/analysis/simplify.h"

#include <gtest/gtest.h>

#include <random>

#include "compiler/ir/analysis/analyzer.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"
#include "tests/ir/random_ir.h"
#include "tests/ir/run_program.h"

namespace heddle::ir {
namespace {

constexpr int kPointsPerExpr = 40;

void AddRandomVars(RandomExpr& random) {
  for (int64_t n = random.Pick(1, 4); n > 0; --n) {
    const int64_t low = random.Pick(0, 2) ? 0 : random.Pick(-40, 40);
    random.AddVar("v" + std::to_string(n), low, low + random.Pick(0, 3) * random.Factor());
  }
}

TEST(Simplify, RandomIntegersKeepTheirValueAndStayInTheirBounds) {
  std::mt19937_64 rng(11);
  for (int n = 0; n < 20000; ++n) {
    RandomExpr random(rng);
    AddRandomVars(random);
    const Expr e = random.Integer(4);
    const Expr simple = Simplify(e, random.ranges);
    const auto bounds = Bounds(e, random.ranges);
    const auto quick = QuickBounds(e, [&](const Var* var) { return &random.ranges.at(var); });
    for (int k = 0; k < kPointsPerExpr; ++k) {
      const Env env = random.RandomEnv();
      const int64_t value = EvalInteger(e, env);
      if (quick) {
        ASSERT_LE(quick->min, value) << Print(e);
        ASSERT_GE(quick->max, value) << Print(e);
      }
      ASSERT_EQ(EvalInteger(simple, env), value) << Print(e) << "\n-> " << Print(simple);
      ASSERT_EQ(EvalInteger(FromLinear(ToLinear(e)), env), value) << Print(e);
      if (!bounds) continue;
      ASSERT_LE(bounds->min, value) << Print(e);
      ASSERT_GE(bounds->max, value) << Print(e);
    }
  }
}

TEST(Simplify, RandomConditionsKeepTheirValue) {
  std::mt19937_64 rng(12);
  for (int n = 0; n < 20000; ++n) {
    RandomExpr random(rng);
    AddRandomVars(random);
    const Expr e = random.Condition(3);
    const Expr simple = Simplify(e, random.ranges);
    for (int k = 0; k < kPointsPerExpr; ++k) {
      const Env env = random.RandomEnv();
      ASSERT_EQ(EvalInteger(simple, env), EvalInteger(e, env))
          << Print(e) << "\n-> " << Print(simple);
    }
  }
}

TEST(Analyzer, WhatAGuardAllowsIsTrueUnderIt) {
  std::mt19937_64 rng(13);
  int points = 0;
  for (int n = 0; n < 20000; ++n) {
    RandomExpr random(rng);
    AddRandomVars(random);
    const Expr guard = random.Condition(2), e = random.Integer(3);
    const bool holds = random.Pick(0, 1);
    Analyzer analyzer(&random.ranges);
    const auto outside = analyzer.Mark();
    analyzer.Assume(guard, holds);
    const Expr simple = analyzer.Simplify(e);
    const auto bounds = analyzer.Bounds(e);
    analyzer.Restore(outside);
    for (int k = 0; k < kPointsPerExpr; ++k) {
      const Env env = random.RandomEnv();
      if ((EvalInteger(guard, env) != 0) != holds) continue;
      ++points;
      const int64_t value = EvalInteger(e, env);
      ASSERT_EQ(EvalInteger(simple, env), value)
          << Print(e) << " under " << holds << " " << Print(guard) << "\n-> " << Print(simple);
      if (!bounds) continue;

      ASSERT_TRUE(bounds->min <= value && value <= bounds->max)
          << Print(e) << " under " << Print(guard);
    }
  }
  EXPECT_GT(points, 10000);
}

// What splits, fusions and regions produce has to come out closed.
class SplitForms : public testing::Test {
 protected:
  SplitForms() {
    const auto var = [&](const char* name, int64_t extent) {
      vars_.push_back(std::make_shared<Var>(Var{name}));
      ranges_[vars_.back().get()] = {0, extent - 1};
      return VarExpr(vars_.back());
    };
    i = var("i", 7), j = var("j", 8), k = var("k", 4), f = var("f", 7 * 8 * 4);
  }
  std::string S(const Expr& e) { return Print(Simplify(e, ranges_)); }

  std::vector<VarRef> vars_;
  Ranges ranges_;
  Expr i, j, k, f;
};

TEST_F(SplitForms, SplitsResolve) {
  const Expr split = i * Int(8) + j;
  EXPECT_EQ(S(FloorDiv(split, Int(8))), "i");
  EXPECT_EQ(S(FloorMod(split, Int(8))), "j");
  EXPECT_EQ(S(FloorDiv(split, Int(16))), "(i // 2)");
  EXPECT_EQ(S(FloorMod(split, Int(16))), "(((i % 2) * 8) + j)");
  EXPECT_EQ(S(FloorMod(split, Int(4))), "(j % 4)");
  const Expr nested = (i * Int(8) + j) * Int(4) + k;
  EXPECT_EQ(S(FloorDiv(nested, Int(32))), "i");
  EXPECT_EQ(S(FloorMod(FloorDiv(nested, Int(4)), Int(8))), "j");
  EXPECT_EQ(S(FloorMod(nested, Int(4))), "k");
  EXPECT_EQ(S(FloorDiv(FloorMod(nested, Int(32)), Int(4))), "j");
}

TEST_F(SplitForms, FusionsComeTogetherAgain) {
  const Expr a = FloorDiv(f, Int(32)), b = FloorMod(FloorDiv(f, Int(4)), Int(8)),
             c = FloorMod(f, Int(4));
  EXPECT_EQ(S((a * Int(8) + b) * Int(4) + c), "f");
  EXPECT_EQ(S(b * Int(4) + c), "(f % 32)");
  EXPECT_EQ(S(FloorDiv(FloorDiv(f, Int(8)), Int(4))), "(f // 32)");
  EXPECT_EQ(S(FloorDiv(FloorMod(f, Int(32)), Int(4))), S(b));
  EXPECT_EQ(S(f - FloorDiv(f, Int(4)) * Int(4)), "(f % 4)");
  EXPECT_EQ(S(FloorMod(a, Int(7))), "(f // 32)");
}

TEST_F(SplitForms, DifferencesCancel) {
  const Expr row = FloorDiv(f, Int(32)) * Int(2);
  EXPECT_EQ(S((row + j + Int(3)) - (row + j)), "3");
  EXPECT_EQ(S(Make(Op::kMin, {i * Int(8) + j, i * Int(8)})), "(i * 8)");
  EXPECT_EQ(S(Make(Op::kMax, {i + Int(3), i})), "(i + 3)");
  EXPECT_EQ(S(Make(Op::kMin, {Make(Op::kMin, {j, Int(5)}), Int(3)})), "min(j, 3)");
}

TEST_F(SplitForms, ComparisonsAreDecided) {
  EXPECT_EQ(S(Lt(i * Int(8) + j, Int(56))), "true");
  EXPECT_EQ(S(Lt(i * Int(8) + j, Int(55))), "(((i * 8) + j) < 55)");
  EXPECT_EQ(S(Le(Int(0), i - Int(1))), "(0 < i)");
  EXPECT_EQ(S(Lt(FloorDiv(f, Int(4)), Int(10))), "(f < 40)");
  EXPECT_EQ(S(Make(Op::kEq, {i * Int(2), j * Int(2) + Int(1)})), "false");
  EXPECT_EQ(S(And(Lt(i, Int(5)), Lt(i, Int(6)))), "(i < 5)");
}

TEST_F(SplitForms, GuardsBoundWhatTheyGuard) {
  Analyzer analyzer(&ranges_);
  const Expr h = i * Int(8) + j + k - Int(1);
  analyzer.Assume(And(Le(Int(0), h), Lt(h, Int(50))));
  const auto bounds = analyzer.Bounds(h);
  ASSERT_TRUE(bounds.has_value());
  EXPECT_EQ(bounds->min, 0);
  EXPECT_EQ(bounds->max, 49);
  EXPECT_TRUE(analyzer.IsWithin(h + Int(2), 2, 52));
  EXPECT_TRUE(analyzer.Proves(Lt(h - Int(3), Int(50))));
  EXPECT_FALSE(analyzer.Proves(Lt(h, Int(49))));
}

TEST(Simplify, StatementsKeepTheirMeaning) {
  std::mt19937_64 rng(14);
  int ran = 0;
  for (int n = 0; n < 500; ++n) {
    const Program program = RandomProgram(rng, false).Make();
    for (bool keep_loops : {false, true}) {
      Program simple = program;
      simple.body = Simplify(program.body, keep_loops);
      ASSERT_TRUE(Verify(simple).ok()) << Verify(simple) << "\n" << Print(program) << Print(simple);
      interpreter::Arena a(program), b(simple);
      const absl::Status status = interpreter::Interpret(program, a.tensors);
      if (!status.ok()) continue;
      ASSERT_TRUE(interpreter::Interpret(simple, b.tensors).ok())
          << Print(program) << Print(simple);
      ASSERT_EQ(a.memory, b.memory) << Print(program) << Print(simple);
      ++ran;
    }
  }
  EXPECT_GT(ran, 800);
}

// The verifier's bounds come from the analyzer, the interpreter's checks do not.
TEST(Verifier, AProgramItPassesNeverLeavesItsBuffers) {
  std::mt19937_64 rng(15);
  int passed = 0;
  for (int n = 0; n < 20000; ++n) {
    const Program program = RandomProgram(rng, true).Make();
    if (!Verify(program).ok()) continue;
    ++passed;
    interpreter::Arena arena(program);
    const absl::Status status = interpreter::Interpret(program, arena.tensors);
    ASSERT_EQ(std::string(status.message()).find("outside"), std::string::npos) << status << "\n"
                                                                                << Print(program);
  }
  EXPECT_GT(passed, 100);
}

}  // namespace
}  // namespace heddle::ir
