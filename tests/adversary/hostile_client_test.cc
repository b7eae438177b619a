// Every call of the scheduler's services with mutated requests: each answer is typed, nothing ends, and the store stays whole.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/vocabulary/workload_key.h"
#include "proto/store.grpc.pb.h"
#include "tests/adversary/attack.h"
#include "tests/adversary/store_checks.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

v1::Record GoodRecord(int number) {
  v1::Record record;
  record.set_schema_version(1);
  record.set_workload(absl::StrCat("imported workload ", number));
  record.set_workload_key(WorkloadKey(record.workload()));
  record.set_target("llvm -mcpu=x");
  record.set_device_key("key");
  record.set_trace("split a 2");
  record.set_created_unix_ns(1000 + number);
  record.set_label("matmul");
  record.set_flops(100);
  v1::Measurement& measured = *record.mutable_measurement();
  measured.set_outcome(v1::OUTCOME_OK);
  for (const double ns : {3.0, 1.0, 2.0}) measured.add_samples_ns(ns);
  measured.mutable_evidence()->set_worker("far away");
  record.set_median_ns(2);
  return record;
}

class HostileClientTest : public ServiceTest {
 protected:
  // AttackWith, each call within a limit of time.
  template <typename Request>
  int Attack(const std::string& what, const Request& good,
             const std::function<grpc::Status(grpc::ClientContext*, const Request&)>& call) {
    return AttackWith<Request>(what, good, 150, [&](const Request& bad) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kServiceLimit));
      return call(&context, bad);
    });
  }
  // Each answer of a stream is dropped.
  template <typename Answer>
  static grpc::Status Drain(std::unique_ptr<grpc::ClientReader<Answer>> reader) {
    Answer answer;
    while (reader->Read(&answer)) {
    }
    return reader->Finish();
  }
  void Cancel(const std::string& job) {
    if (job.empty()) return;
    v1::Job ended;
    (void)Act(&v1::JobService::Stub::CancelJob, job, &ended);
  }
};

TEST_F(HostileClientTest, EveryCallOfJobs) {
  const std::string job = MustSubmit(Spec());
  ASSERT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
  v1::JobService::Stub& stub = *jobs_;
  using Context = grpc::ClientContext;

  v1::GetJobRequest get;
  get.set_job(job);
  EXPECT_GT(Attack<v1::GetJobRequest>("GetJob", get,
                                      [&](Context* c, const auto& r) {
                                        v1::Job answer;
                                        return stub.GetJob(c, r, &answer);
                                      }),
            0);
  v1::WatchJobRequest watch;
  watch.set_job(job);
  Attack<v1::WatchJobRequest>("WatchJob", watch, [&](Context* c, const auto& r) {
    return Drain<v1::Job>(stub.WatchJob(c, r));
  });
  Attack<v1::GetJobRequest>("GetTimeline", get, [&](Context* c, const auto& r) {
    v1::Timeline answer;
    return stub.GetTimeline(c, r, &answer);
  });
  v1::ListJobsRequest list;
  Attack<v1::ListJobsRequest>("ListJobs", list, [&](Context* c, const auto& r) {
    v1::ListJobsResponse answer;
    return stub.ListJobs(c, r, &answer);
  });
  v1::JobActionRequest act;
  act.set_job(job);
  act.set_reason("because");
  const auto action = [&](const std::string& name, Method method) {
    Attack<v1::JobActionRequest>(name, act, [&](Context* c, const auto& r) {
      v1::Job answer;
      return (stub.*method)(c, r, &answer);
    });
  };
  action("CancelJob", &v1::JobService::Stub::CancelJob);
  action("PauseJob", &v1::JobService::Stub::PauseJob);
  action("ResumeJob", &v1::JobService::Stub::ResumeJob);
  v1::PrioritizeJobRequest prioritize;
  prioritize.set_job(job);
  prioritize.set_priority(3);
  Attack<v1::PrioritizeJobRequest>("PrioritizeJob", prioritize, [&](Context* c, const auto& r) {
    v1::Job answer;
    return stub.PrioritizeJob(c, r, &answer);
  });
  v1::FetchModuleRequest fetch;
  fetch.set_job(job);
  Attack<v1::FetchModuleRequest>("FetchModule", fetch, [&](Context* c, const auto& r) {
    return Drain<v1::Chunk>(stub.FetchModule(c, r));
  });
  v1::ExplainTaskRequest explain;
  explain.set_job(job);
  explain.set_task("1");
  Attack<v1::ExplainTaskRequest>("ExplainTask", explain, [&](Context* c, const auto& r) {
    v1::TaskExplanation answer;
    return stub.ExplainTask(c, r, &answer);
  });
  Attack<v1::ListWorkersRequest>("ListDevices", {}, [&](Context* c, const auto& r) {
    v1::ListWorkersResponse answer;
    return stub.ListDevices(c, r, &answer);
  });
  EXPECT_EQ(WaitFinal(MustSubmit(Spec(8))).state(), v1::JOB_DONE);
  Stop();
  ExpectWholeStore(directory_ + "/heddle.db");
  Start();
}

