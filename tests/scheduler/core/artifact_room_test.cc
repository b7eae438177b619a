// How much built code waits to be measured, that every job makes progress all the same, and that code which
// nobody can measure makes way.
#include "scheduler/core/machines/artifact_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "scheduler/core/machines/ready_stages.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;
const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);
const absl::Duration kGrace = DispatcherOptions().idle_code_grace;

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
  ArtifactRoom room(64 * kMiB, kGrace);
  Job job = JobWith(1, {BuiltOf(5 * kMiB), {0, Profiling{AttemptId{1}}, 3 * kMiB}, {}});
  room.Count(job, false, kStart);
  room.Count(job, false, kStart);
  EXPECT_EQ(room.bytes(), 8 * kMiB);
  room.Count(JobWith(2, {BuiltOf(kMiB)}), false, kStart);
  EXPECT_EQ(room.bytes(), 9 * kMiB);
  job.tasks[0].open.erase(CandidateId{1});
  room.Count(job, false, kStart);
  EXPECT_EQ(room.bytes(), 4 * kMiB);
  job.phase = Cancelled{};
  room.Count(job, false, kStart);
  EXPECT_EQ(room.bytes(), kMiB) << "the ledger drops the code of a job that has ended";
}

TEST(ArtifactRoomTest, ALimitCountsUntilAQuarterIsFree) {
  ArtifactRoom room(64 * kMiB, kGrace);
  auto open = [&](int64_t mib) {
    room.Count(JobWith(1, {BuiltOf(mib * kMiB)}), false, kStart);
    return std::pair(room.For(false), room.For(true));
  };
  using enum BuildRoom;
  std::vector<JobId> jobs;
  EXPECT_EQ(open(31), std::pair(kMany, kMany));
  EXPECT_FALSE(room.TakeChange(kStart, &jobs));
  EXPECT_EQ(open(32), std::pair(kMany, kNone)) << "idle jobs leave room to the others";
  EXPECT_TRUE(room.TakeChange(kStart, &jobs));
  EXPECT_FALSE(room.TakeChange(kStart, &jobs));
  EXPECT_EQ(open(64), std::pair(kOne, kNone));
  EXPECT_EQ(open(49), std::pair(kOne, kNone));
  EXPECT_EQ(open(47), std::pair(kMany, kNone));
  EXPECT_EQ(open(23), std::pair(kMany, kMany));
}

// Among jobs in every state, those that TakeChange names are all whose builds become ready, or are so no longer.
TEST(ArtifactRoomTest, AChangeNamesAllJobsThatMayBuildMoreOrLess) {
  std::mt19937_64 random(1);
  auto below = [&](size_t n) { return random() % n; };
  ArtifactRoom room(64 * kMiB, kGrace);
  Effects effects;
  std::map<JobId, std::pair<Job, bool>> jobs;  // with whether they are idle
  auto may_build = [&](const Job& job, bool idle) {
    const auto items = ReadyStages(job, {}, room.For(idle), &effects);
    return std::any_of(items.begin(), items.end(), [](const ReadyIndex::Item& item) {
      return item.work.kind == v1::STAGE_BUILD;
    });
  };
  std::map<JobId, bool> before;
  int changes = 0, unchanged = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<Candidate> candidates(below(4));
    for (Candidate& candidate : candidates) {
      if (below(2) == 0) continue;
      candidate.artifact_bytes = static_cast<int64_t>(below(8)) * kMiB;
      if (below(3) > 0) candidate.where = Built{};
      if (below(3) == 0) candidate = {0, Building{AttemptId{1}}};
    }
    const JobId id{1 + static_cast<int64_t>(below(40))};
    auto& [job, idle] = jobs[id];
    job = JobWith(id.value, candidates);
    if (below(20) == 0) job.phase = Cancelled{};
    idle = below(3) == 0;
    room.Count(job, idle, kStart);
    before[id] = may_build(job, idle);  // the caller looks at what has changed itself
    std::vector<JobId> named;
    room.TakeChange(kStart, &named);
    for (const auto& [other, what] : jobs) {
      const bool now = may_build(what.first, what.second);
      const bool told = std::count(named.begin(), named.end(), other) > 0;
      ASSERT_TRUE(now == before[other] || told) << "j" << other.value << ", step " << i;
      changes += now != before[other];
      unchanged += !told;
      before[other] = now;
    }
  }
  EXPECT_GT(changes, 20);
  EXPECT_GT(unchanged, 20 * changes);
}

TEST(ArtifactRoomTest, ABuildTakesNoMoreCandidatesThanThereIsRoomFor) {
  ArtifactRoom room(64 * kMiB, kGrace);
  for (int i = 0; i < 200; ++i) room.Observe(4 * kMiB);
  EXPECT_GE(room.Share(100, false), 16u);
  EXPECT_LE(room.Share(100, false), 17u) << "by the mean of late";
  EXPECT_EQ(room.Share(3, false), 3u);
  EXPECT_LE(room.Share(100, true), 8u) << "of an idle job: of half of the room";
  room.Count(JobWith(1, std::vector<Candidate>(14, {0, Building{AttemptId{1}}})), false, kStart);
  EXPECT_LE(room.Share(100, false), 3u) << "what is being built counts";
  room.Count(JobWith(1, {BuiltOf(80 * kMiB)}), false, kStart);
  EXPECT_EQ(room.Share(100, false), 1u);
}

