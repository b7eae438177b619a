// Each rule of the predictive policy in a world where taking turns does worse.
#include <gtest/gtest.h>

#include "scheduler/policy.h"
#include "scheduler/sim/scenario.h"
#include "scheduler/sim/world.h"

namespace heddle::sim {
namespace {

constexpr char kTimes[] = R"("times": {"propose": 1, "update": 2,
  "build": {"per": "candidate", "lognormal": {"mean": 0.4, "cv": 0.3}},
  "profile": {"per": "candidate", "lognormal": {"mean": 0.8, "cv": 0.4}}},)";

Scenario Parse(const std::string& text) {
  absl::StatusOr<Scenario> scenario = ParseScenario(text, "policy_test", "");
  EXPECT_TRUE(scenario.ok()) << scenario.status();
  return *scenario;
}

WorldResult Play(const Scenario& scenario, const std::string& policy) {
  WorldOptions options;
  options.checks = true;
  absl::StatusOr<WorldResult> result = RunWorld(scenario, policy, options);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->violation, "");
  return *std::move(result);
}

double MeanCompletion(const WorldResult& result) {
  double sum = 0;
  for (const JobOutcome& job : result.jobs) sum += job.end - job.arrival;
  return sum / static_cast<double>(result.jobs.size());
}

TEST(PolicyTest, UnknownNamesAreToldTheKnownOnes) {
  EXPECT_EQ(scheduler::MakePolicy("fifo").status().message(),
            "unknown policy \"fifo\"; known: sequential, round_robin, predictive");
}

TEST(PolicyTest, SequentialNeverMixesJobs) {
  const Scenario scenario = Parse(std::string("{\"name\": \"s\",") + kTimes + R"(
    "workers": [{"name": "w", "cpu_slots": 2, "device_slots": 2}],
    "defaults": {"batch": 8, "trials": 24, "tasks": 3}, "jobs": [{"name": "a", "count": 3}]})");
  const WorldResult result = Play(scenario, "sequential");
  double last = 0;
  for (const RanStage& stage : result.stages) {
    for (const RanStage& other : result.stages) {
      if (stage.job == other.job) continue;
      EXPECT_TRUE(stage.end <= other.begin || other.end <= stage.begin);
    }
    last = std::max(last, stage.end);
  }
  EXPECT_GT(last, 0);
}

TEST(PolicyTest, ShortJobsFirstWithoutALaterEnd) {
  const Scenario scenario = Parse(std::string("{\"name\": \"s\",") + kTimes + R"(
    "workers": [{"name": "b", "cpu_slots": 2}, {"name": "d", "device_slots": 1}],
    "defaults": {"batch": 16, "trials": 64}, "jobs": [
      {"name": "long", "count": 2, "tasks": 12}, {"name": "short", "count": 6, "tasks": 2}]})");
  const WorldResult turns = Play(scenario, "round_robin"), best = Play(scenario, "predictive");
  EXPECT_LT(MeanCompletion(best), 0.9 * MeanCompletion(turns));
  EXPECT_LT(best.seconds, 1.01 * turns.seconds);
}

TEST(PolicyTest, DeadlinesThatCanBeMetAre) {
  const Scenario scenario = Parse(std::string("{\"name\": \"s\",") + kTimes + R"(
    "workers": [{"name": "b", "cpu_slots": 2}, {"name": "d", "device_slots": 1}],
    "defaults": {"batch": 16, "trials": 64}, "jobs": [
      {"name": "background", "count": 3, "tasks": 8, "trials": 96},
      {"name": "urgent", "count": 4, "arrival": 100, "every": 500, "tasks": 4, "deadline": 420}]})");
  auto met = [&](const WorldResult& result) {
    int count = 0;
    for (size_t i = 3; i < result.jobs.size(); ++i)
      count += result.jobs[i].end - result.jobs[i].arrival <= 420;
    return count;
  };
  EXPECT_EQ(met(Play(scenario, "predictive")), 4);
  EXPECT_LT(met(Play(scenario, "round_robin")), 4);
}

// Ann's eight jobs do not take eight times what Bob's one gets.
TEST(PolicyTest, TenantsShareFairly) {
  const Scenario scenario = Parse(std::string("{\"name\": \"s\",") + kTimes + R"(
    "workers": [{"name": "b", "cpu_slots": 2}, {"name": "d", "device_slots": 1}],
    "defaults": {"batch": 16, "trials": 64, "tasks": 6}, "jobs": [
      {"name": "ann", "user": "ann", "count": 8}, {"name": "bob", "user": "bob"}]})");
  const WorldResult turns = Play(scenario, "round_robin"), best = Play(scenario, "predictive");
  EXPECT_LT(best.jobs[8].end, 0.5 * turns.jobs[8].end);
  EXPECT_LT(best.seconds, 1.01 * turns.seconds);
}

// A device that is held by a job whose builds are slow does nothing for the others meanwhile.
TEST(PolicyTest, DevicesAreNotHeldByJobsThatStillBuild) {
  const Scenario scenario = Parse(R"({"name": "s",
    "workers": [{"name": "b", "cpu_slots": 2}, {"name": "d", "device_slots": 2}],
    "defaults": {"batch": 16, "trials": 48, "pipeline_depth": 1}, "jobs": [
      {"name": "build-heavy", "count": 3, "tasks": 6, "times": {"propose": 4, "update": 6,
        "build": {"per": "candidate", "lognormal": {"mean": 2.0, "cv": 0.4}},
        "profile": {"per": "candidate", "lognormal": {"mean": 0.4, "cv": 0.5}}}},
      {"name": "profile-heavy", "count": 3, "tasks": 6, "times": {"propose": 1, "update": 2,
        "build": {"per": "candidate", "lognormal": {"mean": 0.3, "cv": 0.4}},
        "profile": {"per": "candidate", "lognormal": {"mean": 2.0, "cv": 0.5}}}}]})");
  const WorldResult turns = Play(scenario, "round_robin"), best = Play(scenario, "predictive");
  EXPECT_LT(best.seconds, 1.01 * turns.seconds);
  EXPECT_LT(MeanCompletion(best), 0.9 * MeanCompletion(turns));
}

}  // namespace
}  // namespace heddle::sim
