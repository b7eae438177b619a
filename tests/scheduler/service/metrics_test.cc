// What the scheduler counts and logs, over real jobs of a cluster that only pretends.
#include "scheduler/service/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_split.h"
#include "base/daemon/log.h"
#include "scheduler/service/telemetry/call_metrics.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

class SchedulerMetricsTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    LogOptions options;
    options.format = "json";
    options.level = "debug";
    options.file = directory_ + "/log";
    ASSERT_TRUE(StartLog("heddle-scheduler", options).ok());
  }
  void TearDown() override {
    EXPECT_TRUE(StartLog("test", {}).ok());  // lets go of the file
    ServiceTest::TearDown();
  }

  // By name and labels as they stand in the text.
  std::map<std::string, double> Series() {
    std::map<std::string, double> series;
    const std::string text = loop_->metrics()->Text();
    for (const absl::string_view piece : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const std::string line(piece);
      if (line[0] == '#') continue;
      const size_t blank = line.rfind(' ');
      series[line.substr(0, blank)] = std::stod(line.substr(blank + 1));
    }
    return series;
  }
  // Waits for gauges, which are set once a second.
  void Await(const std::string& name, double value) {
    const absl::Time limit = absl::Now() + kServiceLimit;
    double last = -1;
    while (last != value && absl::Now() < limit) {
      const auto series = Series();
      last = series.contains(name) ? series.at(name) : -1;
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_EQ(last, value) << name;
  }
  std::vector<nlohmann::json> Logged(const std::string& message) const {
    std::ifstream file(directory_ + "/log");
    std::vector<nlohmann::json> lines;
    for (std::string text; std::getline(file, text);) {
      const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (line.is_discarded()) continue;  // it is being written
      if (line.at("message") == message) lines.push_back(line);
    }
    return lines;
  }
};

TEST_F(SchedulerMetricsTest, AJobIsCountedWhereItPasses) {
  v1::JobSpec spec = Spec();
  spec.set_name("secret-name");
  spec.set_user("ann");
  const std::string job = MustSubmit(spec);
  const v1::Job done = WaitFinal(job);
  ASSERT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  Await("heddle_jobs{state=\"tuning\"}", 0);
  Await("heddle_workers{pool=\"cpu\",state=\"free\"}", 1);
  Await("heddle_workers{pool=\"key\",state=\"free\"}", 1);
  Await("heddle_queue_depth{pool=\"cpu\"}", 0);
  auto series = Series();
  EXPECT_EQ(series["heddle_jobs_submitted_total"], 1);
  EXPECT_EQ(series["heddle_jobs_finished_total{state=\"done\"}"], 1);
  EXPECT_EQ(series["heddle_jobs_finished_total{state=\"failed\"}"], 0);
  EXPECT_EQ(series["heddle_trials_total{outcome=\"ok\"}"], done.trials());
  EXPECT_EQ(series["heddle_stages_total{result=\"ok\",stage=\"import\"}"], 1);
  EXPECT_EQ(series["heddle_stages_total{result=\"ok\",stage=\"propose\"}"], 4);
  EXPECT_EQ(series["heddle_stages_total{result=\"ok\",stage=\"compare\"}"], 1);
  EXPECT_EQ(series["heddle_stage_duration_seconds_count{stage=\"propose\"}"], 4);
  EXPECT_GT(series["heddle_stage_duration_seconds_sum{stage=\"profile\"}"], 0);
  EXPECT_GT(series["heddle_worker_busy_seconds_total{pool=\"key\"}"], 0);
  EXPECT_GT(series["heddle_worker_busy_seconds_total{pool=\"cpu\"}"], 0);
  EXPECT_GE(series["heddle_queue_wait_seconds_count{pool=\"key\"}"], 1);
  EXPECT_GE(series["heddle_db_commit_duration_seconds_count"], 1);
  EXPECT_GE(series["heddle_decision_duration_seconds_count"], done.trials());
  EXPECT_EQ(series["heddle_tracker_connected"], 1);
  const std::string text = loop_->metrics()->Text();
  for (const std::string& name : {job, spec.name(), spec.user()}) {
    EXPECT_EQ(text.find(absl::StrCat("\"", name, "\"")), std::string::npos)
        << "no label of a job or a user: " << name;
  }
}