TEST_F(HostileClientTest, EveryUpload) {
  v1::BlobList blobs;
  for (const char* bytes : {"one", "two"}) {
    v1::BlobRef& blob = *blobs.add_blobs();
    blob.set_sha256(Sha256Hex(bytes));
    blob.set_bytes(3);
  }
  Attack<v1::BlobList>("FindMissingBlobs", blobs, [&](grpc::ClientContext* c, const auto& r) {
    v1::BlobList answer;
    return jobs_->FindMissingBlobs(c, r, &answer);
  });
  v1::Chunk part;
  part.set_name(Sha256Hex("one"));
  part.set_data("one");
  part.set_last(true);
  part.set_sha256(part.name());
  Attack<v1::Chunk>("UploadBlobs", part, [&](grpc::ClientContext* c, const auto& r) {
    v1::BlobList answer;
    auto writer = jobs_->UploadBlobs(c, &answer);
    writer->Write(r);
    writer->WritesDone();
    return writer->Finish();
  });
  // Submit takes three kinds of messages in order. One of them is mutated.
  v1::SubmitRequest spec, parts, chunk;
  *spec.mutable_spec() = Spec();
  spec.mutable_spec()->mutable_options()->add_shapes()->set_input("x");
  *parts.mutable_parts() = blobs;
  parts.mutable_parts()->mutable_blobs()->RemoveLast();
  chunk.mutable_chunk()->set_name("model");
  chunk.mutable_chunk()->set_data("a model");
  chunk.mutable_chunk()->set_last(true);
  chunk.mutable_chunk()->set_sha256(Sha256Hex("a model"));
  const auto submit = [&](grpc::ClientContext* c, const v1::SubmitRequest& first,
                          const v1::SubmitRequest& second, const v1::SubmitRequest& third) {
    v1::SubmitResponse answer;
    auto writer = jobs_->Submit(c, &answer);
    (void)(writer->Write(first) && writer->Write(second) && writer->Write(third));
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    Cancel(answer.job());
    return status;
  };
  using Context = grpc::ClientContext;
  EXPECT_GT(Attack<v1::SubmitRequest>(
                "Submit spec", spec,
                [&](Context* c, const auto& r) { return submit(c, r, parts, chunk); }),
            0);
  Attack<v1::SubmitRequest>("Submit parts", parts,
                            [&](Context* c, const auto& r) { return submit(c, spec, r, chunk); });
  Attack<v1::SubmitRequest>("Submit chunk", chunk,
                            [&](Context* c, const auto& r) { return submit(c, spec, parts, r); });
  EXPECT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  Stop();
  ExpectWholeStore(directory_ + "/heddle.db");
  Start();
}

