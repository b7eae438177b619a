// Several schedulers: how they divide machines and jobs, fail-overs, and messages that take time.
#include "scheduler/sim/world/pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "scheduler/core/policy.h"
#include "scheduler/sim/report.h"
#include "scheduler/sim/world/world.h"

namespace heddle::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 8 hosts, of which the last two have devices of the key "b".
Scenario Parse(const std::string& fields) {
  const absl::StatusOr<Scenario> scenario = ParseScenario(
      absl::StrCat(
          R"({"times": {"profile": {"per": "candidate", "lognormal": {"mean": 2}}, "build": {"per": "candidate", "constant": 0.5}},
          "workers": [{"name": "a", "count": 6, "cpu_slots": 1, "device_slots": 1, "key": "a"},
                      {"name": "b", "count": 2, "cpu_slots": 1, "device_slots": 1, "key": "b"}], )",
          fields, "}"),
      "x.json", "");
  EXPECT_TRUE(scenario.ok()) << scenario.status();
  return scenario.ok() ? *scenario : Scenario();
}

WorldResult Simulate(const Scenario& scenario, const std::string& policy = "predictive",
                     bool clock = false) {
  WorldOptions options;
  options.durable = options.checks = true;
  options.clock = clock;
  absl::StatusOr<WorldResult> result = RunWorld(scenario, policy, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : WorldResult();
}

TEST(PoolsTest, MachinesAreDealtAndJobsGoWhereTheirUserHasFewest) {
  const Scenario scenario = Parse(
      R"("jobs": [{"count": 4, "user": "ann"}, {"count": 2, "user": "bob"}, {"count": 2, "device_key": "b"}],
         "schedulers": {"count": 3, "pools": true})");
  Pools pools(scenario);
  EXPECT_EQ(pools.count(), 3);
  EXPECT_EQ(pools.PoolOf("a-1"), 0);
  EXPECT_EQ(pools.PoolOf("a-5"), 1);
  EXPECT_EQ(pools.PoolOf("b-2"), 1);
  EXPECT_THAT(pools.SlotsOf(2), ElementsAre(4, 5, 10, 11));  // a-3 and a-6
  // Ann's: the pools have 3, 3 and 2 devices. Bob's go to the pool in which he has none and least is done.
  std::vector<int> to;
  for (int job = 0; job < 8; ++job) to.push_back(pools.Enter(job));
  EXPECT_THAT(to, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));  // the last two only where a key "b" is
  for (int job = 0; job < 4; ++job) pools.Left(job);
  EXPECT_EQ(pools.Enter(0), 0);
}

TEST(PoolsTest, WhoDiesLeavesItsPoolsToThoseWithTheFewest) {
  const Scenario scenario =
      Parse(R"("jobs": [{}], "schedulers": {"count": 3, "pools": true, "fail_at": [1, 2]})");
  Pools pools(scenario);
  EXPECT_THAT(pools.FailOne(), ElementsAre(0));
  pools.TakeOver(0);
  EXPECT_EQ(pools.LeaderOf(0), 1);
  EXPECT_THAT(pools.FailOne(), ElementsAre(0, 1));
  for (int pool : {0, 1}) pools.TakeOver(pool);
  for (int pool : {0, 1, 2}) EXPECT_EQ(pools.LeaderOf(pool), 2);
}

TEST(PoolsTest, ALeaderHasStandbys) {
  const Scenario scenario = Parse(R"("jobs": [{}], "schedulers": {"count": 3, "fail_at": [1, 2]})");
  Pools pools(scenario);
  EXPECT_EQ(pools.count(), 1);
  EXPECT_THAT(pools.FailOne(), ElementsAre(0));
  EXPECT_THAT(pools.FailOne(), ElementsAre());  // the standby, before it took over
  pools.TakeOver(0);
  EXPECT_EQ(pools.LeaderOf(0), 2);
}