TEST_F(SchedulerMetricsTest, TheBusyTimeIsThatOfTheStages) {
  const std::string job = MustSubmit(Spec());
  WaitFinal(job);
  auto series = Series();
  double stages = 0;
  for (const char* stage : {"profile", "compare"})
    stages += series[absl::StrCat("heddle_stage_duration_seconds_sum{stage=\"", stage, "\"}")];
  const double busy = series["heddle_worker_busy_seconds_total{pool=\"key\"}"];
  EXPECT_GT(busy, 0.9 * stages);  // it begins with the order, the stage with its lease
}

TEST_F(SchedulerMetricsTest, AFailedJobIsAWarningWithItsReason) {
  cluster_.behaviour.bad_model = true;
  const std::string job = MustSubmit(Spec());
  ASSERT_EQ(WaitFinal(job).state(), v1::JOB_FAILED);
  Await("heddle_jobs_finished_total{state=\"failed\"}", 1);
  EXPECT_GE(Series()["heddle_stages_total{result=\"user\",stage=\"import\"}"], 1);
  const auto failed = Logged("job failed");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].at("level"), "warning");
  EXPECT_EQ(failed[0].at("job"), job);
  EXPECT_FALSE(failed[0].at("reason").get<std::string>().empty());
  const auto stages = Logged("stage failed");
  ASSERT_GE(stages.size(), 1u);
  EXPECT_EQ(stages[0].at("level"), "warning");
  EXPECT_EQ(stages[0].at("job"), job);
  EXPECT_EQ(stages[0].at("stage"), "import");
  EXPECT_EQ(stages[0].at("worker"), "w1");
  EXPECT_EQ(stages[0].at("result"), "user");
}

TEST_F(SchedulerMetricsTest, EachStateOfAJobIsLoggedOnce) {
  const std::string job = MustSubmit(Spec());
  WaitFinal(job);
  std::vector<std::string> messages;
  std::ifstream file(directory_ + "/log");
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    const std::string message = line.at("message");
    if (message.starts_with("job ")) messages.push_back(message);
  }
  EXPECT_THAT(messages, ::testing::ElementsAre("job submitted", "job tuning", "job compiling",
                                               "job comparing", "job done"));
  const auto done = Logged("job done");
  EXPECT_EQ(done[0].at("trials"), 12);
  EXPECT_EQ(done[0].at("level"), "info");
  EXPECT_GE(Logged("stage ended").size(), 10u);
}

TEST_F(SchedulerMetricsTest, ACancelledStageIsNobodysFault) {
  cluster_.behaviour.candidate_ms = 300;
  const std::string job = MustSubmit(Spec(100));
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  Await("heddle_jobs{state=\"tuning\"}", 1);
  Await("heddle_workers{pool=\"key\",state=\"busy\"}", 1);
  v1::Job paused;
  ASSERT_TRUE(Act(&v1::JobService::Stub::PauseJob, job, &paused).ok());
  Await("heddle_jobs{state=\"paused\"}", 1);
  Await("heddle_jobs{state=\"tuning\"}", 0);
  v1::Job cancelled;
  ASSERT_TRUE(Act(&v1::JobService::Stub::CancelJob, job, &cancelled).ok());
  Await("heddle_jobs_finished_total{state=\"cancelled\"}", 1);
  Await("heddle_workers{pool=\"key\",state=\"free\"}", 1);
  EXPECT_EQ(Logged("stage failed").size(), 0u);
  ASSERT_EQ(Logged("job cancelled").size(), 1u);
  EXPECT_EQ(Logged("job cancelled")[0].at("reason"), "because");
}

TEST_F(SchedulerMetricsTest, WhatWaitsForASlotIsSeen) {
  Await("heddle_tracker_connected", 1);
  EXPECT_TRUE(loop_->Ready().ok()) << loop_->Ready();
  v1::ListWorkersResponse workers = cluster_.DefaultWorkers();
  workers.mutable_workers(0)->mutable_slots(1)->set_state(v1::SLOT_QUARANTINED);
  cluster_.tracker.SetWorkers(workers);
  Await("heddle_workers{pool=\"key\",state=\"unusable\"}", 1);
  MustSubmit(Spec());
  Await("heddle_queue_depth{pool=\"key\"}", 2);  // a profile stage for each task
  const absl::Time limit = absl::Now() + kServiceLimit;
  while (Series()["heddle_queue_oldest_seconds{pool=\"key\"}"] < 1 && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(50));
  EXPECT_GE(Series()["heddle_queue_oldest_seconds{pool=\"key\"}"], 1);
  EXPECT_TRUE(loop_->Live().ok()) << loop_->Live();
}

