// Jobs of one tenant as people of the lab find them, over TLS: who sees, ends and fetches what. The
// requests are made from the protos, so that a new method that names a job is held to this, too.
#include <gmock/gmock.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/access/access_table.h"
#include "proto/access/audit_log.h"
#include "proto/access/channel.h"
#include "proto/access/listener.h"
#include "tests/access/lab.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::SizeIs;

class TenantsTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    tokens_ = std::make_unique<TokenFile>(directory_ + "/tokens");
    audit_ = AuditLog::Open(directory_ + "/audit").value();
    guarded_jobs_ = std::make_unique<JobServiceImpl>(loop_.get(), store_.get(), blobs_.get(),
                                                     &calls_, Limits(), tokens_.get());
    guarded_records_ = std::make_unique<RecordServiceImpl>(loop_.get(), store_.get(), &calls_,
                                                           Limits(), tokens_.get());
    grpc::ServerBuilder builder;
    int port = 0;
    ListenerOptions listener;
    listener.address = "127.0.0.1:0";
    listener.credentials = Lab::Get().Of("scheduler");
    listener.tokens = tokens_.get();
    listener.refused = [this](const Identity& caller, const std::string& method,
                              const absl::Status& why) { audit_->Refused(caller, method, why); };
    ASSERT_TRUE(AddListener(listener, &builder, &port).ok());
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(audit_->Interceptor(tokens_.get()));
    builder.experimental().SetInterceptorCreators(std::move(creators));
    builder.RegisterService(guarded_jobs_.get());
    builder.RegisterService(guarded_records_.get());
    guarded_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void TearDown() override {
    guarded_jobs_->Stop();
    guarded_->Shutdown(std::chrono::system_clock::now());
    guarded_.reset();
    ServiceTest::TearDown();
  }

  std::shared_ptr<grpc::Channel> As(const std::string& name, const std::string& token = "") const {
    return MakeChannel(address_, PeerName(Role::kScheduler), Lab::Get().Of(name, token));
  }
  // Submits by `name`, whose request says it were of somebody else, and waits for the end.
  std::string SubmitAs(const std::shared_ptr<grpc::Channel>& channel) {
    jobs_ = v1::JobService::NewStub(channel);
    v1::JobSpec spec = Spec(3);
    spec.set_user("somebody else");
    const std::string job = MustSubmit(spec);
    const std::shared_ptr<const v1::Job> done = Finished(job);
    EXPECT_EQ(done->state(), v1::JOB_DONE) << done->reason();
    return job;
  }
  std::shared_ptr<const v1::Job> Finished(const std::string& job) const {
    const absl::Time limit = absl::Now() + kServiceLimit;
    auto snapshot = loop_->jobs().Get(job).value();
    while (snapshot.job->finished_unix_ns() == 0 && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(5));
      snapshot = loop_->jobs().Get(job).value();
    }
    return snapshot.job;
  }
  // A request of the method that names the job; empty if the method's requests name none.
  static std::string RequestFor(const google::protobuf::MethodDescriptor& method,
                                const std::string& job) {
    const auto* field = method.input_type()->FindFieldByName("job");
    if (method.client_streaming() || field == nullptr) return "";
    google::protobuf::DynamicMessageFactory factory;
    const std::unique_ptr<google::protobuf::Message> message(
        factory.GetPrototype(method.input_type())->New());
    message->GetReflection()->SetString(message.get(), field, job);
    if (const auto* task = method.input_type()->FindFieldByName("task"))
      message->GetReflection()->SetString(message.get(), task, "1");
    return message->SerializeAsString();
  }
  static std::vector<std::string> JobsOf(const Answer& answer) {
    std::vector<std::string> ids;
    v1::ListJobsResponse list;
    if (!answer.messages.empty()) list.ParseFromString(answer.messages.front());
    for (const v1::Job& job : list.jobs()) ids.push_back(job.id());
    return ids;
  }
  static std::vector<v1::Record> RecordsOf(const Answer& answer) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    std::vector<v1::Record> records(answer.messages.size());
    for (size_t i = 0; i < records.size(); ++i) records[i].ParseFromString(answer.messages[i]);
    return records;
  }
  std::vector<nlohmann::json> Lines(const std::string& name) const {
    std::ifstream file(directory_ + "/audit/" + name + ".jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  std::unique_ptr<TokenFile> tokens_;
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<JobServiceImpl> guarded_jobs_;
  std::unique_ptr<RecordServiceImpl> guarded_records_;
  std::unique_ptr<grpc::Server> guarded_;
  std::string address_;
};

TEST_F(TenantsTest, TheTenantFollowsFromTheCallerAndNotFromTheRequest) {
  EXPECT_EQ(Finished(SubmitAs(As("ann")))->spec().user(), "vision");
  EXPECT_EQ(Finished(SubmitAs(As("bob")))->spec().user(), "sound");
  EXPECT_EQ(Finished(SubmitAs(As("operator")))->spec().user(), "operator");
  const std::string token = Lab::Run(
      {"token", directory_ + "/tokens", "--role", "user", "--name", "dora", "--tenant", "speech"});
  EXPECT_EQ(Finished(SubmitAs(As("ann", token)))->spec().user(), "speech");
}

// Every method that names a job, by everybody, for a job of ann's tenant.
TEST_F(TenantsTest, AJobIsThereOnlyForThoseWhoMaySeeIt) {
  const std::string job = SubmitAs(As("ann"));
  int methods = 0;
  for (const auto* method : AllMethods()) {
    const std::string request = RequestFor(*method, job);
    const std::string name = NameOf(*method);
    if (request.empty() || method->service()->name() != "JobService") continue;
    ++methods;
    for (const char* caller : {"ann", "carl", "bob", "operator", "eve"}) {
      const Credentials credentials = Lab::Get().Of(caller);
      const auto channel = As(caller);
      const Answer answer = Call(channel, name, request);
      if (!CheckMethod(credentials.tls->identity, name).ok()) {
        EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
            << caller << " " << name;
      } else if (MayUse(credentials.tls->identity, name, "vision")) {
        // An action may come too late; what matters is that the caller learns of the job.
        EXPECT_TRUE(answer.status.ok() ||
                    answer.status.error_code() == grpc::StatusCode::FAILED_PRECONDITION)
            << caller << " " << name << ": " << answer.status.error_message();
      } else {
        EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND) << caller << " " << name;
        EXPECT_TRUE(answer.messages.empty());
        // Exactly what a job that never was gives.
        const Answer none = Call(channel, name, RequestFor(*method, "j999999"));
        EXPECT_EQ(none.status.error_code(), grpc::StatusCode::NOT_FOUND);
        std::string message = none.status.error_message();
        message.replace(message.find("j999999"), 7, job);
        EXPECT_EQ(answer.status.error_message(), message) << name;
      }
    }
  }
  EXPECT_EQ(methods, 9) << "methods of JobService that name a job";
}