TEST(SchedulersTest, JobsSurviveTheEndOfTwoOfEight) {
  Scenario scenario = Parse(
      R"("jobs": [{"count": 24, "tasks": 2, "trials": 24, "every": 2, "user": "ann"}, {"count": 8, "tasks": 1, "trials": 16, "device_key": "b"}],
         "schedulers": {"count": 8, "pools": true, "fail_at": [40, 70], "gap": 10})");
  for (const std::string& policy : scheduler::PolicyNames()) {
    const WorldResult result = Simulate(scenario, policy);
    EXPECT_EQ(result.violation, "") << policy;
    EXPECT_EQ(result.done_jobs, 32) << policy;
    EXPECT_EQ(result.records.size(), 24u * 2 * 24 + 8 * 16) << policy;
    // The second one to die had taken over the pool of the first, so two pools lose it.
    EXPECT_EQ(result.fail_overs, 3) << policy;
    EXPECT_EQ(result.lost, 0) << policy;
  }
  scenario.schedulers.pools = false;
  const WorldResult led = Simulate(scenario);
  EXPECT_EQ(led.violation, "");
  EXPECT_EQ(led.done_jobs, 32);
  EXPECT_EQ(led.fail_overs, 2);
}

// Chaos in worlds of pools: every promise holds for each pool's scheduler.
TEST(SchedulersTest, PromisesHoldInPools) {
  int64_t fail_overs = 0, done = 0, late = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Scenario scenario = Parse(
        R"("jobs": [{"count": 6, "tasks": 2, "trials": 20, "every": 5, "user": "ann"}, {"count": 2, "tasks": [{"key": "k"}], "trials": 16}],
           "schedulers": {"count": 4, "pools": true, "decision": 0.01}, "network": {"orders": {"uniform": [0, 0.2]}, "answers": {"lognormal": {"mean": 0.1}}},
           "preemption": {"rate": 10, "notice": 5},
           "faults": {"until": 300, "every": [1, 20], "refused": 0.02, "broken": 0.01, "hung": 0.01, "duplicated": 0.05, "lost": 0.01, "slow_messages": true,
                      "chaos": {"kill_worker": 2, "fail_over": 3, "restart": 1, "old_lease": 2, "tracker_down": 1}})");
    scenario.seed = seed;
    const WorldResult result = Simulate(scenario, seed % 2 ? "predictive" : "round_robin");
    ASSERT_EQ(result.violation, "");
    fail_overs += result.fail_overs;
    late += result.late_writes;
    done += result.done_jobs;
  }
  EXPECT_GT(fail_overs, 60);
  EXPECT_GT(late, 3);
  EXPECT_GT(done, 30 * 7);
}

// Tasks that jobs have in common are tuned once in a pool, and once in each pool where they are.
TEST(SchedulersTest, PoolsDoNotShareTasks) {
  Scenario scenario = Parse(
      R"("jobs": [{"count": 8, "tasks": [{"key": "common"}], "trials": 32, "device_key": "a"}], "schedulers": {"count": 2})");
  EXPECT_EQ(RunWorld(scenario, "round_robin", {})->trials, 32);
  scenario.schedulers.pools = true;
  EXPECT_EQ(RunWorld(scenario, "round_robin", {})->trials, 64);
}

// A leader that needs 0.15 s for each event is the bottleneck of 8 hosts; four are not.
TEST(SchedulersTest, DecisionsTakeTime) {
  Scenario scenario = Parse(
      R"("jobs": [{"count": 16, "tasks": 2, "trials": 32}], "schedulers": {"count": 4, "decision": 0.15})");
  const WorldResult led = Simulate(scenario, "round_robin", true);
  scenario.schedulers.pools = true;
  const WorldResult pools = Simulate(scenario, "round_robin", true);
  for (const WorldResult* result : {&led, &pools}) {
    EXPECT_EQ(result->violation, "");
    EXPECT_EQ(result->queued.count(), result->decisions.count());
  }
  EXPECT_GT(led.seconds, 0.14 * static_cast<double>(led.steps));
  EXPECT_LT(pools.seconds, 0.85 * led.seconds);
  EXPECT_GT(led.queued.Quantile(0.5), 2 * pools.queued.Quantile(0.5));
  EXPECT_GT(led.deciding[0], 0);
  EXPECT_EQ(led.deciding[1], 0);
  EXPECT_GT(pools.deciding[3], 0);
  EXPECT_THAT(ReportTable(scenario, {MakeReport(scenario, "round_robin", pools)}),
              HasSubstr("busiest scheduler"));
}

