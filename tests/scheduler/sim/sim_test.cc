// heddle-sim: scenarios, figures, charts; the thesis' set-ups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "scheduler/sim/plot.h"
#include "scheduler/sim/recorded.h"
#include "scheduler/sim/report.h"
#include "scheduler/sim/thesis.h"
#include "tests/places.h"

namespace heddle::sim {
namespace {

using ::testing::HasSubstr;

const char* const kScenarios = HEDDLE_SOURCE_DIR "/scheduler/sim/scenarios";

std::string Error(const std::string& text) {
  const absl::StatusOr<Scenario> scenario = ParseScenario(text, "x.json", kScenarios);
  return scenario.ok() ? "" : std::string(scenario.status().message());
}

TEST(ScenarioTest, EveryShippedOneRuns) {
  for (const auto& entry : std::filesystem::directory_iterator(kScenarios)) {
    const absl::StatusOr<Scenario> scenario = ReadScenario(entry.path().string());
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    Scenario small = *scenario;
    for (SimJob& job : small.jobs) job.trials = std::min(job.trials, 2 * job.batch);
    WorldOptions options;
    options.durable = small.NeedsStore();
    const absl::StatusOr<WorldResult> result = RunWorld(small, small.policy, options);
    ASSERT_TRUE(result.ok()) << entry.path() << ": " << result.status();
    for (const JobOutcome& job : result->jobs) EXPECT_GE(job.end, 0) << entry.path();
  }
}

TEST(ScenarioTest, ErrorsNameFileFieldAndWayOut) {
  const std::string workers = R"("workers": [{"cpu_slots": 1, "device_slots": 1}])";
  EXPECT_THAT(Error("{"), HasSubstr("x.json: not JSON"));
  EXPECT_THAT(Error("{}"), HasSubstr("x.json: workers: must be a list"));
  EXPECT_THAT(Error(absl::StrCat("{", workers, R"(, "jobs": [{"trails": 3}]})")),
              HasSubstr("jobs[0].trails: no such field; there are"));
  EXPECT_THAT(Error(absl::StrCat("{", workers, R"(, "jobs": [{"trials": 0}]})")),
              HasSubstr("jobs[0].trials: is 0; it must be a number in 1..100000"));
  EXPECT_THAT(Error(absl::StrCat("{", workers, R"(, "jobs": [{"times": {"build": "fast"}}]})")),
              HasSubstr("jobs[0].times.build: must be a number of seconds"));
  EXPECT_THAT(
      Error(absl::StrCat("{", workers, R"(, "jobs": [{}], "faults": {"chaos": {"meteor": 1}}})")),
      HasSubstr("faults.chaos.meteor: no such field; there are cancel"));
  EXPECT_THAT(
      Error(absl::StrCat("{", workers, R"(, "jobs": [{}], "faults": {"take_over": [3, 1]}})")),
      HasSubstr("faults.take_over: must be [low, high], seconds"));
  EXPECT_THAT(Error(R"({"workers": [{}], "jobs": [{}]})"), HasSubstr("workers[0]: offers nothing"));
  EXPECT_THAT(Error(R"({"base": "nowhere.json"})"), HasSubstr("base: cannot read"));
  EXPECT_EQ(RunWorld({}, "lottery", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DistributionTest, MeansAreTheOnesAskedFor) {
  for (const Distribution& distribution :
       {Distribution{Distribution::kConstant, 3, 0, {}},
        Distribution{Distribution::kUniform, 2, 4, {}},
        Distribution{Distribution::kLognormal, 3, 0.5, {}},
        Distribution{Distribution::kRecorded, 0, 0, {1, 2, 6}}}) {
    double sum = 0;
    constexpr int kDraws = 30'000;
    for (uint64_t i = 0; i < kDraws; ++i) sum += distribution.Draw(7, i) / kDraws;
    EXPECT_NEAR(sum, 3, 0.03) << distribution.kind;
    EXPECT_DOUBLE_EQ(distribution.Mean(), 3);
  }
}

// What is known without a simulation: one job, strict order, constant times.
TEST(WorldTest, OneJobTakesTheSumOfItsStages) {
  const absl::StatusOr<Scenario> scenario = ParseScenario(
      R"({"workers": [{"cpu_slots": 1, "device_slots": 1}],
          "times": {"import": 5, "propose": 2, "build": 3, "profile": 7, "update": 4, "compile": 6},
          "jobs": [{"tasks": 2, "trials": 32, "batch": 16, "pipeline_depth": 1, "allocation": "uniform"}]})",
      "x.json", "");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  WorldOptions options;
  options.spans = options.waiting = true;
  const absl::StatusOr<WorldResult> result = RunWorld(*scenario, "round_robin", options);
  ASSERT_TRUE(result.ok()) << result.status();
  // Each task has two rounds, and no update after its last.
  EXPECT_NEAR(result->seconds, 5 + 2 * (2 * (2 + 3 + 7) + 4) + 6, 1e-3);
  EXPECT_NEAR(result->busy[1], 4 * 7, 1e-3);
  EXPECT_EQ(result->trials, 64);
  EXPECT_EQ(result->stages.size(), 2u + 2 * (3 * 2 + 1));
}

// Two jobs that overlap fully, each wanting the whole machine, take twice as long each.
TEST(WorldTest, UncoordinatedJobsStretchAndDisturbEachOther) {
  const absl::StatusOr<Scenario> scenario = ParseScenario(
      R"({"workers": [{"cpu_slots": 1, "device_slots": 1}],
          "times": {"import": 0, "propose": 0, "build": 0, "profile": 10, "update": 0, "compile": 0},
          "jobs": [{"count": 2, "tasks": 1, "trials": 16, "batch": 16}]})",
      "x.json", "");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const absl::StatusOr<WorldResult> result = RunWorld(*scenario, "uncoordinated", {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->seconds, 20, 0.01);
  EXPECT_NEAR(result->busy[1], 20, 0.01);  // never over what there is
  EXPECT_EQ(result->disturbed, result->measurements);
  EXPECT_EQ(RunWorld(*scenario, "round_robin", {})->disturbed, 0);
}

TEST(WorldTest, PoliciesMeetTheSameDurations) {
  const absl::StatusOr<Scenario> scenario =
      ReadScenario(absl::StrCat(kScenarios, "/mix_cpu_and_device.json"));
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  double work[2] = {0, 0};
  for (const char* policy : {"round_robin", "uncoordinated"}) {
    const absl::StatusOr<WorldResult> result = RunWorld(*scenario, policy, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->trials, 6 * 8 * 96);
    for (size_t i = 0; i < scenario->slots.size(); ++i) work[policy[0] == 'u'] += result->busy[i];
  }
  EXPECT_GT(work[0], work[1] * 0.98);  // sharing hides some seconds, it does not make any
}

TEST(WorldTest, PoliciesMeetTheSameChaos) {
  absl::StatusOr<Scenario> scenario = ReadScenario(absl::StrCat(kScenarios, "/faults.json"));
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  scenario->faults.chaos = {{"restart", 1}, {"tracker_down", 1}, {"kill_worker", 1}};
  WorldOptions options;
  options.durable = true;
  for (scenario->seed = 1; scenario->seed <= 3; ++scenario->seed) {
    const int64_t restarts = RunWorld(*scenario, "round_robin", options)->restarts;
    EXPECT_GT(restarts, 3);
    EXPECT_EQ(RunWorld(*scenario, "predictive", options)->restarts, restarts);
  }
}

// Every second without a scheduler is one in which nothing happens.
TEST(WorldTest, FailOversTakeAsLongAsTheScenarioSays) {
  absl::StatusOr<Scenario> scenario = ReadScenario(absl::StrCat(kScenarios, "/faults.json"));
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  scenario->faults = {};
  scenario->faults.until = 600;
  scenario->faults.every = {20, 20};
  scenario->faults.chaos = {{"fail_over", 1}};
  WorldOptions options;
  options.durable = options.checks = true;
  double seconds[2] = {0, 0};
  for (const double gap : {0.5, 15.0}) {
    scenario->faults.take_over = {gap, gap};
    const absl::StatusOr<WorldResult> result = RunWorld(*scenario, "round_robin", options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->violation, "");
    EXPECT_GT(result->fail_overs, 10);
    EXPECT_EQ(result->done_jobs, static_cast<int64_t>(scenario->jobs.size()));
    seconds[gap > 1] = result->seconds;
  }
  EXPECT_GT(seconds[1], seconds[0] + 60);
}

TEST(ReportTest, FairnessIsJainsIndex) {
  Scenario scenario;
  scenario.jobs.resize(4);
  WorldResult result;
  result.seconds = 10;
  result.jobs = {
      {0, 10, true, 0, 4}, {0, 10, true, 0, 4}, {0, 10, true, 0, 4}, {0, 10, true, 0, 4}};
  EXPECT_DOUBLE_EQ(MakeReport(scenario, "p", result).fairness, 1);
  for (int i : {1, 2, 3}) result.jobs[static_cast<size_t>(i)].service = 0;
  EXPECT_DOUBLE_EQ(MakeReport(scenario, "p", result).fairness, 0.25);
  EXPECT_DOUBLE_EQ(MakeReport(scenario, "p", result).mean_completion, 10);
}

TEST(PlotTest, DrawsEveryRowAndIsWellFormed) {
  const absl::StatusOr<Scenario> scenario =
      ReadScenario(absl::StrCat(kScenarios, "/mix_single_machine.json"));
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  WorldOptions options;
  options.spans = true;
  const absl::StatusOr<WorldResult> result = RunWorld(*scenario, "round_robin", options);
  ASSERT_TRUE(result.ok()) << result.status();
  const std::string svg = Plot(*scenario, {{"a < b & c", &*result}}, {});
  for (const SimSlot& slot : scenario->slots)
    EXPECT_THAT(svg, HasSubstr(absl::StrCat(slot.info.id.worker, "/", slot.info.id.slot)));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_LT(svg.size(), 4u << 20);
}

TEST(RecordedTest, ErrorsNameTheFile) {
  EXPECT_EQ(ReadRecorded("/nowhere.json").status().code(), absl::StatusCode::kNotFound);
  const std::string path = ::testing::TempDir() + "/trace.json";
  std::ofstream(path) << R"({"jobs": [{}], "workers": []})";
  EXPECT_THAT(std::string(ReadRecorded(path).status().message()), HasSubstr("'id'"));
}

// mlp and dqn, submitted together to heddle-scheduler --embedded with --trials 9 --batch 3.
TEST(RecordedTest, TheReplayTakesAsLongAsTheRunDid) {
  const absl::StatusOr<Recorded> recorded =
      ReadRecorded(HEDDLE_SOURCE_DIR "/tests/scheduler/sim/mlp_and_dqn.json");
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  EXPECT_FALSE(recorded->truncated);
  const absl::StatusOr<WorldResult> result = RunWorld(recorded->scenario, "round_robin", {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->done_jobs, 2);
  EXPECT_EQ(result->trials, 90);
  EXPECT_NEAR(result->seconds / recorded->makespan, 1, 0.1);
}

TEST(RecordedTest, WaitingForBuildsIsNotMeasuring) {
  // The first round's measurements wait for its builds; the second's do not, and show that each
  // takes 0.1 s besides what the record says.
  const std::string path = ::testing::TempDir() + "/waits.json";
  std::ofstream(path) << R"({
    "workers": [{"worker": "w", "slots": [{"slot": {"name": "c", "kind": "cpu"}}, {"slot": {"name": "d", "kind": "device"}}]}],
    "jobs": [{"id": "j1", "created_unix_ns": 1, "finished_unix_ns": 17000000001, "spec": {"target": "llvm -mcpu=x"}, "truncated": true,
      "tasks": [{"info": {"key": "t"}, "trials": 4}],
      "timeline": [
        {"kind": "propose", "task": "t", "slot": "c", "candidates": 2, "start_unix_ns": 1, "end_unix_ns": 1000000001},
        {"kind": "build", "task": "t", "slot": "c", "candidates": 2, "start_unix_ns": 1000000001, "end_unix_ns": 11000000001},
        {"kind": "profile", "task": "t", "slot": "d", "candidates": 2, "start_unix_ns": 6000000001, "end_unix_ns": 12200000001},
        {"kind": "build", "task": "t", "slot": "c", "candidates": 2, "start_unix_ns": 11000000001, "end_unix_ns": 12200000001},
        {"kind": "profile", "task": "t", "slot": "d", "candidates": 2, "start_unix_ns": 12200000001, "end_unix_ns": 14400000001}],
      "measured": [
        {"task": "t", "created_unix_ns": 7100000001, "profile_ns": 1000000000}, {"task": "t", "created_unix_ns": 12100000001, "profile_ns": 1000000000},
        {"task": "t", "created_unix_ns": 13300000001, "profile_ns": 1000000000}, {"task": "t", "created_unix_ns": 14300000001, "profile_ns": 1000000000}]
    }]})";
  const absl::StatusOr<Recorded> recorded = ReadRecorded(path);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  EXPECT_TRUE(recorded->truncated);
  EXPECT_DOUBLE_EQ(recorded->makespan, 17);
  const SimJob& job = recorded->scenario.jobs[0];
  EXPECT_EQ(job.batch, 2);
  EXPECT_THAT(job.tasks[0].times[v1::STAGE_PROFILE].seconds.recorded,
              ::testing::Pointwise(::testing::DoubleNear(1e-6), {1.1, 1.1, 1.1, 1.1}));
}

