#include "scheduler/whatif/simulate_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "scheduler/core/duration_model.h"
#include "scheduler/core/policy.h"
#include "scheduler/sim/world/world.h"
#include "scheduler/whatif/queue_scenario.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'800'000'000 * kSecond;
constexpr char kTarget[] = "llvm -mcpu=x";

void AddSlot(v1::WorkerStatus* worker, const std::string& name, bool device,
             v1::SlotState state = v1::SLOT_FREE) {
  v1::SlotStatus& status = *worker->add_slots();
  status.set_state(state);
  v1::Slot& slot = *status.mutable_slot();
  slot.set_name(name);
  slot.set_kind(device ? v1::SLOT_DEVICE : v1::SLOT_CPU);
  slot.add_cores(worker->slots_size());
  if (!device) return;
  slot.set_device_key("board");
  slot.set_target(kTarget);
}

// One worker with so many slots of each kind.
v1::ListWorkersResponse Machines(int cpus, int devices) {
  v1::ListWorkersResponse machines;
  v1::WorkerStatus& worker = *machines.add_workers();
  worker.set_worker("w1");
  worker.set_host("h1");
  for (int i = 0; i < cpus; ++i) AddSlot(&worker, absl::StrCat("cpu", i), false);
  for (int i = 0; i < devices; ++i) AddSlot(&worker, absl::StrCat("profile", i), true);
  return machines;
}

std::shared_ptr<v1::Job> MakeJob(int id, int tasks, int budget, int made = 0) {
  auto job = std::make_shared<v1::Job>();
  job->set_id(absl::StrCat("j", id));
  job->mutable_spec()->set_name("model");
  job->mutable_spec()->set_target(kTarget);
  job->mutable_spec()->set_user("ann");
  job->mutable_spec()->set_batch(8);
  job->mutable_spec()->set_no_comparison(true);
  job->set_state(v1::JOB_TUNING);
  job->set_trials(made * tasks);
  job->set_trials_budget(budget * tasks);
  for (int i = 0; i < tasks; ++i) {
    v1::TaskStatus& task = *job->add_tasks();
    task.mutable_info()->set_key(absl::StrCat("key", id, "-", i));
    task.mutable_info()->set_weight(1);
    task.set_trials(made);
    task.set_budget(budget);
  }
  return job;
}

// Every stage of a candidate takes so many seconds; the others a hundredth.
WhatIfQuestion Question(std::vector<std::shared_ptr<const v1::Job>> jobs, int cpus, int devices,
                        double build_s, double trial_s) {
  WhatIfQuestion question;
  question.unfinished = std::move(jobs);
  question.machines = Machines(cpus, devices);
  question.policy = kDefaultPolicy;
  question.now_unix_ns = kNow;
  v1::Record& record = question.records.emplace_back();
  record.set_job("j1");
  record.set_workload_key("key1-0");
  record.mutable_measurement()->set_build_ns(static_cast<int64_t>(build_s * 1e9));
  record.mutable_measurement()->set_profile_ns(static_cast<int64_t>(trial_s * 1e9));
  for (const v1::StageKind kind : {v1::STAGE_PROPOSE, v1::STAGE_UPDATE, v1::STAGE_COMPILE}) {
    v1::StageSpan& span = question.stages.emplace_back();
    span.set_job("j1");
    span.set_kind(kind);
    if (kind != v1::STAGE_COMPILE) span.set_task("key1-0");
    span.set_start_unix_ns(kNow - kSecond);
    span.set_end_unix_ns(kNow - kSecond + kSecond / 100);
  }
  return question;
}

const views::WhatIf::World& WorldOf(const views::WhatIf& answer, const std::string& name) {
  for (const views::WhatIf::World& world : answer.worlds) {
    if (world.name == name) return world;
  }
  ADD_FAILURE() << "no world " << name;
  return answer.worlds.front();
}

absl::StatusOr<views::WhatIf> Simulate(const WhatIfQuestion& question) {
  return SimulateQueue(question, [] { return true; });
}

TEST(SimulateQueue, AnotherDeviceHelpsWhereDevicesAreShort) {
  const auto answer = Simulate(
      Question({MakeJob(1, 4, 32), MakeJob(2, 4, 32)}, /*cpus=*/2, /*devices=*/1, 0.01, 1));
  ASSERT_TRUE(answer.ok()) << answer.status();
  const double now = WorldOf(*answer, "as it is").all_s;
  EXPECT_NEAR(now, 2 * 4 * 32 * 1.0, 0.1 * now)
      << "256 trials of a second each, one after the other";
  EXPECT_LT(WorldOf(*answer, "one more device slot, board").all_s, 0.6 * now);
  EXPECT_GT(WorldOf(*answer, "one more CPU slot").all_s, 0.9 * now);
  EXPECT_THAT(answer->worlds, SizeIs(3 + PolicyNames().size() - 1));
  EXPECT_THAT(answer->jobs, SizeIs(2));
  EXPECT_THAT(answer->jobs[0].end_s, SizeIs(answer->worlds.size()));
}

