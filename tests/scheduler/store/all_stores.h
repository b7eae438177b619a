// One suite for all record stores: what each test file of it needs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/store/memory_record_store.h"
#include "scheduler/store/postgres/postgres_record_store.h"
#include "scheduler/store/record_store.h"
#include "scheduler/store/sqlite_record_store.h"
#include "tests/scheduler/store/postgres_server.h"
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<RecordStore>(const std::string& directory)> make;
};

class RecordStoreTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    if (GetParam().name == "Postgres" && PostgresServer::Shared() == nullptr)
      GTEST_SKIP() << kNoPostgres;
    directory_ = TempDirectory();
    store_ = GetParam().make(directory_);
    ASSERT_NE(store_, nullptr);
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }
  absl::Status Apply(Batch batch) {
    auto results = store_->Apply({std::move(batch)});
    return results.ok() ? results->front() : results.status();
  }
  void AddJob(int64_t id, int tasks = 1, int candidates = 4) {
    Batch batch = {PutJob{MakeJob(id)}};
    for (int i = 0; i < tasks; ++i) batch.push_back(PutTask{MakeTask(id, i)});
    for (int i = 0; i < candidates; ++i) {
      batch.push_back(
          InsertCandidate{MakeCandidate(id, i + 1, i % tasks, i == 0 ? "default" : "random")});
    }
    ASSERT_TRUE(Apply(std::move(batch)).ok());
  }
  std::vector<v1::Record> Query(const v1::RecordQuery& query) {
    auto records = store_->Query(query);
    EXPECT_TRUE(records.ok()) << records.status();
    return records.ok() ? *records : std::vector<v1::Record>();
  }

  std::string directory_;
  std::unique_ptr<RecordStore> store_;
};

inline const auto kStores = ::testing::Values(
    StoreKind{"Memory", [](const std::string&) { return MakeMemoryRecordStore(); }},
    StoreKind{"Sqlite",
              [](const std::string& directory) -> std::unique_ptr<RecordStore> {
                auto store = OpenSqliteRecordStore(directory + "/test.db");
                EXPECT_TRUE(store.ok()) << store.status();
                return store.ok() ? *std::move(store) : nullptr;
              }},
    StoreKind{"Postgres", [](const std::string&) -> std::unique_ptr<RecordStore> {
                auto store = OpenPostgresRecordStore(PostgresServer::Shared()->NewDatabase());
                EXPECT_TRUE(store.ok()) << store.status();
                return store.ok() ? *std::move(store) : nullptr;
              }});
inline std::string StoreName(const ::testing::TestParamInfo<StoreKind>& info) {
  return info.param.name;
}

}  // namespace heddle::scheduler
