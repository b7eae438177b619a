// The thread that writes: what it does when the store refuses, or takes nothing.
#include "scheduler/store_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "scheduler/memory_record_store.h"

namespace heddle::scheduler {
namespace {

InsertRecord Measured(int64_t candidate, uint64_t token) {
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
    batch.push_back(InsertCandidate{{1, i, 0, "trace", "", 0, false, std::nullopt, 0, ""}});
  }
  return batch;
}

TEST(StoreWriterTest, AStaleTokenCostsItsRecordAndNothingElse) {
  std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  std::atomic<int> rejected{0};
  StoreWriter::Hooks hooks;
  hooks.blocked = [](const std::string&) { ADD_FAILURE(); };
  hooks.fatal = [](const std::string& reason) { ADD_FAILURE() << reason; };
  hooks.rejected = [&](const std::string&) { ++rejected; };
  StoreWriter writer(store.get(), hooks);
  writer.Write(JobWithCandidates(3));
  writer.Write({Measured(1, 100)});
  writer.Write({Measured(2, 99)});
  writer.Write({Measured(3, 101)});
  writer.Flush(absl::Seconds(60));
  EXPECT_EQ(rejected, 1);
  EXPECT_EQ(store->Query({})->size(), 2u);
  EXPECT_EQ(store->LoadJobs()->front().candidates[1].outcome, std::nullopt);
}

}  // namespace
}  // namespace heddle::scheduler