TEST(SimulateQueue, AnotherCpuHelpsWhereBuildsAreLong) {
  const auto answer = Simulate(
      Question({MakeJob(1, 4, 32), MakeJob(2, 4, 32)}, /*cpus=*/1, /*devices=*/2, 1, 0.01));
  ASSERT_TRUE(answer.ok()) << answer.status();
  const double now = WorldOf(*answer, "as it is").all_s;
  EXPECT_LT(WorldOf(*answer, "one more CPU slot").all_s, 0.6 * now);
  EXPECT_GT(WorldOf(*answer, "one more device slot, board").all_s, 0.9 * now);
}

TEST(SimulateQueue, TheFiguresAreThoseOfTheSimulator) {
  const WhatIfQuestion question = Question({MakeJob(1, 3, 24), MakeJob(2, 1, 100)}, 2, 1, 0.1, 0.2);
  const auto answer = Simulate(question);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto queue = ScenarioOf(question);
  ASSERT_TRUE(queue.ok());
  for (const std::string& policy : PolicyNames()) {
    const auto result = sim::RunWorld(queue->scenario, policy, {});
    ASSERT_TRUE(result.ok()) << result.status();
    const views::WhatIf::World& world =
        WorldOf(*answer, policy == kDefaultPolicy ? "as it is" : "policy " + policy);
    EXPECT_EQ(world.all_s, std::max(result->jobs[0].end, result->jobs[1].end));
    EXPECT_DOUBLE_EQ(world.mean_s, (result->jobs[0].end + result->jobs[1].end) / 2);
  }
}

TEST(ScenarioOf, WhatIsDoneIsNotDoneAgain) {
  auto half = MakeJob(1, 2, 32, /*made=*/20);
  half->mutable_tasks(1)->set_done(true);
  half->set_trials_budget(20 + 32);  // of the second task, 20 were made and no more are granted
  auto granted_later = MakeJob(2, 2, 8, /*made=*/8);
  granted_later->set_trials_budget(16 + 5);
  auto compiling = MakeJob(3, 1, 32, 32);
  compiling->set_state(v1::JOB_COMPILING);
  const auto queue = ScenarioOf(Question({half, granted_later, compiling}, 1, 1, 0.25, 0.5));
  ASSERT_TRUE(queue.ok()) << queue.status();
  const std::vector<sim::SimJob>& jobs = queue->scenario.jobs;
  ASSERT_THAT(jobs, SizeIs(3));
  ASSERT_THAT(jobs[0].tasks, SizeIs(1));
  EXPECT_EQ(jobs[0].tasks[0].candidates, 12);
  EXPECT_DOUBLE_EQ(jobs[0].tasks[0].times[v1::STAGE_BUILD].seconds.Mean(), 0.25);
  EXPECT_DOUBLE_EQ(jobs[0].tasks[0].times[v1::STAGE_PROFILE].seconds.Mean(), 0.5);
  EXPECT_TRUE(jobs[0].tasks[0].times[v1::STAGE_PROFILE].per_candidate);
  EXPECT_NEAR(jobs[0].tasks[0].times[v1::STAGE_UPDATE].seconds.Mean(), 0.01, 1e-6);
  ASSERT_THAT(jobs[1].tasks, SizeIs(2));
  EXPECT_EQ(jobs[1].tasks[0].candidates, 3);
  EXPECT_EQ(jobs[1].tasks[1].candidates, 2);
  ASSERT_THAT(jobs[2].tasks, SizeIs(1));
  EXPECT_EQ(jobs[2].tasks[0].times[v1::STAGE_BUILD].seconds.Mean(), 0) << "it only compiles";
  EXPECT_NEAR(jobs[2].times[v1::STAGE_COMPILE].seconds.Mean(), 0.01, 1e-6);
}

