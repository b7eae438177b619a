// The live table on small terminals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "client/views/progress_view.h"

namespace heddle::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::Job JobOf(int tasks) {
  v1::Job job;
  job.set_id("j1");
  job.set_state(v1::JOB_TUNING);
  for (int i = 0; i < tasks; ++i) {
    v1::TaskStatus* task = job.add_tasks();
    task->mutable_info()->set_label("conv2d+add+relu 1x56x56x64 by 3x3x64x64, stride 2x2");
    task->mutable_info()->set_weight(2);
    task->set_trials(48);
    task->set_budget(64);
    task->set_best_ns(1'234'567);
    task->set_untuned_ns(4'000'000);
    task->set_doing("done");
    task->set_done(true);
  }
  return job;
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST(LiveView, EightyColumnsShowWhatIsBeingDone) {
  v1::Job job = JobOf(3);
  job.mutable_tasks(1)->set_doing("profile 12/16");
  job.mutable_tasks(1)->set_done(false);
  for (const int width : {80, 100, 120, 200}) {
    const std::vector<std::string> lines = Lines(LiveTaskTable(job, width, 20));
    ASSERT_EQ(lines.size(), 4u);
    for (const std::string& line : lines) EXPECT_LT(line.size(), static_cast<size_t>(width));
    EXPECT_THAT(lines[1], HasSubstr("profile 12/16")) << width;
    EXPECT_EQ(lines[0].find("GFLOP/s") != std::string::npos, width >= 120);
  }
}

TEST(LiveView, EightyColumnsTellTasksApartAndWhatTheyWaitFor) {
  v1::Job job = JobOf(2);
  job.mutable_tasks(0)->mutable_info()->set_label("blocked_conv2d+add+clip 1x72x14x14x8");
  job.mutable_tasks(1)->mutable_info()->set_label("blocked_conv2d+add+clip 1x120x7x7x8");
  for (v1::TaskStatus& task : *job.mutable_tasks()) {
    task.set_doing("waiting for its turn");
    task.set_done(false);
  }
  const std::vector<std::string> lines = Lines(LiveTaskTable(job, 80, 20));
  EXPECT_THAT(lines[1], HasSubstr("1x72x14x14x8 "));
  EXPECT_THAT(lines[2], HasSubstr("1x120x7x7x8 "));
  for (const std::string& line : {lines[1], lines[2]}) {
    EXPECT_THAT(line, HasSubstr("blocked_conv2"));
    EXPECT_THAT(line, HasSubstr("waiting for its turn"));
    EXPECT_LT(line.size(), 80u);
  }
}

TEST(LiveView, TextsAreCutBetweenCharacters) {
  EXPECT_EQ(Clip("caffè e latte", 14), "caffè e latte");
  EXPECT_EQ(Clip("caffè e latte", 6), "caffè~");
  EXPECT_EQ(Clip("caffè", 5), "caffè");
  EXPECT_EQ(ClipMiddle("èèèèèèèè", 5), "èè~èè");
  EXPECT_EQ(ClipMiddle("abcdefgh", 6), "ab~fgh");
}

TEST(LiveView, TimesThatDoNotAgreeAreExplainedBelowThem) {
  v1::Job job = JobOf(2);
  EXPECT_THAT(TaskTable(job, /*plain=*/false), Not(HasSubstr("whole model")));
  EXPECT_EQ(ModelTime(job), "4.938 ms (sum)");
  v1::CompareResult* result = job.mutable_comparison()->mutable_result();
  result->set_ns(1'500'000);
  EXPECT_EQ(ModelTime(job), "1.500 ms");
  const std::vector<std::string> lines = Lines(TaskTable(job, /*plain=*/false));
  EXPECT_EQ(lines.back(),
            "best: each kernel alone, with cold caches, in all 4.938 ms; the whole model took "
            "1.500 ms");
  EXPECT_THAT(TaskTable(job, /*plain=*/true), Not(HasSubstr("whole model")));
  job.mutable_comparison()->set_module_is_default(true);
  EXPECT_EQ(WhyTimesDiffer(job), "") << "the module has other kernels than the tasks' best";
}

TEST(LiveView, AModuleOfDefaultKernelsHasNoGain) {
  v1::Job job = JobOf(2);
  job.set_state(v1::JOB_DONE);
  for (v1::TaskStatus& task : *job.mutable_tasks()) {
    task.set_keeps_default(true);
    task.mutable_compared()->mutable_gain()->set_ratio(1.02);
  }
  v1::CompareResult& result = *job.mutable_comparison()->mutable_result();
  result.set_default_ns(1'500'000);
  result.set_ns(1'500'000);
  result.mutable_gain()->set_ratio(1);
  EXPECT_EQ(ModelGain(job),
            "model 1.500 ms with the default kernels; no tuned one was surely faster");
  for (const std::string& table : {TaskTable(job, true), LiveTaskTable(job, 80, 20)}) {
    EXPECT_THAT(table, HasSubstr("4.000 ms"));
    EXPECT_THAT(table, HasSubstr("1.00x"));
    EXPECT_THAT(table, Not(HasSubstr("1.235 ms"))) << "of no kernel of the module";
  }
  EXPECT_THAT(WhyTimesDiffer(job), HasSubstr("in all 16.000 ms"));
  // A gain that was measured has an interval, also if its median is 1.
  result.mutable_gain()->set_low(0.99);
  result.mutable_gain()->set_high(1.01);
  result.mutable_gain()->set_rounds(20);
  EXPECT_THAT(ModelGain(job), HasSubstr("1.00x (0.990 to 1.010, 20 rounds in turns)"));
}

TEST(LiveView, AReasonDoesNotRepeatTheState) {
  v1::Job job = JobOf(0);
  job.set_state(v1::JOB_DONE);
  job.set_reason("done");
  EXPECT_EQ(ReasonBeyondState(job), "");
  job.set_reason("done: reused 4 records");
  EXPECT_EQ(ReasonBeyondState(job), "reused 4 records");
  job.set_reason("profile x2");
  EXPECT_EQ(ReasonBeyondState(job), "profile x2");
}

TEST(LiveView, WhatRunsStandsFirstWithItsNumber) {
  v1::Job job = JobOf(40);
  job.mutable_tasks(37)->set_doing("build 3/16");
  job.mutable_tasks(37)->set_done(false);
  job.mutable_tasks(38)->set_doing("waiting for a device slot");
  job.mutable_tasks(38)->set_done(false);
  const std::vector<std::string> lines = Lines(LiveTaskTable(job, 80, 19));
  ASSERT_EQ(lines.size(), 19u);
  EXPECT_THAT(lines[1], StartsWith("38 "));
  EXPECT_THAT(lines[1], HasSubstr("build 3/16"));
  EXPECT_THAT(lines[2], StartsWith("39 "));
  EXPECT_EQ(lines.back(), ".. and 23 more tasks");
}

TEST(LiveView, ShowsTheSameNumbersAsTheFullTable) {
  v1::Job job = JobOf(3);
  job.mutable_tasks(0)->mutable_info()->set_weight(0);  // of another plan
  const std::vector<std::string> lines = Lines(TaskTable(job, /*plain=*/true));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[1], StartsWith("2\t"));
  EXPECT_THAT(lines[2], StartsWith("3\t"));
  EXPECT_THAT(lines[3], HasSubstr("1 task of other plans"));
}

TEST(LiveView, AJobThatNothingCanRunIsSaidToWait) {
  v1::Job job = JobOf(0);
  job.set_reason("no device with target llvm -mcpu=atom, 1 thread; nearest: worker w has ..");
  EXPECT_EQ(ShownState(job), "waiting");
  job.set_reason("import: no worker is registered at the tracker");
  job.set_state(v1::JOB_IMPORTING);
  EXPECT_EQ(ShownState(job), "waiting");
  job.set_reason("profile x2");
  EXPECT_EQ(ShownState(job), "importing");
  job.set_state(v1::JOB_FAILED);
  job.set_reason("no device with target llvm -mcpu=atom");
  EXPECT_EQ(ShownState(job), "failed");
}

}  // namespace
}  // namespace heddle::client
