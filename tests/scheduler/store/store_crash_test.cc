// Kills a writing process and opens its database again: what it had acknowledged must be there, and
// every batch as a whole. (kill -9 does not test the disk's own cache; synchronous=FULL is what
// SQLite offers against power cuts.)
//
// HEDDLE_STORE_KILLS sets the number of kills.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/store/sqlite_record_store.h"

namespace heddle::scheduler {
namespace {

constexpr int kPerBatch = 3;
constexpr int kKillsOfADatabase = 50;  // each is read as a whole, so it must not grow for ever

int Kills() {
  const char* asked = std::getenv("HEDDLE_STORE_KILLS");
  return asked == nullptr ? 12 : std::atoi(asked);
}

Batch MakeBatch(int64_t number) {
  Batch batch;
  for (int i = 0; i < kPerBatch; ++i) {
    const int64_t id = number * kPerBatch + i + 1;
    CandidateRow row;
    row.job = 1;
    row.id = id;
    row.trace = std::string(300, 'x');
    batch.push_back(InsertCandidate{row});
  }
  return batch;
}

// Writes batches from `first` on and tells the number of each one that is durable.
[[noreturn]] void WriteForEver(const std::string& path, int64_t first, int pipe) {
  auto store = OpenSqliteRecordStore(path);
  if (!store.ok()) _exit(1);
  for (int64_t number = first;; ++number) {
    auto results = (*store)->Apply({MakeBatch(number)});
    if (!results.ok() || !results->front().ok()) _exit(2);
    if (write(pipe, &number, sizeof(number)) != sizeof(number)) _exit(3);
  }
}

// A database with a job that has no candidates.
void Begin(const std::string& path) {
  auto store = OpenSqliteRecordStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  JobRow job;
  job.id = 1;
  job.job.set_state(v1::JOB_TUNING);
  TaskRow task;
  task.job = 1;
  task.info.set_key("0000000000000000");
  ASSERT_TRUE((*store)->Apply({Batch{PutJob{job}, PutTask{task}}})->front().ok());
}

TEST(StoreCrashTest, NothingAcknowledgedIsLostAndNothingIsHalf) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/crash", getpid());
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::mt19937 random(1);
  std::string path;
  int64_t next = 0;
  const int kills = Kills();
  for (int round = 0; round < kills; ++round) {
    if (round % kKillsOfADatabase == 0) {
      path = absl::StrCat(directory, "/crash", round, ".db");
      next = 0;
      Begin(path);
      if (HasFatalFailure()) return;
    }
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t writer = fork();
    if (writer == 0) {
      close(pipe_ends[0]);
      WriteForEver(path, next, pipe_ends[1]);
    }
    close(pipe_ends[1]);
    int64_t acknowledged = next - 1, number = 0;
    const int wanted = 1 + static_cast<int>(random() % 40);
    for (int i = 0; i < wanted && read(pipe_ends[0], &number, sizeof(number)) == sizeof(number);
         ++i)
      acknowledged = number;
    ASSERT_GE(acknowledged, next) << "the writer ended by itself";
    absl::SleepFor(absl::Microseconds(random() % 3000));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    while (read(pipe_ends[0], &number, sizeof(number)) == sizeof(number)) acknowledged = number;
    close(pipe_ends[0]);
    auto store = OpenSqliteRecordStore(path);
    ASSERT_TRUE(store.ok()) << store.status();
    auto jobs = (*store)->LoadJobs();
    ASSERT_TRUE(jobs.ok());
    const int64_t rows = static_cast<int64_t>(jobs->front().candidates.size());
    EXPECT_GE(rows, (acknowledged + 1) * kPerBatch) << "an acknowledged batch is missing";
    EXPECT_LE(rows, (acknowledged + 2) * kPerBatch) << "at most one batch was under way";
    EXPECT_EQ(rows % kPerBatch, 0) << "half a batch";
    next = rows / kPerBatch;
  }
  std::printf("%d kills\n", kills);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace heddle::scheduler
