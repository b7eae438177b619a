// How much built code waits to be measured, and that every job makes progress all the same.
#include "scheduler/core/machines/artifact_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// A job of one task with these candidates.
Job JobWith(int64_t id, const std::vector<Candidate>& candidates) {
  Job job;
  job.id = JobId{id};
  job.phase = Tuning{};
  job.in_flight = {TaskIndex{0}};
  Task& task = job.tasks.emplace_back();
  for (const Candidate& candidate : candidates)
    task.open[CandidateId{static_cast<int64_t>(task.open.size()) + 1}] = candidate;
  return job;
}
Candidate BuiltOf(int64_t bytes) { return {0, Built{}, bytes}; }

TEST(ArtifactRoomTest, CodeCountsUntilItIsMeasured) {
  ArtifactRoom room(64 * kMiB);
  Job job = JobWith(1, {BuiltOf(5 * kMiB), {0, Profiling{AttemptId{1}}, 3 * kMiB}, {}});
  room.Count(job);
  room.Count(job);
  EXPECT_EQ(room.bytes(), 8 * kMiB);
  room.Count(JobWith(2, {BuiltOf(kMiB)}));
  EXPECT_EQ(room.bytes(), 9 * kMiB);
  job.tasks[0].open.erase(CandidateId{1});
  room.Count(job);
  EXPECT_EQ(room.bytes(), 4 * kMiB);
  job.phase = Cancelled{};
  room.Count(job);
  EXPECT_EQ(room.bytes(), kMiB) << "the ledger drops the code of a job that has ended";
}

TEST(ArtifactRoomTest, ALimitCountsUntilAQuarterIsFree) {
  ArtifactRoom room(64 * kMiB);
  auto open = [&](int64_t mib) {
    room.Count(JobWith(1, {BuiltOf(mib * kMiB)}));
    return std::pair(room.Open(true), room.Open(false));
  };
  EXPECT_EQ(open(31), std::pair(true, true));
  EXPECT_FALSE(room.TakeChange());
  EXPECT_EQ(open(32), std::pair(true, false)) << "jobs without a device leave room to the others";
  EXPECT_TRUE(room.TakeChange());
  EXPECT_FALSE(room.TakeChange());
  EXPECT_EQ(open(64), std::pair(false, false));
  EXPECT_EQ(open(49), std::pair(false, false));
  EXPECT_EQ(open(47), std::pair(true, false));
  EXPECT_EQ(open(23), std::pair(true, true));
}

TEST(ArtifactRoomTest, ABuildTakesNoMoreCandidatesThanThereIsRoomFor) {
  ArtifactRoom room(64 * kMiB);
  for (int i = 0; i < 200; ++i) room.Observe(4 * kMiB);
  EXPECT_GE(room.Share(100), 16u);
  EXPECT_LE(room.Share(100), 17u) << "by the mean of late";
  EXPECT_EQ(room.Share(3), 3u);
  room.Count(JobWith(1, std::vector<Candidate>(14, {0, Building{AttemptId{1}}})));
  EXPECT_LE(room.Share(100), 3u) << "what is being built counts";
  room.Count(JobWith(1, {BuiltOf(80 * kMiB)}));
  EXPECT_EQ(room.Share(100), 1u);
}

