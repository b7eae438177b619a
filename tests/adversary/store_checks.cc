#include "tests/adversary/store_checks.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include "base/vocabulary/limits.h"
#include "proto/message_rules.h"
#include "scheduler/store/sqlite_record_store.h"
#include "tests/adversary/mutate.h"

namespace heddle::scheduler {
namespace {

// The first column of the first row; empty: there is none.
std::string Ask(sqlite3* db, const char* sql) {
  std::string answer;
  const auto take = [](void* out, int, char** values, char**) {
    *static_cast<std::string*>(out) = values[0] == nullptr ? "null" : values[0];
    return 1;
  };
  sqlite3_exec(db, sql, take, &answer, nullptr);
  return answer;
}

}  // namespace

void ExpectWholeStore(const std::string& path) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(Ask(db, "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(Ask(db, "PRAGMA foreign_key_check"), "") << "a row refers to one that is not there";
  sqlite3_close(db);
  auto store = OpenSqliteRecordStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  v1::RecordQuery query;
  query.set_limit(kMaxQueryLimit);
  query.set_with_workload(true);
  query.set_retracted(true);
  const auto records = (*store)->Query(query);
  ASSERT_TRUE(records.ok()) << records.status();
  for (const v1::Record& record : *records) {
    EXPECT_EQ(CheckRecord(record), absl::OkStatus()) << record.ShortDebugString().substr(0, 2000);
    EXPECT_TRUE(AllFinite(record));
  }
  const auto jobs = (*store)->LoadJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  for (const StoredJob& job : *jobs) {
    EXPECT_TRUE(AllFinite(job.row.job)) << job.row.job.id();
    for (const TaskRow& task : job.tasks) EXPECT_TRUE(AllFinite(task.info)) << job.row.job.id();
  }
}

}  // namespace heddle::scheduler
