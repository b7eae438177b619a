// What policies and the dispatcher owe each other: work that is held back starts when its time is
// up, and says so until then.
#include <optional>
#include <utility>
#include <vector>

#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kHold = absl::Milliseconds(2345);

// Lets everything wait for a while.
class Patient : public Policy {
 public:
  Rank RankOf(const WorkItem&, const Job&, const Wait& wait) override {
    Rank rank;
    rank.waits = wait.now < wait.since + kHold;
    if (rank.waits) rank.until = wait.since + kHold;
    return rank;
  }
};

JobParams PolicyParams() {
  JobParams params;
  params.target = kTarget;
  params.trials_per_task = 8;
  return params;
}

TEST(PolicyTest, HeldBackWorkStartsAtItsTime) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  Dispatcher dispatcher(std::make_unique<Patient>());
  dispatcher.Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""}, now);
  EXPECT_EQ(dispatcher.NextWake(now), absl::InfiniteFuture());
  EXPECT_EQ(Count<StartStage>(dispatcher.Step(JobSubmitted{JobId{1}, PolicyParams()}, now)), 0);
  EXPECT_EQ(dispatcher.NextWake(now), now + kHold);
  EXPECT_EQ(Count<StartStage>(dispatcher.Step(Tick{}, now + kHold / 2)), 0);
  EXPECT_EQ(dispatcher.NextWake(now + kHold / 2), now + kHold);
  EXPECT_EQ(Count<StartStage>(dispatcher.Step(Tick{}, now + kHold)), 1);
  EXPECT_EQ(dispatcher.NextWake(now + kHold), absl::InfiniteFuture());
  // What is gone is not waited for.
  dispatcher.Step(JobSubmitted{JobId{2}, PolicyParams()}, now + kHold);
  dispatcher.Step(CancelRequested{JobId{2}, ""}, now + kHold);
  EXPECT_EQ(dispatcher.NextWake(now + kHold), absl::InfiniteFuture());
}

// Counts how often it is asked, and lets everything wait.
class Counting : public Policy {
 public:
  explicit Counting(int* asked) : asked_(*asked) {}
  Rank RankOf(const WorkItem&, const Job&, const Wait&) override {
    ++asked_;
    return {.waits = true};
  }

 private:
  int& asked_;
};

// A policy may compute ranks from the number of CPU slots. One slot more among thousands hardly changes them.
TEST(PolicyTest, WorkIsRankedAnewWhenTheCpuSlotsHaveBecomeAQuarterMoreOrFewer) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  int asked = 0;
  Dispatcher dispatcher(std::make_unique<Counting>(&asked));
  std::vector<SlotInfo> slots;
  const auto asked_with = [&](size_t count) {
    while (slots.size() < count)
      slots.push_back(CpuSlot(absl::StrCat("c", slots.size()), {static_cast<int>(slots.size())}));
    slots.resize(count);
    asked = 0;
    dispatcher.Step(SlotsChanged{slots, ""}, now);
    return asked;
  };
  asked_with(8);
  for (int64_t id : {1, 2, 3}) dispatcher.Step(JobSubmitted{JobId{id}, PolicyParams()}, now);
  EXPECT_EQ(asked_with(10), 0);
  EXPECT_EQ(asked_with(11), 3);
  EXPECT_EQ(asked_with(9), 0);
  EXPECT_EQ(asked_with(8), 3);
  EXPECT_EQ(asked_with(0), 3);
  EXPECT_EQ(asked_with(1), 3);
}

TEST(PolicyTest, APriorityThatChangesCountsAtOnce) {
  for (const int raised : {0, 2, 3}) {
    const absl::Time now = absl::FromUnixSeconds(1000);
    Dispatcher dispatcher(*MakePolicy("predictive"));
    dispatcher.Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""}, now);
    AttemptId first{};
    for (int64_t id : {1, 2, 3}) {
      const Decisions decisions = dispatcher.Step(JobSubmitted{JobId{id}, PolicyParams()}, now);
      if (id == 1) first = All<StartStage>(decisions).at(0).attempt;
    }
    const Event change = raised == 0 ? Event(Tick{}) : Event(PriorityRequested{JobId{raised}, 5});
    EXPECT_EQ(Count<StartStage>(dispatcher.Step(change, now)), 0);
    const FaultInfo fault = {v1::FAULT_USER, "no model"};
    const Decisions next = dispatcher.Step(StageFinished{first, fault, true, {}}, now);
    EXPECT_EQ(All<StartStage>(next).at(0).job, JobId{raised == 3 ? 3 : 2}) << raised;
  }
}