TEST_F(TenantsTest, BobMayNotEndWhatAnnBegan) {
  cluster_.behaviour.candidate_ms = 50;
  jobs_ = v1::JobService::NewStub(As("ann"));
  const std::string job = MustSubmit(Spec(1000));
  v1::JobActionRequest request;
  request.set_job(job);
  for (const char* action : {"CancelJob", "PauseJob", "ResumeJob", "PrioritizeJob"}) {
    const std::string method = absl::StrCat("heddle.v1.JobService/", action);
    EXPECT_EQ(Call(As("bob"), method, request.SerializeAsString()).status.error_code(),
              grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(Call(As("eve"), method, request.SerializeAsString()).status.error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_EQ(loop_->jobs().Get(job)->job->finished_unix_ns(), 0);
  EXPECT_TRUE(
      Call(As("carl"), "heddle.v1.JobService/CancelJob", request.SerializeAsString()).status.ok());
  EXPECT_EQ(Finished(job)->state(), v1::JOB_CANCELLED);
}

TEST_F(TenantsTest, ListsHoldOnlyWhatTheCallerMaySee) {
  const std::string anns = SubmitAs(As("ann")), bobs = SubmitAs(As("bob"));
  v1::ListJobsRequest all;
  all.set_all(true);
  const auto list = [&](const char* name) {
    return JobsOf(Call(As(name), "heddle.v1.JobService/ListJobs", all.SerializeAsString()));
  };
  EXPECT_THAT(list("ann"), ElementsAre(anns));
  EXPECT_THAT(list("carl"), ElementsAre(anns));
  EXPECT_THAT(list("bob"), ElementsAre(bobs));
  EXPECT_THAT(list("operator"), ElementsAre(bobs, anns));
  EXPECT_THAT(list("eve"), ElementsAre(bobs, anns));
}

TEST_F(TenantsTest, RecordsAreSharedWithoutTheJobsOfOthers) {
  const std::string anns = SubmitAs(As("ann"));
  const auto query = [&](const char* name, const std::string& job) {
    v1::RecordQuery request;
    request.set_job(job);
    return RecordsOf(
        Call(As(name), "heddle.v1.RecordService/QueryRecords", request.SerializeAsString()));
  };
  const std::vector<v1::Record> own = query("ann", "");
  ASSERT_THAT(own, Not(SizeIs(0)));
  for (const v1::Record& record : own) EXPECT_EQ(record.job(), anns);
  const std::vector<v1::Record> others = query("bob", "");
  ASSERT_EQ(others.size(), own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(others[i].job(), "");
    EXPECT_EQ(others[i].candidate(), 0);
    EXPECT_EQ(others[i].trace(), own[i].trace());
    EXPECT_EQ(others[i].median_ns(), own[i].median_ns());
  }
  EXPECT_EQ(query("ann", anns).size(), own.size());
  EXPECT_EQ(query("eve", anns).size(), own.size());
  EXPECT_THAT(query("bob", anns), SizeIs(0)) << "as if there were no such job";
  EXPECT_THAT(query("bob", "j999999"), SizeIs(0));
}

// The job of an imported record is one of another service, whatever job of this one has its number.
TEST_F(TenantsTest, TheJobOfAnImportedRecordIsToldToWhoeverImportedIt) {
  const std::string bobs = SubmitAs(As("bob"));
  const auto imported = [&](const char* name) {
    v1::RecordQuery request;
    request.set_device_key("elsewhere");
    return RecordsOf(
        Call(As(name), "heddle.v1.RecordService/QueryRecords", request.SerializeAsString()));
  };
  v1::RecordQuery all;
  InsertRecord insert;
  insert.record = store_->QueryPage(all, std::nullopt, 1)->records.at(0);
  ASSERT_EQ(insert.record.job(), bobs);
  insert.record.set_device_key("elsewhere");
  insert.imported = true;
  insert.record.set_imported_by(ToText(Lab::Get().Of("ann").tls->identity));
  ASSERT_TRUE(store_->Apply({Batch{insert}})->front().ok());
  ASSERT_THAT(imported("bob"), SizeIs(1));
  EXPECT_EQ(imported("bob")[0].job(), "");
  EXPECT_EQ(imported("ann")[0].job(), bobs);
  EXPECT_EQ(imported("operator")[0].job(), bobs);
}

TEST_F(TenantsTest, TheAuditLogSaysWhoDidWhat) {
  const std::string job = SubmitAs(As("ann"));
  v1::JobActionRequest request;
  request.set_job(job);
  request.set_reason("because");
  Call(As("bob"), "heddle.v1.JobService/CancelJob", request.SerializeAsString());
  Call(As("operator"), "heddle.v1.JobService/CancelJob", request.SerializeAsString());
  Call(As("eve"), "heddle.v1.JobService/CancelJob", request.SerializeAsString());
  Call(As("ann"), "heddle.v1.JobService/GetJob", request.SerializeAsString());
  const std::vector<nlohmann::json> calls = Lines("calls");
  ASSERT_EQ(calls.size(), 3u) << "what only reads is not in it";
  const auto field = [&](size_t line, const char* name) { return calls[line].value(name, ""); };
  EXPECT_EQ(field(0, "method"), "heddle.v1.JobService/Submit");
  EXPECT_EQ(field(0, "role"), "user");
  EXPECT_EQ(field(0, "name"), "ann");
  EXPECT_EQ(field(0, "tenant"), "vision");
  EXPECT_EQ(field(0, "job"), job);
  EXPECT_EQ(field(0, "result"), "OK");
  EXPECT_EQ(field(1, "name"), "bob");
  EXPECT_EQ(field(1, "job"), job);
  EXPECT_EQ(field(1, "result"), "NOT_FOUND");
  EXPECT_EQ(field(2, "name"), "operator");
  EXPECT_EQ(field(2, "result"), "FAILED_PRECONDITION");
  const std::vector<nlohmann::json> refused = Lines("refused");
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].value("name", ""), "eve");
  EXPECT_EQ(refused[0].value("result", ""), "PERMISSION_DENIED");
}

}  // namespace
}  // namespace heddle::scheduler
