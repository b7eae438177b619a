// The thread that writes: what it does when the store refuses, or takes nothing.
#include "scheduler/store/store_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/store/memory_record_store.h"
#include "scheduler/store/sqlite_record_store.h"

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
    batch.push_back(InsertCandidate{{1, i, 0, "trace", ""}});
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

// Its jobs would go on from a state that the store does not have.
TEST(StoreWriterTest, AStaleSearchStateEndsTheProcess) {
  std::unique_ptr<RecordStore> store = MakeMemoryRecordStore();
  const SlotId slot{"w", "cpu0"};
  Batch newer = JobWithCandidates(1);
  newer.insert(newer.begin(), CheckFence{{slot, 5}});
  ASSERT_TRUE(store->Apply({newer})->front().ok());
  std::atomic<int> fatal{0};
  StoreWriter::Hooks hooks;
  hooks.blocked = [](const std::string&) { ADD_FAILURE(); };
  hooks.fatal = [&](const std::string&) { ++fatal; };
  hooks.rejected = [](const std::string& reason) { ADD_FAILURE() << reason; };
  StoreWriter writer(store.get(), hooks);
  writer.Write({CheckFence{{slot, 4}}, PutSearchState{1, 0, "older"}});
  writer.Flush(absl::Seconds(60));
  EXPECT_EQ(fatal, 1);
  EXPECT_EQ(store->LoadJobs()->front().states[0], "");
}

// SQLite's own files, on a disk that is full while `disk_full` says so.
std::atomic<bool> disk_full{false};
sqlite3_vfs disk;
sqlite3_io_methods disk_methods[2];  // of databases, and of files that have no locks
int (*real_write)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;

int WriteUnlessFull(sqlite3_file* file, const void* data, int size, sqlite3_int64 at) {
  return disk_full ? SQLITE_FULL : real_write(file, data, size, at);
}

int OpenOnDisk(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
  sqlite3_vfs* real = sqlite3_vfs_find("unix");
  const int code = real->xOpen(real, name, file, flags, out);
  if (code != SQLITE_OK || file->pMethods == nullptr) return code;
  sqlite3_io_methods& methods = disk_methods[(flags & SQLITE_OPEN_MAIN_DB) != 0 ? 0 : 1];
  methods = *file->pMethods;
  real_write = methods.xWrite;
  methods.xWrite = WriteUnlessFull;
  file->pMethods = &methods;
  return code;
}

class FullDiskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sqlite3_initialize();
    disk = *sqlite3_vfs_find("unix");
    disk.zName = "disk";
    disk.pNext = nullptr;
    disk.xOpen = OpenOnDisk;
    ASSERT_EQ(sqlite3_vfs_register(&disk, 1), SQLITE_OK);
    path_ = absl::StrCat(::testing::TempDir(), "/full", getpid(), ".db");
    store_ = *OpenSqliteRecordStore(path_);
  }
  void TearDown() override {
    disk_full = false;
    store_.reset();
    sqlite3_vfs_unregister(&disk);
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + end);
  }
  static bool Eventually(const std::function<bool()>& there) {
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (!there() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(5));
    return there();
  }
  StoreWriter::Hooks Hooks() {
    StoreWriter::Hooks hooks;
    hooks.blocked = [this](const std::string& reason) { ++(reason.empty() ? resumed_ : blocked_); };
    hooks.fatal = [](const std::string& reason) { ADD_FAILURE() << reason; };
    hooks.rejected = hooks.fatal;
    return hooks;
  }

  std::string path_;
  std::unique_ptr<RecordStore> store_;
  std::atomic<int> blocked_{0}, resumed_{0}, durable_{0};
};

TEST_F(FullDiskTest, WritesWaitForSpaceAndGoOn) {
  StoreWriter writer(store_.get(), Hooks());
  disk_full = true;
  writer.Write(JobWithCandidates(2), [this] { ++durable_; });
  writer.Write({Measured(1, 7)}, [this] { ++durable_; });
  ASSERT_TRUE(Eventually([this] { return blocked_ > 0; }));
  EXPECT_EQ(durable_, 0) << "nothing is acknowledged that is not on disk";
  EXPECT_TRUE(store_->LoadJobs()->empty());
  disk_full = false;
  ASSERT_TRUE(Eventually([this] { return durable_ == 2; }));
  EXPECT_EQ(blocked_, 1);
  EXPECT_EQ(resumed_, 1);
  EXPECT_EQ(store_->Query({})->size(), 1u);
}

TEST_F(FullDiskTest, TheEndDoesNotWaitForSpace) {
  {
    StoreWriter writer(store_.get(), Hooks());
    disk_full = true;
    writer.Write(JobWithCandidates(1), [this] { ++durable_; });
    ASSERT_TRUE(Eventually([this] { return blocked_ > 0; }));
    writer.StopWaiting();
    for (int i = 0; i < 5000; ++i) writer.Write({SetAttempts{1, 1, i}});  // more than the queue
  }
  EXPECT_EQ(durable_, 0);
}

}  // namespace
}  // namespace heddle::scheduler