TEST(PolicyTest, AJobThatIsHeldBackSaysSo) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  Dispatcher dispatcher(*MakePolicy("sequential"));
  dispatcher.Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1})}, ""}, now);
  for (int64_t id : {1, 2}) dispatcher.Step(JobSubmitted{JobId{id}, PolicyParams()}, now);
  EXPECT_EQ(DescribeJob(dispatcher, *dispatcher.FindJob(JobId{1}), now), "import");
  EXPECT_THAT(DescribeJob(dispatcher, *dispatcher.FindJob(JobId{2}), now),
              HasSubstr("waiting for its turn: other jobs go first"));
}

// One CPU slot and one device: the job without a deadline, or with a later one, has a long measurement ready when the
// urgent one is about to need the device.
TEST(PolicyTest, NothingGetsInTheWayOfADeadlineThatIsShortOfTime) {
  for (const auto& [tight, later] : {std::pair(false, false), {true, false}, {true, true}}) {
    absl::Time now = absl::FromUnixSeconds(1000);
    Dispatcher dispatcher(*MakePolicy("predictive"));
    std::vector<StartStage> started;
    auto step = [&](const Event& event) {
      for (const StartStage& start : All<StartStage>(dispatcher.Step(event, now)))
        started.push_back(start);
    };
    auto end = [&](int64_t job, v1::StageKind kind, decltype(StageFinished::result) result = {}) {
      for (const StartStage& start : started) {
        if (start.job.value != job || start.kind != kind || !dispatcher.live().count(start.attempt))
          continue;
        if (kind == v1::STAGE_BUILD) {
          for (CandidateId id : start.candidates)
            step(CandidateBuilt{start.attempt, id, v1::OUTCOME_OK, ""});
        }
        return step(StageFinished{start.attempt, {}, true, result});
      }
      ADD_FAILURE() << "j" << job << " runs no " << v1::StageKind_Name(kind);
    };
    auto runs = [&](int64_t job, v1::StageKind kind) {
      return std::any_of(dispatcher.live().begin(), dispatcher.live().end(), [&](const auto& live) {
        return live.second.job.value == job && live.second.kind == kind;
      });
    };
    step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("d", {1})}, ""});
    JobParams other = PolicyParams();
    if (later) other.deadline = now + absl::Minutes(4);
    step(JobSubmitted{JobId{1}, other});
    JobParams urgent = PolicyParams();
    urgent.pipeline_depth = 1;
    end(1, v1::STAGE_IMPORT, ImportOf({{"a"}}, "key"));
    end(1, v1::STAGE_PROPOSE, Proposed{8, false});
    // Two seconds for each propose, build and measurement, as far as anybody knows.
    urgent.deadline = now + (tight ? absl::Seconds(40) : absl::Hours(10));
    step(JobSubmitted{JobId{2}, urgent});
    step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {2}), DeviceSlot("d", {1})}, ""});
    end(2, v1::STAGE_IMPORT, ImportOf({{"b"}}, "key"));
    ASSERT_TRUE(runs(2, v1::STAGE_PROPOSE));
    end(1, v1::STAGE_BUILD);
    EXPECT_EQ(runs(1, v1::STAGE_PROFILE), !tight) << (later ? "with a later deadline" : "");
  }
}

// A job of one task that is being tuned; all but job 1 are paused.
Job OneTask(int64_t id, int trials) {
  Job job;
  job.id = JobId{id};
  job.params = PolicyParams();
  job.params.device_key = "key";
  job.params.trials_per_task = trials;
  job.params.batch = 16;
  job.params.pipeline_depth = 1;
  job.params.allocation = Allocation::kUniform;
  job.phase = Tuning{};
  if (id != 1) job.paused.emplace();
  job.tasks.resize(1);
  return job;
}

std::optional<StartStage> LastStart(const Decisions& decisions) {
  const std::vector<StartStage> starts = All<StartStage>(decisions);
  return starts.empty() ? std::nullopt : std::optional(starts.back());
}