TEST(ScenarioOf, ProfileStagesTellTheTimeOfTrialsOnlyWithoutRecords) {
  WhatIfQuestion question = Question({MakeJob(1, 1, 8)}, 1, 1, 0.25, 0.5);
  v1::StageSpan& span = question.stages.emplace_back();
  span.set_job("j1");
  span.set_task("key1-0");
  span.set_kind(v1::STAGE_PROFILE);
  span.set_candidates(4);
  span.set_start_unix_ns(kNow - 40 * kSecond);
  span.set_end_unix_ns(kNow);
  const auto trial_s = [&] {
    return ScenarioOf(question)->scenario.jobs[0].tasks[0].times[v1::STAGE_PROFILE].seconds.Mean();
  };
  EXPECT_DOUBLE_EQ(trial_s(), 0.5) << "the stage also waited for builds";
  question.records.clear();
  EXPECT_DOUBLE_EQ(trial_s(), 10);
  span.mutable_fault()->set_message("lost");
  EXPECT_DOUBLE_EQ(trial_s(), absl::ToDoubleSeconds(DurationModel::Prior(v1::STAGE_PROFILE)));
}

TEST(ScenarioOf, SaysWhatIsLeftOut) {
  auto paused = MakeJob(2, 1, 8), importing = MakeJob(3, 0, 8), elsewhere = MakeJob(4, 1, 8),
       odd = MakeJob(5, 1, 8);
  paused->set_state(v1::JOB_PAUSED);
  importing->set_state(v1::JOB_IMPORTING);
  elsewhere->mutable_spec()->set_device_key("no such board");
  odd->mutable_spec()->set_target("no target");
  const auto queue =
      ScenarioOf(Question({MakeJob(1, 1, 8), paused, importing, elsewhere, odd}, 1, 1, 0.1, 0.1));
  ASSERT_TRUE(queue.ok()) << queue.status();
  EXPECT_THAT(queue->jobs, SizeIs(1));
  EXPECT_THAT(queue->left_out, ElementsAre("1 not imported yet, so their tasks are not known",
                                           "1 paused", "2 that no usable slot suits"));
  EXPECT_THAT(Simulate(Question({paused}, 1, 1, 1, 1)).status().message(),
              HasSubstr("no job is there that could go on"));
  EXPECT_THAT(Simulate(Question({MakeJob(1, 1, 8)}, 0, 0, 1, 1)).status().message(),
              HasSubstr("no slot is usable now"));
  WhatIfQuestion broken = Question({MakeJob(1, 1, 8)}, 1, 1, 1, 1);
  for (v1::SlotStatus& slot : *broken.machines.mutable_workers(0)->mutable_slots())
    slot.set_state(v1::SLOT_QUARANTINED);
  EXPECT_FALSE(Simulate(broken).ok());
}

// A long queue is simulated by fewer trials that take as long in all.
TEST(SimulateQueue, ALongQueueStaysCheap) {
  std::vector<std::shared_ptr<const v1::Job>> jobs;
  for (int i = 1; i <= 130; ++i) jobs.push_back(MakeJob(i, 10, 128));
  const WhatIfQuestion question = Question(std::move(jobs), 8, 4, 0.2, 0.5);
  const auto queue = ScenarioOf(question);
  ASSERT_TRUE(queue.ok());
  EXPECT_THAT(queue->jobs, SizeIs(kMostSimulatedJobs));
  EXPECT_THAT(queue->left_out, ElementsAre("30 that came later"));
  EXPECT_EQ(queue->trials_as_one, 32);
  int64_t trials = 0;
  double device_s = 0;
  for (const sim::SimJob& job : queue->scenario.jobs) {
    for (const sim::SimTask& task : job.tasks) {
      trials += task.candidates;
      device_s += task.candidates * task.times[v1::STAGE_PROFILE].seconds.Mean();
    }
  }
  EXPECT_LE(trials, kMostSimulatedTrials);
  EXPECT_NEAR(device_s, 100 * 10 * 128 * 0.5, 1);
  const absl::Time begin = absl::Now();
  const auto answer = Simulate(question);
  const absl::Duration took = absl::Now() - begin;
  ASSERT_TRUE(answer.ok()) << answer.status();
  std::printf("100 jobs of 128,000 trials: %zu worlds in %s\n", answer->worlds.size(),
              absl::FormatDuration(took).c_str());
  EXPECT_NEAR(WorldOf(*answer, "as it is").all_s, device_s / 4, 0.15 * device_s / 4);
  EXPECT_NEAR(WorldOf(*answer, "one more device slot, board").all_s, device_s / 5,
              0.15 * device_s / 5);
}

TEST(SimulateQueue, EndsWithTheScheduler) {
  int asked = 0;
  const auto answer =
      SimulateQueue(Question({MakeJob(1, 1, 8)}, 1, 1, 1, 1), [&asked] { return ++asked < 2; });
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace heddle::scheduler