TEST_F(HostileClientTest, EveryCallOfRecords) {
  ASSERT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  int64_t rejected = 0;
  int number = 0;
  Attack<v1::Record>("ImportRecords", GoodRecord(0), [&](grpc::ClientContext* c, const auto& r) {
    v1::ImportRecordsResponse answer;
    auto writer = records_->ImportRecords(c, &answer);
    (void)(writer->Write(GoodRecord(++number)) && writer->Write(r));
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    rejected += answer.rejected();
    if (status.ok()) {
      EXPECT_GE(answer.imported(), 1) << "the good one before it";
    }
    return status;
  });
  EXPECT_GT(rejected, 0);
  for (const v1::Record& record : Query({})) {
    EXPECT_EQ(record.imported_by().empty(), record.candidate() != 0);
    EXPECT_FALSE(record.has_retraction());
  }
  v1::RecordQuery query;
  query.set_target("llvm -mcpu=x");
  query.set_valid_only(true);
  Attack<v1::RecordQuery>("QueryRecords", query, [&](grpc::ClientContext* c, const auto& r) {
    return Drain<v1::Record>(records_->QueryRecords(c, r));
  });
  v1::RetractRecordsRequest retract;
  retract.mutable_query()->set_worker("w1");
  retract.mutable_query()->set_id(1);
  retract.set_reason("a test");
  Attack<v1::RetractRecordsRequest>("RetractRecords", retract,
                                    [&](grpc::ClientContext* c, const auto& r) {
                                      v1::RetractRecordsResponse answer;
                                      return records_->RetractRecords(c, r, &answer);
                                    });
  EXPECT_EQ(WaitFinal(MustSubmit(Spec(8))).state(), v1::JOB_DONE);
  Stop();
  ExpectWholeStore(directory_ + "/heddle.db");
  Start();
}

TEST_F(HostileClientTest, EveryCallOfTheStore) {
  ASSERT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  const auto store =
      v1::StoreService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  using Context = grpc::ClientContext;
  // It asks for nothing, so there is nothing to mutate: only fields that nobody knows.
  v1::BackUpRequest back_up;
  back_up.GetReflection()->MutableUnknownFields(&back_up)->AddLengthDelimited(9, "x");
  for (int i = 0; i < 3; ++i) {
    Context context;
    const grpc::Status status = Drain<v1::BackUpPart>(store->BackUp(&context, back_up));
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  v1::BlobList blobs;
  for (const std::string& digest : {Sha256Hex("a model"), Sha256Hex("nobody has this")}) {
    v1::BlobRef& blob = *blobs.add_blobs();
    blob.set_sha256(digest);
    blob.set_bytes(7);
  }
  EXPECT_GT(Attack<v1::BlobList>("FetchBlobs", blobs,
                                 [&](Context* c, const auto& r) {
                                   return Drain<v1::Chunk>(store->FetchBlobs(c, r));
                                 }),
            0);
  v1::CheckRequest check;
  check.set_read_blobs(true);
  Attack<v1::CheckRequest>("Check", check, [&](Context* c, const auto& r) {
    return Drain<v1::CheckProgress>(store->Check(c, r));
  });
  v1::CollectRequest collect;
  collect.set_older_than_s(3600);
  collect.set_keep_jobs(10);
  EXPECT_GT(Attack<v1::CollectRequest>("Collect", collect,
                                       [&](Context* c, const auto& r) {
                                         return Drain<v1::CollectProgress>(store->Collect(c, r));
                                       }),
            0);
  EXPECT_EQ(WaitFinal(MustSubmit(Spec(8))).state(), v1::JOB_DONE);
  Stop();
  ExpectWholeStore(directory_ + "/heddle.db");
  Start();
}

TEST_F(HostileClientTest, RequestsAreRefusedByTheNameOfTheirField) {
  std::string job;
  v1::JobSpec spec = Spec();
  spec.set_name("two\nlines");
  EXPECT_EQ(Submit(spec, "m", &job).error_message(),
            "spec.name is not one line of text without control characters");
  spec = Spec();
  spec.set_user(std::string(129, 'u'));
  EXPECT_EQ(Submit(spec, "m", &job).error_message(),
            "spec.user has 129 bytes; at most 128 are allowed");
  v1::Record retracted = GoodRecord(1);
  retracted.mutable_retraction()->set_reason("a broken clock");
  grpc::ClientContext import;
  v1::ImportRecordsResponse imported;
  auto writer = records_->ImportRecords(&import, &imported);
  writer->Write(retracted);
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_EQ(imported.rejected(), 1);
  EXPECT_EQ(imported.first_error(),
            "record 1: it was retracted where it comes from: a broken clock");
  grpc::ClientContext context;
  v1::RetractRecordsRequest request;
  v1::RetractRecordsResponse response;
  request.set_reason("all of them");
  const grpc::Status all = records_->RetractRecords(&context, request, &response);
  EXPECT_EQ(all.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(all.error_message(), HasSubstr("say which records"));
}

}  // namespace
}  // namespace heddle::scheduler