// One job in strict order: each stage waits for its order and for its last answer.
TEST(NetworkTest, OrdersAndAnswersTakeTheirTime) {
  const std::string fields =
      R"({"workers": [{"cpu_slots": 1, "device_slots": 1}],
          "times": {"import": 5, "propose": 2, "build": 3, "profile": 7, "update": 4, "compile": 6},
          "jobs": [{"tasks": 1, "trials": 16, "batch": 16, "pipeline_depth": 1, "allocation": "uniform"}], "network": )";
  double seconds[3];
  const char* networks[] = {"{}", R"({"orders": 10})", R"({"answers": 10})"};
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<Scenario> scenario =
        ParseScenario(absl::StrCat(fields, networks[i], "}"), "x.json", "");
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    const WorldResult result = Simulate(*scenario, "round_robin");
    EXPECT_EQ(result.violation, "");
    seconds[i] = result.seconds;
  }
  // import, propose, build, profile, compile, one after another.
  EXPECT_NEAR(seconds[1] - seconds[0], 5 * 10, 11);
  EXPECT_NEAR(seconds[2] - seconds[0], 5 * 10, 11);
}

TEST(SpreadTest, QuantilesAreWithinTwoPercent) {
  Spread spread;
  for (int i = 1; i <= 10'000; ++i) spread.Add(i * 1e-6);
  EXPECT_NEAR(spread.Quantile(0.5), 5e-3, 1e-4);
  EXPECT_NEAR(spread.Quantile(0.99), 9.9e-3, 2e-4);
  EXPECT_DOUBLE_EQ(spread.longest(), 1e-2);
  EXPECT_EQ(Spread().Quantile(0.5), 0);
}

TEST(FieldsTest, ErrorsNameTheFieldAndTheWayOut) {
  auto error = [](const std::string& fields) {
    const absl::StatusOr<Scenario> scenario = ParseScenario(
        absl::StrCat(
            R"({"workers": [{"count": 2, "cpu_slots": 1, "device_slots": 1}], "jobs": [{}], )",
            fields, "}"),
        "x.json", "");
    return scenario.ok() ? "" : std::string(scenario.status().message());
  };
  EXPECT_THAT(error(R"("schedulers": {"number": 3})"),
              HasSubstr("schedulers.number: no such field; there are count"));
  EXPECT_THAT(error(R"("schedulers": {"count": 0})"),
              HasSubstr("schedulers.count: is 0; it must be"));
  EXPECT_THAT(error(R"("schedulers": {"count": 3, "pools": true})"),
              HasSubstr("schedulers.count: is 3, and there are 2 workers to divide; take fewer"));
  EXPECT_THAT(error(R"("schedulers": {"count": 2, "fail_at": [1, 2]})"),
              HasSubstr("schedulers.fail_at: ends 2 schedulers, and there are 2; one has to stay"));
  EXPECT_THAT(error(R"("network": {"orders": -1})"),
              HasSubstr("network.orders: must not be negative"));
  EXPECT_THAT(error(R"("network": {"answers": {"per": "batch"}})"),
              HasSubstr("network.answers.per: no such field; there are constant"));
  EXPECT_THAT(error(R"("preemption": {"rate": "often"})"),
              HasSubstr("preemption.rate: is \"often\""));
  const absl::StatusOr<Scenario> batch = ParseScenario(
      R"({"workers": [{"count": 2, "cpu_slots": 1, "batch": {"min": 3}}], "jobs": [{}]})", "x.json",
      "");
  EXPECT_THAT(std::string(batch.status().message()),
              HasSubstr("workers[0].batch.min: is 3; it must be a number in 0..2"));
  const Scenario two = Parse(R"("jobs": [{}], "schedulers": {"count": 2})");
  EXPECT_THAT(std::string(RunWorld(two, kUncoordinated, {}).status().message()),
              HasSubstr("leave out schedulers.count"));
}

}  // namespace
}  // namespace heddle::sim