// Two jobs that keep the device busy, with 64 and 48 seconds for it: the larger one is to be done
// last, and can wait a little. What hangs tells that it will not get through alone as fast as that.
TEST(PolicyTest, FaultsLetWhatWouldBeLeftAloneGoFirst) {
  for (const bool hangs : {false, true}) {
    absl::Time now = absl::FromUnixSeconds(1000);
    Dispatcher dispatcher(*MakePolicy("predictive"));
    StartStage latest{};
    auto step = [&](const Event& event) {
      if (const auto start = LastStart(dispatcher.Step(event, now))) latest = *start;
    };
    for (const auto& [id, trials] : {std::pair(1, 1), std::pair(2, 64), std::pair(3, 48)})
      dispatcher.Restore(OneTask(id, trials));
    step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("d", {1})}, ""});
    ASSERT_EQ(latest.job, JobId{1});
    for (int64_t id : {2, 3, 2}) {  // each is looked at when the other is there
      step(PauseRequested{JobId{id}, ""});
      step(ResumeRequested{JobId{id}});
    }
    step(StageFinished{latest.attempt, {}, true, Proposed{1, false}});
    ASSERT_EQ(latest.job, JobId{1});
    ASSERT_EQ(latest.kind, v1::STAGE_BUILD);
    now += absl::Seconds(hangs ? 15 : 0);
    step(
        StageFinished{latest.attempt, {v1::FAULT_INFRASTRUCTURE, "over its time limit"}, true, {}});
    EXPECT_EQ(latest.kind, v1::STAGE_PROPOSE);
    EXPECT_EQ(latest.job, JobId{hangs ? 2 : 3});
  }
}

// The same two jobs, and long quiet work after the hang: the larger one can wait again. However
// long it was quiet, the next hang tells as much as the first.
TEST(PolicyTest, WhatFaultsToldIsForgotten) {
  enum Then { kNothing, kQuiet, kQuietAndAHang };
  for (const Then then : {kNothing, kQuiet, kQuietAndAHang}) {
    absl::Time now = absl::FromUnixSeconds(1000);
    Dispatcher dispatcher(*MakePolicy("predictive"));
    StartStage latest{};
    auto step = [&](const Event& event) {
      if (const auto start = LastStart(dispatcher.Step(event, now))) latest = *start;
    };
    for (const auto& [id, trials] :
         {std::pair(1, 1), std::pair(2, 64), std::pair(3, 48), std::pair(4, 1)})
      dispatcher.Restore(OneTask(id, trials));
    const FaultInfo fault = {v1::FAULT_INFRASTRUCTURE, "it broke"};
    step(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("d", {1})}, ""});
    step(StageFinished{latest.attempt, {}, true, Proposed{1, false}});
    ASSERT_EQ(latest.kind, v1::STAGE_BUILD);
    now += absl::Seconds(60);
    step(StageFinished{latest.attempt, fault, true, {}});
    step(PauseRequested{JobId{1}, ""});
    step(ResumeRequested{JobId{4}});
    for (int i = 0; i < (then == kNothing ? 0 : 50);
         ++i) {  // nobody is held up by candidates that broke
      ASSERT_EQ(latest.job, JobId{4});
      now += absl::Minutes(20);
      step(StageFinished{latest.attempt, fault, true, {}});
      now += absl::Minutes(1);
      step(Tick{});
    }
    if (then == kQuietAndAHang) {
      step(StageFinished{latest.attempt, {}, true, Proposed{1, false}});
      ASSERT_EQ(latest.kind, v1::STAGE_BUILD);
      now += absl::Seconds(60);
      step(StageFinished{latest.attempt, fault, true, {}});
      step(ResumeRequested{JobId{1}});
    }
    for (int64_t id : {2, 3, 2}) {  // each is looked at when the other is there
      step(PauseRequested{JobId{id}, ""});
      step(ResumeRequested{JobId{id}});
    }
    ASSERT_EQ(latest.job, JobId{then == kQuietAndAHang ? 1 : 4});
    step(StageFinished{latest.attempt, fault, true, {}});
    EXPECT_EQ(latest.kind, v1::STAGE_PROPOSE);
    EXPECT_EQ(latest.job, JobId{then == kQuiet ? 3 : 2});
  }
}

}  // namespace
}  // namespace heddle::scheduler
