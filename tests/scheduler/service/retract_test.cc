// Records that people retract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/eventually.h"
#include "tests/scheduler/service/gated_store.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

class RetractTest : public ServiceTest {
 protected:
  int64_t Retract(const v1::RecordQuery& query, const std::string& reason) {
    grpc::ClientContext context;
    v1::RetractRecordsRequest request;
    *request.mutable_query() = query;
    request.set_reason(reason);
    v1::RetractRecordsResponse response;
    const grpc::Status status = records_->RetractRecords(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.retracted();
  }
  // Records of one workload that this machine made up.
  void Import(int count) {
    grpc::ClientContext context;
    v1::ImportRecordsResponse response;
    auto writer = records_->ImportRecords(&context, &response);
    for (int i = 0; i < count; ++i) {
      v1::Record record;
      record.set_schema_version(1);
      record.set_workload_key("0123456789abcdef");
      record.set_target("llvm -mcpu=x");
      record.set_device_key("key");
      record.set_created_unix_ns(i);
      record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
      record.mutable_measurement()->add_samples_ns(5);
      writer->Write(record);
    }
    writer->WritesDone();
    ASSERT_TRUE(writer->Finish().ok());
    ASSERT_EQ(response.imported(), count);
  }
  static v1::RecordQuery Imported() {
    v1::RecordQuery query;
    query.set_imported_by("ipv4:127.0.0.1");
    return query;
  }
};

TEST_F(RetractTest, WhatAWorkerMeasuredIsMeasuredAgain) {
  WaitFinal(MustSubmit(Spec()));
  v1::RecordQuery query;
  query.set_worker("another worker");
  EXPECT_EQ(Retract(query, "its clock was broken"), 0);
  EXPECT_EQ(WaitFinal(MustSubmit(Spec())).trials(), 0);
  query.set_worker("w1");
  EXPECT_EQ(Retract(query, "its clock was broken"), 12);
  EXPECT_EQ(Retract(query, "again"), 0);
  EXPECT_EQ(Query({}).size(), 0u);
  v1::RecordQuery all;
  all.set_retracted(true);
  ASSERT_EQ(Query(all).size(), 12u);
  EXPECT_EQ(Query(all)[0].retraction().reason(), "its clock was broken");
  EXPECT_EQ(Query(all)[0].retraction().by(), "ipv4:127.0.0.1");
  const int learned = cluster_.worker.warm_results;
  const v1::Job again = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(again.trials(), 12);
  EXPECT_EQ(again.tasks(0).known_records(), 0);
  EXPECT_EQ(cluster_.worker.warm_results - learned, 6) << "of its own first rounds, none of before";
}

TEST_F(RetractTest, ARunningJobForgetsItsBest) {
  cluster_.behaviour.candidate_ms = 20;
  const std::string job = MustSubmit(Spec(30));
  Wait(job, [](const v1::Job& now) {
    return now.tasks_size() == 2 && now.tasks(0).best_ns() > 0 && now.tasks(1).best_ns() > 0;
  });
  v1::Job now;
  ASSERT_TRUE(Act(&v1::JobService::Stub::PauseJob, job, &now).ok());
  WaitQuiet(job);
  now = Get(job);
  v1::RecordQuery query;
  query.set_job(job);
  EXPECT_EQ(Retract(query, "a neighbour was noisy"), now.trials());
  const auto forgot = [&](const v1::Job& shown) {
    for (const v1::TaskStatus& task : shown.tasks()) {
      if (task.best_ns() != 0 || task.untuned_ns() != 0) return false;
    }
    return shown.trials() == now.trials();
  };
  EXPECT_TRUE(forgot(Get(job))) << Get(job).ShortDebugString();
  Stop();
  Start();
  EXPECT_TRUE(forgot(Get(job))) << Get(job).ShortDebugString();
  EXPECT_THAT(Get(job).tasks(0).first_error(), HasSubstr("a neighbour was noisy"));
  cluster_.behaviour.candidate_ms = 0;
  ASSERT_TRUE(Act(&v1::JobService::Stub::ResumeJob, job, &now).ok());
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_GT(done.tasks(0).best_ns(), 0);
}

// Many records come in several transactions.
TEST_F(RetractTest, AllThatMatchAreRetracted) {
  constexpr int kRecords = 2500;
  Import(kRecords);
  v1::RecordQuery query = Imported();
  query.set_limit(3);
  EXPECT_EQ(Query(query).size(), 3u);
  EXPECT_EQ(Retract(query, "made up"), kRecords) << "the limit is of what is shown";
  EXPECT_EQ(Query(query).size(), 0u);
}

// Pages after the first are read where the caller of Retract says, so that no thread waits for that of low priority.
TEST_F(RetractTest, ACallerWhoLeavesEndsIt) {
  constexpr int kRecords = 1000;
  Import(kRecords);
  v1::Retraction retraction;
  retraction.set_reason("made up");
  retraction.set_unix_ns(1);
  int later = 0;
  const auto left = loop_->Retract(
      Imported(), retraction,
      [&](const auto&... page) {
        ++later;
        return store_->QueryPage(page...);
      },
      [&] { return later == 2; });
  EXPECT_TRUE(absl::IsCancelled(left.status())) << left.status();
  EXPECT_EQ(later, 2);
  const int64_t rest = Retract(Imported(), "made up");
  EXPECT_GT(rest, 0);
  EXPECT_LT(rest, kRecords) << "what is retracted stays so";
}

// Pages of records stay away until they are let go.
class HeldPages final : public GatedStore {
 public:
  using GatedStore::GatedStore;
  absl::StatusOr<RecordPage> QueryPage(const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after,
                                       int64_t limit) override {
    ++held;
    go.WaitForNotification();
    return GatedStore::QueryPage(query, after, limit);
  }
  std::atomic<int> held = 0;
  absl::Notification go;
};

class HeldPagesTest : public RetractTest {
 protected:
  std::unique_ptr<RecordStore> Wrap(std::unique_ptr<RecordStore> store) override {
    auto held = std::make_unique<HeldPages>(std::move(store));
    pages_ = held.get();
    return held;
  }
  HeldPages* pages_ = nullptr;
};

// Each holds a thread of the server, and there may be no more of them than of long queries.
TEST_F(HeldPagesTest, RetractionsHaveSoManyPlaces) {
  constexpr int kCalls = 9;
  std::atomic<int> refused = 0, done = 0;
  std::vector<std::thread> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.emplace_back([&] {
      grpc::ClientContext context;
      v1::RetractRecordsRequest request;
      *request.mutable_query() = Imported();
      request.set_reason("made up");
      v1::RetractRecordsResponse response;
      const grpc::Status status = records_->RetractRecords(&context, request, &response);
      ++(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ? refused : done);
    });
  }
  EXPECT_TRUE(testing::Eventually([&] { return refused + pages_->held == kCalls; }));
  EXPECT_GT(refused, 0);
  EXPECT_GT(pages_->held, 0);
  pages_->go.Notify();
  for (std::thread& call : calls) call.join();
  EXPECT_EQ(refused + done, kCalls);
}

}  // namespace
}  // namespace heddle::scheduler