// So that workers can be started for it, before the first one is there.
TEST_F(SchedulerMetricsTest, WhatWaitsForADeviceThatNoWorkerHasIsSeen) {
  v1::JobSpec spec = Spec();
  spec.set_device_key("of no worker");
  MustSubmit(spec);
  Await("heddle_queue_depth{pool=\"of no worker\"}",
        1);  // the job itself, since nothing of it is begun
  EXPECT_FALSE(Series().contains("heddle_queue_depth{pool=\"other\"}"));
  spec.clear_device_key();
  spec.set_target("cuda -arch=sm_90");
  MustSubmit(spec);
  Await("heddle_queue_depth{pool=\"any-cuda\"}", 1);
  EXPECT_FALSE(Series().contains("heddle_queue_depth{pool=\"any\"}"));
  // It comes.
  v1::ListWorkersResponse workers = cluster_.DefaultWorkers();
  workers.mutable_workers(0)->mutable_slots(1)->mutable_slot()->set_device_key("of no worker");
  cluster_.tracker.SetWorkers(workers);
  Await("heddle_queue_depth{pool=\"of no worker\"}", 0);
  Await("heddle_jobs_finished_total{state=\"done\"}", 1);
}

TEST_F(SchedulerMetricsTest, AfterARestartUnfinishedJobsAreCountedOnce) {
  cluster_.behaviour.candidate_ms = 100;
  const std::string job = MustSubmit(Spec(8));
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  Stop();
  Start();
  Await("heddle_jobs{state=\"tuning\"}", 1);
  EXPECT_EQ(Series()["heddle_jobs_submitted_total"], 0);
  cluster_.behaviour.candidate_ms = 1;
  WaitFinal(job);
  Await("heddle_jobs_finished_total{state=\"done\"}", 1);
  Await("heddle_jobs{state=\"tuning\"}", 0);
  EXPECT_EQ(Logged("the unfinished jobs go on").size(), 1u);
}

TEST_F(SchedulerMetricsTest, WhatIsReadForEachScrape) {
  int64_t lost = 0;
  absl::Status problem;
  AddServiceMetrics({.database = directory_ + "/heddle.db",
                     .blobs = blobs_.get(),
                     .leases = [this] { return loop_->leases(); },
                     .lost_audit_lines = [&] { return lost; },
                     .store_problem = [&] { return problem; }},
                    loop_->metrics());
  const std::string job = MustSubmit(Spec(), std::string(5000, 'm'));
  WaitFinal(job);
  auto series = Series();
  EXPECT_GE(series["heddle_lease_requests_total{result=\"granted\"}"], 5);
  EXPECT_EQ(series["heddle_leases_lost_total"], 0);
  EXPECT_GT(series["heddle_store_bytes{what=\"database\"}"], 4096);
  EXPECT_GE(series["heddle_store_bytes{what=\"blobs\"}"], 5000);
  EXPECT_GT(series["heddle_disk_free_bytes"], 0);
  EXPECT_EQ(series["heddle_store_writable"], 1);
  EXPECT_EQ(series["heddle_audit_lost_lines_total"], 0);
  lost = 3;
  problem = absl::ResourceExhaustedError("full");
  series = Series();
  EXPECT_EQ(series["heddle_store_writable"], 0);
  EXPECT_EQ(series["heddle_audit_lost_lines_total"], 3);
}

// What refused calls are counted as is in the dashboard and in docs/operating.md.
TEST(RefusedCallsTest, EachReasonHasItsSeries) {
  Metrics metrics("heddle-test");
  const RefusedCalls refused(&metrics);
  refused.Count(CallLimits::Refusal::kCallerFull);
  refused.Count(CallLimits::Refusal::kServiceFull);
  refused.Count(CallLimits::Refusal::kSlowPeer);
  refused.Count(absl::UnauthenticatedError("who?"));
  refused.Count(absl::PermissionDeniedError("no"));
  const std::string text = metrics.Text();
  for (const char* reason :
       {"caller_limit", "service_limit", "slow_peer", "unauthenticated", "permission_denied"})
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat("heddle_calls_refused_total{reason=\"", reason, "\"} 1\n")));
}

}  // namespace
}  // namespace heddle::scheduler