// Everything that is built takes 300 MiB, so the limit of 1 GiB is reached with the fourth.
class LackOfRoomTest : public DispatcherTest {
 protected:
  // Tasks of different keys, since jobs share those that they have in common.
  void Import(const std::vector<std::string>& keys) {
    std::vector<FoundTask> tasks;
    for (const std::string& key : keys) tasks.push_back({key});
    End(v1::STAGE_IMPORT, ImportOf(tasks, ""));
  }
  // Builds whatever may be built, and returns how many candidates those were.
  int BuildAll() {
    int built = 0;
    while (IsLive(v1::STAGE_BUILD)) {
      const StartStage build = Live(v1::STAGE_BUILD);
      for (CandidateId id : build.candidates) {
        CandidateBuilt event{build.attempt, id, v1::OUTCOME_OK, ""};
        event.artifact_bytes = 300 * kMiB;
        Step(event);
        ++built;
      }
      Step(StageFinished{build.attempt, {}, true, {}});
    }
    return built;
  }
  // Answers all that was given to the latest profile stage, and returns how many candidates those were.
  int Measure() {
    const StartStage profile = Live(v1::STAGE_PROFILE);
    const LiveStage& stage = dispatcher_.live().at(profile.attempt);
    const std::set<CandidateId> given = stage.candidates;
    for (CandidateId id : given)
      Step(CandidateProfiled{profile.attempt, id, v1::OUTCOME_OK, "", 100});
    if (stage.candidates.empty() && stage.input_closed)
      Step(StageFinished{profile.attempt, {}, true, {}});
    return static_cast<int>(given.size());
  }
  // With two build slots. An unusable device is there, too.
  void Slots(bool usable) {
    SlotInfo device = DeviceSlot("p1", {1});
    device.usable = usable;
    Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu2", {2}), device}, ""});
  }
};

TEST_F(LackOfRoomTest, BuildsWaitForMeasurements) {
  Slots(false);
  for (int i = 0; i < 2; ++i) Submit(1 + i, 8, 8);
  for (const char* key : {"a", "b"}) Import({key});
  for (int i = 0; i < 2; ++i) End(v1::STAGE_PROPOSE, Proposed{8, false});
  // More than four, because nobody knew how large code is when the first stages began.
  const int built = BuildAll();
  EXPECT_LT(built, 16);
  EXPECT_EQ(dispatcher_.artifact_bytes(), built * 300 * kMiB);
  // A job without code builds all the same, a candidate at a time.
  Submit(3, 8, 8);
  Import({"c"});
  End(v1::STAGE_PROPOSE, Proposed{8, false});
  EXPECT_EQ(BuildAll(), 1);
  // Measurements make room, until all is built and measured.
  Slots(true);
  int measured = 0;
  for (int i = 0; i < 200 && measured < 24; ++i) {
    BuildAll();
    if (IsLive(v1::STAGE_PROFILE)) measured += Measure();
    if (IsLive(v1::STAGE_COMPILE)) End(v1::STAGE_COMPILE, Compiled{"module"});
  }
  EXPECT_EQ(measured, 24);
  EXPECT_EQ(dispatcher_.artifact_bytes(), 0);
}

// So that they leave room to the others.
TEST_F(LackOfRoomTest, JobsWithoutADeviceHaveHalfOfTheRoom) {
  Step(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
  Submit(1, 8, 2, /*threads=*/0, /*depth=*/8);
  Import({"a", "b", "c", "d", "e", "f", "g", "h"});
  while (IsLive(v1::STAGE_PROPOSE) || IsLive(v1::STAGE_BUILD)) {
    if (IsLive(v1::STAGE_PROPOSE)) End(v1::STAGE_PROPOSE, Proposed{2, false});
    BuildAll();
  }
  EXPECT_EQ(dispatcher_.artifact_bytes(), 2 * 300 * kMiB) << "of 16 candidates";
  EXPECT_THAT(DescribeTask(dispatcher_, job(), TaskIndex{7}, now_),
              HasSubstr("600 MiB of built code wait for a device"));
}

TEST_F(LackOfRoomTest, AJobWhoseCodeIsLargerThanTheLimitGoesOn) {
  TwoCores();
  Submit(1, 4, 4);
  Import({"a"});
  End(v1::STAGE_PROPOSE, Proposed{4, false});
  const StartStage first = Live(v1::STAGE_BUILD);
  CandidateBuilt event{first.attempt, first.candidates.front(), v1::OUTCOME_OK, ""};
  event.artifact_bytes = 2048 * kMiB;
  Step(event);
  Step(StageFinished{first.attempt, {v1::FAULT_INFRASTRUCTURE, "it broke"}, true, {}});
  Wait(absl::Seconds(1));
  EXPECT_FALSE(IsLive(v1::STAGE_BUILD)) << "its code waits";
  Profiled(first.candidates.front());
  EXPECT_TRUE(IsLive(v1::STAGE_BUILD));
}

}  // namespace
}  // namespace heddle::scheduler
