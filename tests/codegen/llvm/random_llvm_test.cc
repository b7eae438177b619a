// Random program x random legal schedule as LLVM code, against the interpreter on the naive
// program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/kernel_runner.h"
#include "tests/codegen/typed_programs.h"
#include "tests/schedule/oracle.h"
#include "tests/schedule/random_programs.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

constexpr uint64_t kPairs = 2000;  // every second one typed
constexpr int kMaxSteps = 14;
const char* const kTargets[] = {"llvm -mcpu=native -threads=4", "llvm -mcpu=x86-64-v3 -threads=2",
                                "llvm -mcpu=x86-64"};

// Puts NaNs, infinities and negative zeros among the floats.
void AddSpecialValues(const ir::Program& program, std::vector<HostTensor>& inputs,
                      schedule::Rng& rng) {
  constexpr double kSpecial[] = {std::numeric_limits<double>::quiet_NaN(),
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(), -0.0};
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!ir::IsFloat(program.inputs[k]->dtype)) continue;
    for (int64_t i = 0; i < inputs[k].size(); ++i) {
      const uint64_t drawn = rng() % 32;
      if (drawn < std::size(kSpecial)) inputs[k].Set(i, kSpecial[drawn]);
    }
  }
}

absl::Status CheckPair(const ir::Program& naive, const ir::Program& scheduled, uint64_t seed,
                       bool special, schedule::Rng& rng) {
  std::vector<HostTensor> inputs = MakeInputs(naive, seed), expected = MakeOutputs(naive),
                          actual = MakeOutputs(naive);
  if (special) AddSpecialValues(naive, inputs, rng);
  absl::Status status = RunInterpreter(naive, inputs, expected);
  if (!status.ok()) return status;
  LlvmRun run;
  run.target = kTargets[seed % std::size(kTargets)];
  run.workers = 1 + static_cast<int>(seed % 2);
  run.options.opt_level = static_cast<int>(1 + seed % 3);
  status = RunLlvm(scheduled, inputs, actual, run);
  return status.ok() ? Compare(naive, expected, actual) : status;
}

// The trace without what only a GPU has, and without steps that then no longer apply.
ir::Program ReplayForCpu(const ir::Program& naive, const schedule::Trace& trace) {
  ir::Program program = naive;
  for (const schedule::Step& step : trace.steps) {
    const bool shared =
        std::find(step.names.begin(), step.names.end(), "shared") != step.names.end();
    if (step.primitive == schedule::Primitive::kBind || shared) continue;
    auto next = schedule::ApplyStep(program, step);
    if (next.ok()) program = std::move(next->program);
  }
  return program;
}

// HEDDLE_SEED=n checks that pair only; HEDDLE_PAIRS=n checks the first n.
TEST(RandomLlvm, ComputesWhatTheNaiveProgramComputes) {
  const char* one = std::getenv("HEDDLE_SEED");
  const char* pairs = std::getenv("HEDDLE_PAIRS");
  uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  uint64_t last = one ? first : pairs ? std::strtoull(pairs, nullptr, 10) : kPairs;
  for (uint64_t seed = first; seed <= last; ++seed) {
    schedule::Rng rng(seed + 1'000'000);  // other pairs than the schedule test draws
    const bool typed = seed % 2 == 0;
    bool special = false;
    auto naive = typed ? RandomTypedProgram(rng, &special) : schedule::RandomProgram(rng);
    ASSERT_TRUE(naive.ok()) << naive.status();
    auto trace = schedule::RandomTrace(*naive, kMaxSteps, rng);
    ASSERT_TRUE(trace.ok()) << "seed " << seed << ": " << trace.status();
    ir::Program scheduled = ReplayForCpu(*naive, *trace);
    absl::Status status = CheckPair(*naive, scheduled, seed, special, rng);
    ASSERT_TRUE(status.ok()) << "HEDDLE_SEED=" << seed << "\n"
                             << schedule::ToText(*trace) << ir::Print(scheduled) << status;
  }
  std::printf("%llu pairs, no mismatch\n", static_cast<unsigned long long>(last - first + 1));
}

// The preferred point of the program's space and random ones as LLVM code. Returns how many are feasible.
int CheckPoints(const ir::Program& naive, const std::string& target_name, uint64_t seed) {
  constexpr int kDraws = 6;
  const auto target = codegen::ResolveTarget(ParseTarget(target_name).value());
  const auto space = schedule::MakeSpace(naive, codegen::DescribeTarget(target.value()).value());
  const std::vector<HostTensor> inputs = MakeInputs(naive, seed);
  std::vector<HostTensor> expected = MakeOutputs(naive);
  EXPECT_TRUE(RunInterpreter(naive, inputs, expected).ok());
  schedule::Rng rng(seed);
  int checked = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto trace = (*space)->Expand(draw == 0 ? (*space)->Preferred() : (*space)->Random(rng));
    if (draw > 0 && absl::IsFailedPrecondition(trace.status())) continue;
    std::vector<HostTensor> actual = MakeOutputs(naive);
    absl::Status status = trace.status();
    if (status.ok())
      status = RunLlvm(*schedule::Replay(naive, *trace), inputs, actual,
                       {.workers = 2, .target = target_name});
    if (status.ok()) status = Compare(naive, expected, actual);
    EXPECT_TRUE(status.ok()) << status << "\n"
                             << target_name << " seed " << seed << "\n"
                             << (trace.ok() ? schedule::ToText(*trace) : "");
    checked += status.ok();
  }
  return checked;
}

// Records are fewer than a vector has lanes, or no multiple of these, or more than a few vectors hold.
TEST(RandomLlvm, WalksOfTrees) {
  struct Walk {
    int64_t groups, trees, steps, values;
  };
  int checked = 0;
  uint64_t seed = 0;
  for (const int64_t records : {5, 37, 40}) {
    for (const Walk& w :
         {Walk{1, 32, 4, 1}, Walk{3, 16, 2, 1}, Walk{1, 48, 7, 1}, Walk{1, 16, 3, 3}}) {
      for (const bool ranges : {true, false}) {
        const ir::Program naive =
            schedule::MakeWalk(w.groups, w.trees, w.steps, w.values, records, ranges);
        const char* target = kTargets[++seed % std::size(kTargets)];
        checked += CheckPoints(naive, target, seed);
        ASSERT_FALSE(HasFailure()) << ir::Print(naive);
      }
    }
  }
  EXPECT_GT(checked, 80) << "hardly a point of the spaces is feasible";
}

}  // namespace
}  // namespace heddle::testing
