// What a job takes in memory: little, however many trials it has yet to make.
#include <malloc.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

constexpr int kJobs = 200, kTasks = 10, kSlotsOfJob = 4;
// 10,000 jobs fit into half of 2 GiB. The ledger and what users are shown have the rest.
constexpr size_t kMostOfJob = (size_t{1} << 30) / 10'000;

// Bytes that this process has allocated.
size_t Allocated() { return mallinfo2().uordblks; }

// Bytes of each of the jobs, once all are imported and their first rounds are being built.
size_t BytesOfJob(int trials_per_task) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  const size_t before = Allocated();
  Dispatcher dispatcher(*MakePolicy("predictive"));
  std::vector<SlotInfo> slots = {DeviceSlot("d", {0})};
  for (int i = 1; i <= kSlotsOfJob * kJobs; ++i)
    slots.push_back(CpuSlot(absl::StrCat("cpu", i), {i}));
  dispatcher.Step(SlotsChanged{slots, ""}, now);
  std::vector<StartStage> started;
  const auto step = [&](const Event& event) {
    for (const StartStage& start : All<StartStage>(dispatcher.Step(event, now)))
      started.push_back(start);
  };
  for (int64_t id = 1; id <= kJobs; ++id) {
    JobParams params;
    params.target = params.record_target = kTarget;
    params.trials_per_task = trials_per_task;
    params.batch = 16;
    step(JobSubmitted{JobId{id}, params});
  }
  std::vector<FoundTask> tasks(kTasks);
  while (!started.empty()) {
    const StartStage start = started.back();
    started.pop_back();
    if (start.kind == v1::STAGE_IMPORT) {
      for (int i = 0; i < kTasks; ++i)
        tasks[static_cast<size_t>(i)].key = absl::StrCat(start.job.value, "/", i);
      step(StageFinished{start.attempt, {}, true, ImportOf(tasks, "key")});
    } else if (start.kind == v1::STAGE_PROPOSE) {
      step(StageFinished{start.attempt, {}, true, Proposed{start.count, false}});
    }
  }
  for (const auto& [id, job] : dispatcher.jobs()) EXPECT_TRUE(Is<Tuning>(job.phase)) << id.value;
  return (Allocated() - before) / kJobs;
}

TEST(MemoryTest, TrialsToComeTakeNone) {
  const size_t before = Allocated();
  const auto visible = std::make_unique<std::vector<char>>(1 << 16);
  if (Allocated() < before + (1 << 16)) GTEST_SKIP() << "a sanitizer allocates here";
  (void)BytesOfJob(64);  // what is made once for the process
  const size_t few = BytesOfJob(64), many = BytesOfJob(64'000);
  std::printf("%zu bytes a job of %d tasks; %zu with a thousand times as many trials\n", few,
              kTasks, many);
  EXPECT_LT(many, few + few / 10);
  EXPECT_LT(many, kMostOfJob);
}

}  // namespace
}  // namespace heddle::scheduler
