// Records that people retract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  {
    grpc::ClientContext context;
    v1::ImportRecordsResponse response;
    auto writer = records_->ImportRecords(&context, &response);
    for (int i = 0; i < kRecords; ++i) {
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
    ASSERT_EQ(response.imported(), kRecords);
  }
  v1::RecordQuery query;
  query.set_imported_by("ipv4:127.0.0.1");
  query.set_limit(3);
  EXPECT_EQ(Query(query).size(), 3u);
  EXPECT_EQ(Retract(query, "made up"), kRecords) << "the limit is of what is shown";
  EXPECT_EQ(Query(query).size(), 0u);
}

}  // namespace
}  // namespace heddle::scheduler
