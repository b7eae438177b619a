// Points of search spaces: what Expand accepts replays, verifies and computes what the naive
// program computes.
#include "compiler/schedule/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "compiler/ir/text.h"
#include "compiler/ir/visit.h"
#include "compiler/pass/lower.h"
#include "compiler/schedule/rules/rule_table.h"
#include "compiler/tensor/expression.h"
#include "tests/schedule/oracle.h"
#include "tests/schedule/random_programs.h"
#include "tests/schedule/workloads.h"

namespace heddle::schedule {
namespace {

bool HasForms(const Space& space) { return space.Describe(0) == "form"; }

// A convolution too small for more than two forms, without a machine's threads or wide vectors.
std::unique_ptr<Space> SmallSpaceOfForms() {
  machine::TargetInfo scalar;
  scalar.vector_bytes = 4;
  return MakeSpace(MakeWorkload("3x1-1k3s1").value(), scalar).value();
}

constexpr int kPrograms = 250;
constexpr int kPointsPerProgram = 3;
constexpr int kTriesPerPoint = 20;

// Counts the stages of each rule. Fails for a rule that is refused because of a bug.
void CountStages(const Space& space, std::map<std::string, int>* stages) {
  for (const Offer& offer : space.Offers()) {
    const absl::StatusCode code = offer.status.code();
    EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kFailedPrecondition ||
                code == absl::StatusCode::kResourceExhausted)
        << offer.rule << " for " << offer.stage << ": " << offer.status;
    (*stages)[offer.rule] += offer.status.ok();
  }
}

// HEDDLE_SEED=n checks that program only.
TEST(Space, RandomPointsOfRandomPrograms) {
  const char* one = std::getenv("HEDDLE_SEED");
  uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  uint64_t last = one ? first : kPrograms;
  int checked = 0;
  std::map<std::string, int> stages;
  for (uint64_t seed = first; seed <= last; ++seed) {
    Rng rng(seed);
    auto naive = RandomProgram(rng);
    ASSERT_TRUE(naive.ok()) << naive.status();
    for (const machine::TargetInfo& target : Targets()) {
      auto fallback = DefaultTrace(*naive, target);
      ASSERT_TRUE(fallback.ok()) << "seed " << seed << ": " << fallback.status();
      if (!CheckTrace(*naive, *fallback, seed).ok()) FAIL() << Explain(*naive, *fallback, seed);
      auto space = MakeSpace(*naive, target);
      ASSERT_TRUE(space.ok()) << space.status();
      CountStages(**space, &stages);
      for (int k = 0, tries = 0; k < kPointsPerProgram && tries < kTriesPerPoint; ++tries) {
        auto trace = (*space)->Expand((*space)->Random(rng));
        if (!trace.ok()) {
          ASSERT_TRUE(trace.status().code() == absl::StatusCode::kFailedPrecondition ||
                      trace.status().code() == absl::StatusCode::kResourceExhausted)
              << trace.status();
          continue;
        }
        if (!CheckTrace(*naive, *trace, seed).ok()) FAIL() << Explain(*naive, *trace, seed);
        ++k;
        ++checked;
      }
    }
  }
  if (!one) {
    EXPECT_GT(checked, kPrograms * 2);
  }
  std::printf("%d points, no mismatch\n", checked);
  for (const auto& [rule, count] : stages) std::printf("%s: %d stages\n", rule.c_str(), count);
}

TEST(Space, EveryRuleTakesSomeWorkload) {
  machine::TargetInfo gpu;
  gpu.target = ParseTarget("cuda -arch=sm_90 -tf32=on").value();
  gpu.execution = machine::Execution::kGrid;
  gpu.shared_bytes_per_block = 227 << 10;
  gpu.multiprocessors = 132;
  gpu.tensor_cores = true;
  std::vector<machine::TargetInfo> targets = Targets();
  targets.push_back(gpu);
  std::map<std::string, int> stages;
  for (const std::string& name : WorkloadNames()) {
    for (const machine::TargetInfo& target : targets)
      CountStages(**MakeSpace(MakeWorkload(name).value(), target), &stages);
  }
  for (const StageRule& rule : StageRules())
    EXPECT_GT(stages[std::string(rule.name)], 0) << rule.name << " never got a stage";
}

TEST(Space, ExpandIsDeterministicAndReplays) {
  for (const std::string& name : WorkloadNames()) {
    auto naive = MakeWorkload(name);
    ASSERT_TRUE(naive.ok()) << naive.status();
    for (const machine::TargetInfo& target : Targets()) {
      auto space = MakeSpace(*naive, target);
      ASSERT_TRUE(space.ok()) << space.status();
      auto again = MakeSpace(*naive, target);
      ASSERT_TRUE(again.ok()) << again.status();
      Rng rng(7);
      int feasible = 0;
      for (int k = 0; k < 40; ++k) {
        Point point = (*space)->Random(rng);
        auto trace = (*space)->Expand(point);
        auto same = (*again)->Expand(point);
        ASSERT_EQ(trace.ok(), same.ok());
        if (!trace.ok()) continue;
        ++feasible;
        EXPECT_TRUE(*trace == *same);
        EXPECT_TRUE(Replay(*naive, *trace).ok()) << name << "\n" << ToText(*trace);
      }
      EXPECT_GT(feasible, 0) << name;
    }
  }
}

// A replayer that knows other points says of each what one says that knows none.
TEST(Space, KnownStepsChangeNothing) {
  for (const char* name : {"C2", "C4", "D3", "M2", "S"}) {
    SCOPED_TRACE(name);
    const ir::Program naive = MakeWorkload(name).value();
    for (const machine::TargetInfo& target : Targets()) {
      const auto space = MakeSpace(naive, target).value();
      Replayer known(naive);
      Rng rng(11);
      Point point = space->Preferred();
      size_t steps = 0;
      for (int k = 0; k < 48; ++k, point = space->Mutate(point, rng)) {
        if (k % 12 == 6) point = space->Random(rng);
        const auto expected = space->Expand(point), trace = space->ExpandWith(point, known);
        ASSERT_EQ(trace.status(), expected.status());
        if (!expected.ok()) continue;
        ASSERT_TRUE(*trace == *expected);
        steps += trace->steps.size();
        const size_t made = known.made();
        const auto program = known.Replay(*trace);
        EXPECT_EQ(known.made(), made) << "it was made when the point was expanded";
        ASSERT_EQ(ir::Print(*program), ir::Print(*Replay(naive, *expected)));
      }
      EXPECT_LT(known.made(), steps * 9 / 10) << "of " << steps << " steps";
    }
  }
}

TEST(Space, WorkloadsAreTunable) {
  machine::TargetInfo target = Targets()[1];
  for (const std::string& name : WorkloadNames()) {
    auto naive = MakeWorkload(name);
    ASSERT_TRUE(naive.ok());
    auto space = MakeSpace(*naive, target);
    ASSERT_TRUE(space.ok());
    EXPECT_GT((*space)->Size(), name == "E" ? 2 : 10) << name;
    double product = 1;
    for (int k = 0; k < (*space)->NumDecisions(); ++k) {
      EXPECT_GE((*space)->Choices(k), 1);
      EXPECT_FALSE((*space)->Describe(k).empty());
      product *= (*space)->Choices(k);
    }
    if (HasForms(**space)) {
      EXPECT_LT((*space)->Size(), product) << name;
    } else {
      EXPECT_EQ((*space)->Size(), product) << name;
    }
  }
}

TEST(Space, MutateRedrawsOneDecision) {
  for (const char* name : {"C2", "C4"}) {  // with and without forms
    auto naive = MakeWorkload(name);
    ASSERT_TRUE(naive.ok());
    auto space = MakeSpace(*naive, Targets()[1]);
    ASSERT_TRUE(space.ok());
    const bool forms = HasForms(**space);
    EXPECT_EQ(forms, std::string(name) == "C2");
    Rng rng(3);
    Point point = (*space)->Random(rng);
    std::set<int32_t> seen;
    int moves = 0;
    for (int k = 0; k < 400; ++k) {
      Point mutant = (*space)->Mutate(point, rng);
      int changed = 0;
      for (size_t i = 0; i < point.size(); ++i) changed += point[i] != mutant[i];
      if (forms && mutant[0] != point[0]) {
        ++moves;
        auto trace = (*space)->Expand(mutant);
        EXPECT_TRUE(trace.ok()) << "a form starts from what it prefers: " << trace.status();
      } else {
        EXPECT_EQ(changed, 1);
      }
      if (forms) seen.insert(mutant[0]);
      for (int i = 0; i < (*space)->NumDecisions(); ++i) EXPECT_LT(mutant[i], (*space)->Choices(i));
      point = mutant;
    }
    if (forms) {
      EXPECT_EQ(static_cast<int32_t>(seen.size()), (*space)->Choices(0));
      EXPECT_LT(moves, 100) << "forms change seldom";
    }
  }
}

// Counting up visits every point once, whether the decisions are those of one form or of several.
TEST(Space, NextVisitsEveryPoint) {
  machine::TargetInfo narrow;
  std::vector<std::unique_ptr<Space>> spaces;
  spaces.push_back(MakeSpace(MakeWorkload("E").value(), narrow).value());
  spaces.push_back(SmallSpaceOfForms());
  EXPECT_TRUE(HasForms(*spaces[1]));
  for (const auto& space : spaces) {
    const auto size = static_cast<size_t>(space->Size());
    ASSERT_LT(size, 1u << 20);
    Rng rng(5);
    const Point first = space->Random(rng);
    Point point = first;
    std::set<Point> seen;
    int wraps = 0;
    for (size_t k = 0; k < size; ++k) {
      EXPECT_TRUE(seen.insert(point).second);
      wraps += !space->Next(point);
    }
    EXPECT_EQ(point, first);
    EXPECT_EQ(wraps, 1);
    for (int k = 0; k < 200; ++k) {
      EXPECT_EQ(seen.count(space->Random(rng)), 1u) << "random points are among them";
    }
  }
}

TEST(Space, RefusesPointsThatAreNotItsOwn) {
  auto naive = MakeWorkload("C3");
  ASSERT_TRUE(naive.ok());
  auto space = MakeSpace(*naive, Targets()[0]);
  ASSERT_TRUE(space.ok());
  EXPECT_EQ((*space)->Expand({}).status().code(), absl::StatusCode::kInvalidArgument);
  Point point((*space)->NumDecisions(), 0);
  point[0] = 1000;
  EXPECT_EQ((*space)->Expand(point).status().code(), absl::StatusCode::kInvalidArgument);
  point[0] = -1;
  EXPECT_EQ((*space)->Expand(point).status().code(), absl::StatusCode::kInvalidArgument);
}

// Every stage reads the one before twice, so the last one, all inlined, would have 2^40 loads.
TEST(Space, ChainsOfSquaresStaySmall) {
  tensor::Builder builder("squares");
  tensor::Tensor x = builder.Input("x", ir::DType::kF32, {64});
  for (int k = 0; k < 40; ++k) {
    x = builder.Compute("y" + std::to_string(k), {64},
                        [&](tensor::Iters i) { return x(i[0]) * x(i[0]); });
  }
  const auto stages = builder.Build({x});
  ASSERT_TRUE(stages.ok()) << stages.status();
  const ir::Program naive = tensor::LowerToLoops(*stages).value();
  const auto trace = DefaultTrace(naive, Targets()[1]);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const auto scheduled = Replay(naive, *trace);
  ASSERT_TRUE(scheduled.ok()) << scheduled.status();
  int64_t nodes = 0;
  ir::VisitStmtExprs(scheduled->body, [&](const ir::Expr& e) {
    ir::VisitExpr(e, [&](const ir::Expr&) { ++nodes; });
  });
  EXPECT_LT(nodes, 40 * 1024);
}

}  // namespace
}  // namespace heddle::schedule
