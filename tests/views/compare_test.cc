#include "views/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/views/well_formed.h"

namespace heddle::views {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::Job MakeComparedJob(const std::string& id, int tasks) {
  v1::Job job;
  job.set_id(id);
  job.mutable_spec()->set_name(kHostile);
  job.mutable_spec()->set_target("llvm -mcpu=x");
  for (int i = 0; i < tasks; ++i) {
    v1::TaskStatus& task = *job.add_tasks();
    task.mutable_info()->set_key(absl::StrCat("k", 1000 + i));
    task.mutable_info()->set_label(absl::StrCat(kHostile, " task", i));
    task.mutable_info()->set_weight(1);
    task.set_best_ns(1000.0 + i);
    task.set_trials(i);
  }
  return job;
}

TEST(CompareJobs, PairsTasksByKey) {
  v1::Job a = MakeComparedJob("j1", 3), b = MakeComparedJob("j2", 3);
  b.mutable_tasks(1)->mutable_info()->set_key("other");
  b.mutable_tasks(2)->set_best_ns(501);
  b.mutable_tasks(2)->mutable_info()->set_weight(100);
  a.mutable_tasks(0)->mutable_info()->set_weight(0);  // of another plan
  const std::vector<ComparedTask> tasks = TasksOf(a, b);
  ASSERT_THAT(tasks, SizeIs(4));
  EXPECT_EQ(tasks[0].key, "k1002") << "it costs most in the second model";
  EXPECT_DOUBLE_EQ(tasks[0].Ratio(), 1002.0 / 501);
  std::map<std::string, ComparedTask> by_key;
  for (const ComparedTask& task : tasks) by_key[task.key] = task;
  EXPECT_EQ(by_key["k1001"].b.weight, 0) << "only the first job has it";
  EXPECT_EQ(by_key["k1001"].a.weight, 1);
  EXPECT_EQ(by_key["other"].a.weight, 0);
  EXPECT_EQ(by_key["k1000"].Ratio(), 0);
}

TEST(CompareJobs, RowsArePagedByKey) {
  const v1::Job a = MakeComparedJob("j1", 250), b = MakeComparedJob("j2", 250);
  const std::vector<ComparedTask> tasks = TasksOf(a, b);
  std::set<std::string> seen;
  std::string after;
  int pages = 0;
  while (pages++ < 10) {
    Part part;
    for (const ComparedTask& task : RowsAfter(tasks, after, "/compare?x", &part)) {
      EXPECT_TRUE(seen.insert(task.key).second) << task.key;
      after = task.key;
    }
    EXPECT_EQ(part.all, 250);
    if (part.next.empty()) break;
    EXPECT_EQ(part.next, absl::StrCat("/compare?x&after=", after));
  }
  EXPECT_EQ(pages, 3);
  EXPECT_THAT(seen, SizeIs(250));
  Part part;
  EXPECT_THAT(RowsAfter(tasks, "gone", "", &part), SizeIs(kMostCompareRows));
}

TEST(CompareJobs, TellsOptionsThatDiffer) {
  v1::JobSpec a = MakeComparedJob("j1", 0).spec(), b = a;
  EXPECT_THAT(DifferentOptions(a, b), IsEmpty());
  a.set_trials_per_task(64);
  b.set_trials_per_task(128);
  b.set_no_transfer(true);
  b.set_strategy("random");
  const std::vector<DifferentOption> found = DifferentOptions(a, b);
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[0].name, "trials_per_task");
  EXPECT_EQ(found[0].a, "64");
  EXPECT_EQ(found[0].b, "128");
  EXPECT_EQ(found[1].name, "strategy");
  EXPECT_EQ(found[1].a, "-");
  EXPECT_EQ(found[1].b, "random");
  EXPECT_EQ(found[2].name, "no_transfer");
}

TEST(CompareJobs, ThePageIsSoundAndSaysWhatIsLeftOut) {
  JobComparison comparison;
  comparison.a = MakeComparedJob("j1", 250);
  comparison.b = MakeComparedJob("j2", 249);
  comparison.b.mutable_spec()->set_strategy(kHostile);
  comparison.tasks =
      RowsAfter(TasksOf(comparison.a, comparison.b), "", "/compare?a=j1&b=j2", &comparison.part);
  const std::string page = CompareJobsPage(comparison).markup;
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page, AllOf(HasSubstr("showing 100 of 250 tasks"), Not(HasSubstr("<script")),
                          HasSubstr("/compare?a=j1&amp;b=j2&amp;after=k"),
                          HasSubstr("no such task"), HasSubstr("<th scope=\"row\">strategy</th>")));
  EXPECT_LT(page.size(), 150'000u);
  EXPECT_EQ(Malformed(CompareJobsPage({}).markup), "");
  CompareChoice choice;
  choice.a = kHostile;
  choice.devices = {kHostile};
  choice.of_same_model = {std::make_shared<const v1::Job>(comparison.a)};
  EXPECT_EQ(Malformed(ChooseComparisonPage(choice).markup), "");
  EXPECT_THAT(ChooseComparisonPage(choice).markup, Not(HasSubstr("<script")));
}

TEST(CompareDevices, TheLargestGainComesFirst) {
  DeviceComparison comparison;
  comparison.a = kHostile;
  comparison.b = "new device";
  std::vector<ComparedTask> tasks(3);
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].key = absl::StrCat("k", i);
    tasks[i].a = {.ns = 1000, .target = kHostile};
    tasks[i].b = {.ns = i == 1 ? 250.0 : 2000.0, .target = "t"};
  }
  SortByRatio(&tasks);
  EXPECT_EQ(tasks[0].key, "k1");
  EXPECT_EQ(tasks[1].key, "k0") << "equal ratios stand by key";
  comparison.tasks = RowsAfter(tasks, "", "", &comparison.part);
  comparison.b_faster = 1;
  comparison.a_faster = 2;
  comparison.mean_ratio = 1;
  const std::string page = CompareDevicesPage(comparison).markup;
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page, AllOf(HasSubstr("new device is faster in 1 of them"), HasSubstr(">4.00x<"),
                          Not(HasSubstr("<script"))));
  EXPECT_EQ(Malformed(CompareDevicesPage({}).markup), "");
}

TEST(CompareDevices, WhatIsUnknownOrCutIsSaid) {
  DeviceComparison comparison;
  comparison.a = "here";
  comparison.b = kHostile;
  comparison.devices = {"here", "there"};
  comparison.unknown = {kHostile};
  comparison.looked_at = 10'000;
  const std::string page = CompareDevicesPage(comparison).markup;
  EXPECT_EQ(Malformed(page), "");
  EXPECT_THAT(page,
              AllOf(HasSubstr("No machine that measures now has the device key"),
                    HasSubstr("there are: here, there."), HasSubstr("Only the first 10000 tasks"),
                    HasSubstr("<option value=\"there\">"), Not(HasSubstr("<script"))));
  comparison.unknown.clear();
  comparison.looked_at = 0;
  EXPECT_THAT(CompareDevicesPage(comparison).markup,
              AllOf(Not(HasSubstr("No machine")), Not(HasSubstr("Only the first"))));
}

}  // namespace
}  // namespace heddle::views
