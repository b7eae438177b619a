// The thread that writes: what it does when the store refuses, or takes nothing.
#include "scheduler/store/store_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "scheduler/store/memory_record_store.h"
#include "tests/scheduler/service/gated_store.h"

namespace heddle::scheduler {
namespace {

InsertRecord MeasuredRecord(int64_t candidate, uint64_t token) {
  InsertRecord change;
  v1::Record& record = change.record;
  record.set_workload_key("0123456789abcdef");
  record.set_target("t");
  record.set_device_key("d");
  record.set_job("j1");
  record.set_candidate(candidate);
  record.set_attempt(1);
  record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
  record.mutable_measurement()->add_samples_ns(5);
  record.mutable_measurement()->mutable_evidence()->set_worker("w");
  record.mutable_measurement()->mutable_evidence()->set_slot("s");
  change.fencing_token = token;
  return change;
}

Batch JobWithCandidates(int count) {
  JobRow job;
  job.id = 1;
  TaskRow task;
  task.job = 1;
  task.info.set_key("0123456789abcdef");
  Batch batch = {PutJob{job}, PutTask{task}};
  for (int i = 1; i <= count; ++i) {
    batch.push_back(InsertCandidate{{1, i, 0, "trace", ""}});
  }
  return batch;
}

TEST(StoreWriterTest, AStaleTokenCostsItsRecordAndNothingElse) {
  std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  std::atomic<int> rejected{0};
  StoreWriter::Hooks hooks;
  hooks.blocked = [](const absl::Status&) { ADD_FAILURE(); };
  hooks.fatal = [](const std::string& reason) { ADD_FAILURE() << reason; };
  hooks.rejected = [&](const std::string&) { ++rejected; };
  StoreWriter writer(store.get(), hooks);
  writer.Write(JobWithCandidates(3));
  writer.Write({MeasuredRecord(1, 100)});
  writer.Write({MeasuredRecord(2, 99)});
  writer.Write({MeasuredRecord(3, 101)});
  writer.Flush(absl::Seconds(60));
  EXPECT_EQ(rejected, 1);
  EXPECT_EQ(store->Query({})->size(), 2u);
  EXPECT_EQ(store->LoadJobs()->front().candidates[1].outcome, std::nullopt);
}

// Its jobs would go on from a state that the store does not have.
TEST(StoreWriterTest, AStaleSearchStateEndsTheProcess) {
  std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  const SlotId slot{"w", "cpu0"};
  Batch newer = JobWithCandidates(1);
  newer.insert(newer.begin(), CheckFence{{slot, 5}});
  ASSERT_TRUE(store->Apply({newer})->front().ok());
  std::atomic<int> fatal{0};
  StoreWriter::Hooks hooks;
  hooks.blocked = [](const absl::Status&) { ADD_FAILURE(); };
  hooks.fatal = [&](const std::string&) { ++fatal; };
  hooks.rejected = [](const std::string& reason) { ADD_FAILURE() << reason; };
  StoreWriter writer(store.get(), hooks);
  writer.Write({CheckFence{{slot, 4}}, PutSearchState{1, 0, "older"}});
  writer.Flush(absl::Seconds(60));
  EXPECT_EQ(fatal, 1);
  EXPECT_EQ(store->LoadJobs()->front().states[0], "");
}

// A batch without changes is durable with everything before it, and costs no transaction.
TEST(StoreWriterTest, AnEmptyBatchWaitsForThoseBeforeIt) {
  std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  StoreWriter::Hooks hooks;
  hooks.blocked = [](const absl::Status&) { ADD_FAILURE(); };
  hooks.fatal = hooks.rejected = [](const std::string& reason) { ADD_FAILURE() << reason; };
  StoreWriter writer(store.get(), hooks);
  for (int i = 0; i < 100; ++i) {
    JobRow job;
    job.id = i + 1;
    writer.Write({PutJob{job}});
    writer.Write({}, [&, i] { EXPECT_GE(*store->LastJob(), i + 1); });
  }
  writer.Flush(absl::Seconds(60));
}

// Decisions wait for the transaction that runs, not for the imports that are queued.
TEST(StoreWriterTest, ImportsComeAfterDecisions) {
  GatedStore store(MakeMemoryRecordStore());
  StoreWriter::Hooks hooks;
  hooks.blocked = [](const absl::Status&) { ADD_FAILURE(); };
  hooks.fatal = hooks.rejected = [](const std::string& reason) { ADD_FAILURE() << reason; };
  StoreWriter writer(&store, hooks);
  std::vector<v1::Record> records;
  for (int i = 0; i < 900; ++i) {
    records.push_back(MeasuredRecord(0, 0).record);
    records.back().set_trace(std::to_string(i));
    records.back().set_median_ns(5);
    records.back().set_imported_by("ann");
  }
  store.SetOpen(false);
  std::vector<std::thread> importers;
  for (int i = 0; i < 2; ++i) {
    importers.emplace_back([&, i] {
      std::vector<v1::Record> mine = records;
      for (v1::Record& record : mine) record.set_device_key(i == 0 ? "a" : "b");
      const auto answers = writer.Import(mine, absl::Seconds(60));
      ASSERT_TRUE(answers.ok()) << answers.status();
      for (const absl::Status& answer : *answers) EXPECT_TRUE(answer.ok()) << answer;
    });
  }
  absl::SleepFor(absl::Milliseconds(200));  // until they are queued
  JobRow job;
  job.id = 1;
  absl::Notification durable;
  size_t before = 0;  // imported records
  v1::RecordQuery all;
  all.set_limit(2000);
  writer.Write({PutJob{job}}, [&] {
    before = store.Query(all)->size();
    durable.Notify();
  });
  store.SetOpen(true);
  durable.WaitForNotification();
  EXPECT_LE(before, 128u) << "those of the transaction that ran, and of the job's own";
  for (std::thread& importer : importers) importer.join();
  EXPECT_EQ(store.Query(all)->size(), 1800u);
}

// While the store is slow, an import waits for a place no longer than it may.
TEST(StoreWriterTest, AnImportIsRefusedWhenItsTimeIsUp) {
  GatedStore store(MakeMemoryRecordStore());
  StoreWriter::Hooks hooks;
  hooks.blocked = [](const absl::Status&) { ADD_FAILURE(); };
  hooks.fatal = hooks.rejected = [](const std::string& reason) { ADD_FAILURE() << reason; };
  StoreWriter writer(&store, hooks);
  store.SetOpen(false);
  const std::vector<v1::Record> records(2000, MeasuredRecord(0, 0).record);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(absl::IsUnavailable(writer.Import(records, absl::Milliseconds(50)).status()))
        << "all but the first find the queue full";
  }
  store.SetOpen(true);
}

}  // namespace
}  // namespace heddle::scheduler
