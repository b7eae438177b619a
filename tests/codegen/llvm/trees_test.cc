// Decision trees as machine code, in the schedules that rules prefer and some random ones, against the interpreter.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/codegen/backend.h"
#include "compiler/ir/text.h"
#include "compiler/schedule/space.h"
#include "compiler/schedule/trace.h"
#include "tests/codegen/kernel_runner.h"
#include "tests/schedule/workloads.h"

namespace heddle::testing {
namespace {

const char* const kTargets[] = {"llvm -mcpu=native", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"};

void ExpectConforms(const ir::Program& naive, int random) {
  for (const std::string target : kTargets) {
    const auto info = codegen::DescribeTarget(*codegen::ResolveTarget(*ParseTarget(target)));
    ASSERT_TRUE(info.ok()) << info.status();
    const auto space = schedule::MakeSpace(naive, *info);
    ASSERT_TRUE(space.ok()) << space.status();
    schedule::Rng rng(1);
    for (int k = 0; k <= random; ++k) {
      const auto trace = (*space)->Expand(k == 0 ? (*space)->Preferred() : (*space)->Random(rng));
      if (k > 0 && !trace.ok()) continue;
      ASSERT_TRUE(trace.ok()) << trace.status();
      const auto scheduled = schedule::Replay(naive, *trace);
      ASSERT_TRUE(scheduled.ok()) << scheduled.status();
      const std::vector<HostTensor> inputs = MakeInputs(naive, 1);
      std::vector<HostTensor> expected = MakeOutputs(naive), actual = MakeOutputs(naive);
      ASSERT_TRUE(RunInterpreter(naive, inputs, expected).ok());
      absl::Status status = RunLlvm(*scheduled, inputs, actual, {.target = target});
      if (status.ok()) status = Compare(naive, expected, actual);
      ASSERT_TRUE(status.ok()) << status << "\n" << target << "\n" << schedule::ToText(*trace);
    }
  }
}

TEST(Trees, WalkedOverRecordsAndTrees) {
  ExpectConforms(schedule::MakeWalk(2, 32, 3, 1, 64), 3);
  ExpectConforms(schedule::MakeWalk(1, 32, 3, 2, 1), 3);
  ExpectConforms(schedule::MakeWalk(1, 16, 2, 1, 37, false), 3);
}

TEST(Trees, InBytesOverRecords) {
  ExpectConforms(schedule::MakeRanks(2, 6, 1, 3, 1, 256), 3);
  ExpectConforms(schedule::MakeRanks(1, 4, 1, 2, 3, 64, false), 3);
  ExpectConforms(schedule::MakeRanks(1, 6, 1, 4, 1, 100), 3);  // the last vector is not full
  ExpectConforms(schedule::MakeRanks(1, 3, 1, 8, 1, 128), 0);
}

TEST(Trees, RanksInTwoSteps) {
  ExpectConforms(schedule::MakeDigitize(3, 16, 16, 256), 3);
  ExpectConforms(schedule::MakeDigitize(2, 11, 3, 64), 3);
  ExpectConforms(schedule::MakeDigitize(2, 16, 4, 100), 3);  // the last vector is not full
}

TEST(Trees, RanksByHalving) {
  ExpectConforms(schedule::MakeHalvedDigitize(28, 256), 3);
  ExpectConforms(schedule::MakeHalvedDigitize(37, 64), 3);
  ExpectConforms(schedule::MakeHalvedDigitize(64, 4), 3);
}

TEST(Trees, InBytesOverTrees) {
  ExpectConforms(schedule::MakeRanks(1, 128, 64, 3, 1, 1), 1);
  ExpectConforms(schedule::MakeRanks(2, 64, 64, 2, 2, 2, false), 1);
}

TEST(Trees, LeavesThatAreLeft) {
  ExpectConforms(schedule::MakeLeaves(2, 6, 1, 31, 1, 256), 3);
  ExpectConforms(schedule::MakeLeaves(1, 4, 1, 10, 3, 100), 3);  // the last vector is not full
  ExpectConforms(schedule::MakeLeaves(1, 3, 1, 200, 1, 64), 0);  // places are unsigned
  ExpectConforms(schedule::MakeLeaves(1, 6, 1, 20, 1, 40, /*floats=*/true), 3);
  ExpectConforms(schedule::MakeLeaves(1, 128, 64, 12, 1, 1), 1);
  ExpectConforms(schedule::MakeLeaves(2, 32, 16, 12, 2, 1, /*floats=*/true), 1);
}

}  // namespace
}  // namespace heddle::testing
