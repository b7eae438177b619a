// Machines that come and go: the autoscaler's rule, batch systems, and preemption.
#include "scheduler/sim/world/supply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "scheduler/sim/world/world.h"
#include "tests/places.h"

namespace heddle::sim {
namespace {

using ::testing::ElementsAreArray;

// tests/farm/autoscaler_test.py makes the cases from deploy/autoscaler/rules.py, and checks that they are still its.
TEST(AutoscalerRuleTest, DecidesAsTheAutoscalerDoes) {
  std::ifstream in(HEDDLE_SOURCE_DIR "/tests/scheduler/sim/autoscaler_cases.json");
  const nlohmann::json cases = nlohmann::json::parse(in);
  ASSERT_GT(cases.size(), 3u);
  for (const nlohmann::json& one : cases) {
    BatchClass rules;
    rules.workers.resize(one.at("max").get<size_t>());
    rules.min = one.at("min");
    rules.slots = one.at("slots");
    rules.wait = one.at("wait");
    rules.idle = one.at("idle");
    rules.most_at_once = one.at("most_at_once");
    AutoscalerRule rule;
    for (const nlohmann::json& round : one.at("rounds")) {
      AutoscalerRule::Seen seen;
      seen.waiting = round.at("waiting");
      seen.oldest = round.at("oldest");
      seen.busy = round.at("busy");
      for (const auto& [number, state] : round.at("instances").items()) {
        using State = AutoscalerRule::State;
        seen.instances[std::stoi(number)].state = state == "pending"   ? State::kPending
                                                  : state == "running" ? State::kRunning
                                                                       : State::kLeaving;
      }
      for (const int number : round.at("idle")) seen.instances[number].idle = true;
      for (const auto& [number, slots] : round.at("fit").items())
        seen.instances[std::stoi(number)].fit = slots;
      const AutoscalerRule::Decision decision = rule.Decide(rules, seen, round.at("now"));
      EXPECT_THAT(decision.start, ElementsAreArray(round.at("start").get<std::vector<int>>()))
          << round;
      EXPECT_THAT(decision.drain, ElementsAreArray(round.at("drain").get<std::vector<int>>()))
          << round;
    }
  }
}

absl::StatusOr<WorldResult> SimulateSupply(const std::string& fields, bool spans = false) {
  const absl::StatusOr<Scenario> scenario = ParseScenario(
      absl::StrCat(R"({"times": {"import": 0, "propose": 0, "update": 0, "compile": 0, "build": 1,
                                 "profile": {"per": "candidate", "constant": 10}}, )",
                   fields, "}"),
      "x.json", "");
  if (!scenario.ok()) return scenario.status();
  WorldOptions options;
  options.durable = options.checks = true;
  options.spans = spans;
  return RunWorld(*scenario, "round_robin", options);
}

// Work waits from 1 s on, and is seen at 20 s to have waited 10 s; the device comes after its queue time.
TEST(BatchTest, WorkersComeAfterTheQueueTimeAndLeaveWhenIdle) {
  const absl::StatusOr<WorldResult> good = SimulateSupply(
      R"("workers": [{"name": "build", "cpu_slots": 1},
                     {"name": "gpu", "count": 4, "device_slots": 1, "key": "g", "target": "cuda -arch=sm_90",
                      "device_threads": 1, "batch": {"queue": 120, "idle": 60}}],
         "defaults": {"trials": 4, "batch": 4, "device_key": "g", "threads": 0, "target": "cuda -arch=sm_90"},
         "jobs": [{}, {"arrival": 1000}])");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->violation, "");
  EXPECT_EQ(good->done_jobs, 2);
  EXPECT_EQ(good->batch_starts, 2);
  EXPECT_NEAR(good->jobs[0].end, 20 + 120 + 40, 10);
  EXPECT_NEAR(good->jobs[1].end, 1020 + 120 + 40, 10);
  // Each was there for 40 s of work; the first for 60 s to 70 s without, the second until the last job ended.
  EXPECT_NEAR(good->node_seconds, 40 + 65 + 40, 12);
}

TEST(BatchTest, NoMoreThanThereAreAndNoFewerThanTheLeast) {
  const absl::StatusOr<WorldResult> result = SimulateSupply(
      R"("workers": [{"name": "node", "count": 3, "cpu_slots": 1, "device_slots": 1, "batch": {"min": 1, "queue": 5, "idle": 30}}],
         "jobs": [{"count": 8, "trials": 8, "batch": 8}, {"arrival": 2000, "trials": 8, "batch": 8}])",
      true);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->violation, "");
  EXPECT_EQ(result->done_jobs, 9);
  EXPECT_EQ(result->batch_starts, 3);  // one of which stays, and serves the last job
  EXPECT_GT(result->node_seconds, 2000);
  EXPECT_LT(result->node_seconds, 3 * 2000);
}

TEST(PreemptionTest, WorkIsHandedBackAndNothingIsLost) {
  const std::string fields =
      R"("workers": [{"name": "host", "count": 4, "cpu_slots": 1, "device_slots": 1}], "jobs": [{"count": 4, "trials": 64}],
         "preemption": {"rate": 20, "back": 60, "notice": )";
  double broken[2];
  for (const int notice : {0, 240}) {
    const absl::StatusOr<WorldResult> result = SimulateSupply(absl::StrCat(fields, notice, "}"));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->violation, "");
    EXPECT_EQ(result->done_jobs, 4);
    EXPECT_EQ(result->lost, 0);
    EXPECT_EQ(result->trials, 4 * 64);
    EXPECT_GT(result->preemptions, 5);
    broken[notice > 0] = static_cast<double>(result->infrastructure_faults) /
                         static_cast<double>(result->preemptions);
  }
  // A profile stage has at most 16 candidates of 10 s, and gets no more of them once its worker drains.
  EXPECT_LT(broken[1], broken[0] / 4);
}

TEST(PreemptionTest, ABatchSystemReplacesWhatItTakes) {
  const absl::StatusOr<WorldResult> result = SimulateSupply(
      R"("workers": [{"name": "node", "count": 2, "cpu_slots": 1, "device_slots": 1, "batch": {"queue": 20}}],
         "jobs": [{"count": 2, "trials": 64}], "preemption": {"rate": 20, "notice": 5})");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->violation, "");
  EXPECT_EQ(result->done_jobs, 2);
  EXPECT_EQ(result->trials, 2 * 64);
  EXPECT_GT(result->preemptions, 3);
  EXPECT_GT(result->batch_starts, result->preemptions);
}

}  // namespace
}  // namespace heddle::sim
