// What a simulated scheduler's process remembers over a crash.
#include "scheduler/sim/world/scheduler_process.h"

#include <gtest/gtest.h>

#include "scheduler/store/memory_record_store.h"

namespace heddle::sim {
namespace {

class SchedulerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override { Boot(); }
  void Boot() {
    loaded_ = 0;
    process_.Boot([this](JobId job) { return job != others_; },
                  [this](const StoredJob&) { ++loaded_; });
  }
  Decisions Tell(const Event& event) {
    Decisions decisions = process_.Step(event);
    process_.Keep(event, decisions.changes);
    return decisions;
  }
  JobSubmitted JobOf(int64_t id) const {
    v1::JobSpec spec;
    spec.set_target("llvm -mcpu=a");
    spec.set_trials_per_task(8);
    JobSubmitted submitted{JobId{id}, *JobLedger::ParamsFrom(spec, agenda_.now(), agenda_.now())};
    submitted.description.set_id(JobName(id));
    submitted.description.set_state(v1::JOB_IMPORTING);
    *submitted.description.mutable_spec() = spec;
    return submitted;
  }
  void Submit(int64_t id) { Tell(JobOf(id)); }
  static SlotsChanged OneSlot() {
    SlotInfo slot;
    slot.id = {"w", "cpu0"};
    slot.host = "h";
    slot.cores = {0};
    return {{slot}, ""};
  }

  Agenda agenda_;
  std::unique_ptr<RecordStore> store_ = MakeMemoryRecordStore();
  Dice dice_{7};
  Plant plant_{Planted::kNone};
  int loaded_ = 0;
  JobId others_;  // a job of another pool
  SchedulerProcess process_{"round_robin",
                            AttemptId{1},
                            agenda_,
                            store_.get(),
                            &dice_,
                            &plant_,
                            [](const std::string& what) { FAIL() << what; }};
};

TEST_F(SchedulerProcessTest, WhatIsFlushedSurvivesACrash) {
  Submit(1);
  process_.Flush();
  process_.Crash();
  Boot();
  EXPECT_EQ(loaded_, 1);
  EXPECT_NE(process_.dispatcher().FindJob(JobId{1}), nullptr);
}

// The kept batches are always the first ones.
TEST_F(SchedulerProcessTest, ACrashKeepsAPrefixOfWhatWasNotDurable) {
  constexpr int kJobs = 10;
  int lost = 0;
  for (int life = 0; life < 20; ++life) {
    const std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
    Dice dice{static_cast<uint64_t>(life)};
    SchedulerProcess process("round_robin", AttemptId{1}, agenda_, store.get(), &dice, &plant_,
                             [](const std::string& what) { FAIL() << what; });
    process.Boot([](JobId) { return true; }, [](const StoredJob&) {});
    for (int id = 1; id <= kJobs; ++id) {
      const Event submitted = JobOf(id);
      process.Keep(submitted, process.Step(submitted).changes);
    }
    process.Crash();
    const auto jobs = store->LoadJobs();
    lost += kJobs - static_cast<int>(jobs->size());
    for (size_t i = 0; i < jobs->size(); ++i) EXPECT_EQ((*jobs)[i].row.id, static_cast<int>(i) + 1);
  }
  EXPECT_GT(lost, 0);
}

// What a stopped process had not written may come before the take-over, and never after it.
TEST_F(SchedulerProcessTest, AProcessThatWasStoppedWritesNothingAfterATakeOver) {
  int refused = 0, taken = 0;
  for (int i = 0; i < 40; ++i) {
    const bool after = i % 2 == 1;
    for (int64_t id = 1; id <= 3; ++id) Submit(10 * i + id);
    const auto before = store_->LoadJobs().value().size();
    const SchedulerProcess::Unwritten late = process_.Stop();
    const auto at_stop = store_->LoadJobs().value().size();
    EXPECT_GE(at_stop, before);
    if (after) Boot();
    EXPECT_EQ(process_.WriteLate(late), after && !late.batches.empty());
    const auto now = store_->LoadJobs().value().size();
    (after ? refused : taken) += static_cast<int>(late.batches.size());
    if (after) EXPECT_EQ(now, at_stop);
    if (!after) EXPECT_EQ(now, at_stop + late.batches.size());
    if (!after) Boot();
    EXPECT_EQ(loaded_, static_cast<int>(now));
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(taken, 0);
}

TEST_F(SchedulerProcessTest, AttemptsAreNotUsedAgainAfterACrash) {
  Submit(1);
  process_.Flush();
  auto started = [](const Decisions& decisions) {
    for (const Order& order : decisions.orders) {
      if (const auto* start = std::get_if<StartStage>(&order)) return start->attempt.value;
    }
    return int64_t{0};
  };
  EXPECT_EQ(started(Tell(OneSlot())), 1);
  process_.Crash();
  Boot();
  EXPECT_EQ(started(Tell(OneSlot())), 2);
}

TEST_F(SchedulerProcessTest, TheEndOfAnImportIsPlannedFromTheStore) {
  Submit(1);
  const Decisions decisions = Tell(OneSlot());
  const auto& start = std::get<StartStage>(decisions.orders.at(0));
  Imported imported;
  imported.model.add_tasks()->set_key("k");
  Event end = StageFinished{start.attempt, {}, true, imported};
  process_.AddKnownRecords(&end);
  const Imported& planned = std::get<Imported>(std::get<StageFinished>(end).result);
  EXPECT_EQ(planned.known.size(), 1u);
  EXPECT_EQ(planned.KnownOf(0).total, 0);
  const StageOrder order = process_.BeginOrder(start);
  EXPECT_EQ(order.start.kind(), v1::STAGE_IMPORT);
  EXPECT_EQ(order.start.target(), "llvm -mcpu=a");
}

TEST_F(SchedulerProcessTest, ATickIsAskedForOnce) {
  Submit(1);
  const absl::Time wake = process_.NextWake();
  if (wake != absl::InfiniteFuture()) {
    EXPECT_EQ(process_.NextWake(), absl::InfiniteFuture());
  }
}

}  // namespace
}  // namespace heddle::sim