TEST(ArtifactRoomTest, InAFullRoomIdleCodeIsDroppedAfterAWhile) {
  ArtifactRoom room(64 * kMiB, kGrace);
  Job idle =
      JobWith(2, {BuiltOf(9 * kMiB), {0, Profiling{AttemptId{1}}, 9 * kMiB}, BuiltOf(9 * kMiB)});
  room.Count(idle, true, kStart);
  EXPECT_EQ(room.ToDrop(kStart + kGrace), std::nullopt) << "there is room";
  EXPECT_EQ(room.NextDrop(), absl::InfiniteFuture());
  const Job active = JobWith(3, {BuiltOf(40 * kMiB)});
  std::vector<JobId> jobs;
  room.Count(active, false, kStart);
  EXPECT_TRUE(room.TakeChange(kStart, &jobs));
  EXPECT_FALSE(room.TakeChange(kStart, &jobs));
  EXPECT_EQ(room.ToDrop(kStart), std::nullopt) << "it may be active again in a moment";
  room.Count(idle, true, kStart + kGrace / 2);
  EXPECT_EQ(room.NextDrop(), kStart + kGrace) << "since it was found idle first";
  ASSERT_EQ(room.ToDrop(kStart + kGrace), JobId{2});
  EXPECT_TRUE(room.TakeChange(kStart + kGrace, &jobs));
  EXPECT_TRUE(room.TakeChange(kStart + kGrace, &jobs)) << "until it is dropped";
  EXPECT_GT(room.Excess(), 18 * kMiB);
  room.Count(idle, false, kStart + kGrace);
  EXPECT_EQ(room.ToDrop(kStart + kGrace), std::nullopt) << "it is idle no more";
  room.Count(idle, true, kStart + kGrace);
  EXPECT_EQ(room.NextDrop(), kStart + 2 * kGrace);
  // What a stage measures stays.
  EXPECT_THAT(DropBuilt(idle, room.Excess()), ElementsAre(CandidateId{3}, CandidateId{1}));
  EXPECT_TRUE(Is<Unbuilt>(idle.tasks[0].open.at(CandidateId{1}).where));
  room.Count(idle, true, kStart + kGrace);
  EXPECT_EQ(room.bytes(), 49 * kMiB);
  EXPECT_EQ(room.NextDrop(), absl::InfiniteFuture()) << "there is no more";
}

TEST(ArtifactRoomTest, WhoIsIdleForTheLongestDropsItsCodeFirst) {
  ArtifactRoom room(64 * kMiB, kGrace);
  for (const int64_t id : {5, 7}) room.Count(JobWith(id, {BuiltOf(9 * kMiB)}), true, kStart);
  room.Count(JobWith(9, {BuiltOf(9 * kMiB)}), true, kStart + kGrace / 2);
  room.Count(JobWith(1, {BuiltOf(40 * kMiB)}), false, kStart);
  EXPECT_EQ(room.ToDrop(kStart + kGrace), JobId{7}) << "the newest of two";
  room.Count(JobWith(7, {}), true, kStart + kGrace);
  EXPECT_EQ(room.ToDrop(kStart + kGrace), JobId{5});
  room.Count(JobWith(5, {BuiltOf(9 * kMiB)}), false, kStart + kGrace);
  EXPECT_EQ(room.ToDrop(kStart + kGrace), std::nullopt);
  EXPECT_EQ(room.ToDrop(kStart + kGrace + kGrace / 2), JobId{9});
}