TEST(ThesisTest, TakingTurnsReachesTheBounds) {
  std::vector<double> turns;  // makespans of round-robin
  for (const char* policy : {"round_robin", "predictive"}) {
    const absl::StatusOr<std::vector<ThesisRow>> rows = ThesisRows(policy, 87, 2);
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (const ThesisRow& row : *rows) {
      EXPECT_LE(row.speedup, row.bound * 1.01) << row.setup;  // nothing beats arithmetic
      EXPECT_TRUE(row.met) << policy << ", " << row.setup << ": " << row.speedup;
      if (policy == std::string("round_robin")) turns.push_back(row.makespan);
      EXPECT_LE(row.makespan, 1.01 * turns[static_cast<size_t>(&row - rows->data())]) << row.setup;
      EXPECT_EQ(row.disturbed > 0.9, row.setup.find("uncoordinated") != std::string::npos);
    }
  }
}

// A GPU's slot has no cores, and its target says nothing of threads.
TEST(RecordedTest, JobsForGpusAreReplayed) {
  const std::string path = ::testing::TempDir() + "/gpu.json";
  std::ofstream(path) << R"({
    "workers": [{"worker": "w", "slots": [{"slot": {"name": "c", "kind": "cpu", "cores": [0]}},
                 {"slot": {"name": "g", "kind": "device", "target": "cuda -arch=sm_90", "device_key": "H"}}]}],
    "jobs": [{"id": "j1", "created_unix_ns": 1, "finished_unix_ns": 4000000001, "spec": {"target": "cuda -arch=sm_90"},
      "tasks": [{"info": {"key": "t"}, "trials": 2}],
      "timeline": [
        {"kind": "propose", "task": "t", "slot": "c", "candidates": 2, "start_unix_ns": 1, "end_unix_ns": 1000000001},
        {"kind": "build", "task": "t", "slot": "c", "candidates": 2, "start_unix_ns": 1000000001, "end_unix_ns": 3000000001},
        {"kind": "profile", "task": "t", "slot": "g", "candidates": 2, "start_unix_ns": 3000000001, "end_unix_ns": 4000000001}]
    }]})";
  const absl::StatusOr<Recorded> recorded = ReadRecorded(path);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const absl::StatusOr<WorldResult> result = RunWorld(recorded->scenario, "predictive", {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->trials, 2);
}

}  // namespace
}  // namespace heddle::sim