TEST(ArtifactRoomTest, NoMoreIsDroppedThanHasTo) {
  Job job = JobWith(1, {BuiltOf(kMiB), BuiltOf(kMiB), BuiltOf(kMiB)});
  EXPECT_THAT(DropBuilt(job, kMiB + 1), ElementsAre(CandidateId{3}, CandidateId{2}));
  EXPECT_THAT(DropBuilt(job, 0), IsEmpty());
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
  int BuildAll(int64_t bytes = 300 * kMiB) {
    int built = 0;
    while (IsLive(v1::STAGE_BUILD)) {
      const StartStage build = Live(v1::STAGE_BUILD);
      for (CandidateId id : build.candidates) {
        CandidateBuilt event{build.attempt, id, v1::OUTCOME_OK, ""};
        event.artifact_bytes = bytes;
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
  // Measures and builds until so many candidates are measured, or nothing more happens. Returns how many.
  int MeasureAll(int wanted) {
    int measured = 0;
    for (int i = 0; i < 200 && measured < wanted; ++i) {
      BuildAll();
      if (IsLive(v1::STAGE_PROFILE)) measured += Measure();
      if (IsLive(v1::STAGE_COMPILE)) End(v1::STAGE_COMPILE, Compiled{"module"});
    }
    return measured;
  }
  // With two build slots. An unusable device is there, too.
  void Slots(bool usable) {
    SlotInfo device = DeviceSlot("p1", {1});
    device.usable = usable;
    Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu2", {2}), device}, ""});
  }
};

// The device is there, and measures nothing until the builds wait.
TEST_F(LackOfRoomTest, BuildsWaitForMeasurements) {
  Slots(true);
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
  EXPECT_EQ(MeasureAll(24), 24);
  EXPECT_EQ(dispatcher_.artifact_bytes(), 0);
}

// Job 1 holds the device with its one candidate, so the code of job 2 waits.
class IdleCodeTest : public LackOfRoomTest {
 protected:
  IdleCodeTest() {
    Slots(true);
    Submit(1, 1, 1);
    Import({"a"});
    End(v1::STAGE_PROPOSE, Proposed{1, false});
    BuildAll();
    Submit(2, 8, 8);
    Import({"b"});
    End(v1::STAGE_PROPOSE, Proposed{8, false});
    built_ = BuildAll();
    EXPECT_GE(built_, 4) << "the room is full";
    EXPECT_THAT(dropped_, IsEmpty()) << "its code could be measured";
  }

  int built_ = 0;
};

// No trial is lost, none is made twice.
TEST_F(IdleCodeTest, APausedJobsCodeMakesWayAndIsBuiltAgain) {
  Step(PauseRequested{JobId{2}, "later"});
  EXPECT_THAT(dropped_, IsEmpty());
  EXPECT_EQ(dispatcher_.NextWake(now_), now_ + kGrace);
  Wait(kGrace);
  EXPECT_THAT(dropped_, Not(IsEmpty()));
  EXPECT_LT(dispatcher_.artifact_bytes(), 768 * kMiB);
  Submit(3, 8, 8);
  Import({"c"});
  End(v1::STAGE_PROPOSE, Proposed{8, false});
  EXPECT_GE(BuildAll(), 2) << "not one at a time";
  EXPECT_EQ(MeasureAll(1 + 8), 1 + 8) << "of jobs 1 and 3";
  Step(ResumeRequested{JobId{2}});
  EXPECT_EQ(MeasureAll(8), 8);
  EXPECT_EQ(job(2).tasks[0].trials, 8);
  EXPECT_EQ(job(3).tasks[0].trials, 8);
}

TEST_F(IdleCodeTest, CodeForADeviceThatLeftMakesWayAndIsBuiltAgain) {
  Slots(false);
  Wait(kGrace);
  EXPECT_THAT(dropped_, Not(IsEmpty()));
  const size_t dropped = dropped_.size();
  EXPECT_EQ(BuildAll(), 0) << "more than half of the room is used";
  EXPECT_EQ(dropped_.size(), dropped);
  Slots(true);
  EXPECT_EQ(MeasureAll(1 + 8), 1 + 8);
  EXPECT_EQ(job(2).tasks[0].trials, 8);
}

// As while its worker starts anew.
TEST_F(IdleCodeTest, CodeForADeviceThatIsAwayForMomentsIsKept) {
  for (int outage = 0; outage < 5; ++outage) {
    Slots(false);
    Wait(kGrace * 2 / 3);
    Slots(true);
    Wait(kGrace * 2 / 3);
  }
  EXPECT_THAT(dropped_, IsEmpty());
  EXPECT_EQ(MeasureAll(1 + 8), 1 + 8);
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

// Nothing happens to a job between the end of its device and the lack of room.
TEST_F(LackOfRoomTest, CodeWhoseDeviceLeftWhileThereWasRoomMakesWay) {
  const auto set_slots = [this](bool usable) {
    SlotInfo device = DeviceSlot("p1", {1});
    device.usable = usable;
    Step(SlotsChanged{
        {CpuSlot("cpu0", {0}), CpuSlot("cpu2", {2}), device, DeviceSlot("p2", {3, 4})}, ""});
  };
  set_slots(true);
  for (const int64_t id : {1, 2}) {  // the first one holds the device, the second one waits for it
    Submit(id, 1, 1);
    Import({absl::StrCat("of ", id)});
    End(v1::STAGE_PROPOSE, Proposed{1, false});
    EXPECT_EQ(BuildAll(100 * kMiB), 1);
  }
  set_slots(false);
  Submit(3, 8, 8, /*threads=*/2);
  Import({"of another device"});
  End(v1::STAGE_PROPOSE, Proposed{8, false});
  EXPECT_GE(BuildAll(), 2);
  EXPECT_TRUE(dispatcher_.LacksRoom(job(3)));
  EXPECT_THAT(dropped_, IsEmpty());
  Wait(kGrace);
  EXPECT_EQ(dropped_.size(), 1u) << "of job 2";
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
