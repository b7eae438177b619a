// The scheduler's services on a port of their own over a database on disk, and calls to them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/service/services.h"
#include "scheduler/service/storage/store_service.h"
#include "scheduler/store/sqlite_record_store.h"
#include "tests/scheduler/service/fake_cluster.h"

namespace heddle::scheduler {

inline constexpr absl::Duration kServiceLimit =
    absl::Seconds(60);  // for a machine that does a lot besides

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/service", getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    Start();
  }
  void TearDown() override {
    Stop();
    std::filesystem::remove_all(directory_);
  }

  // What the scheduler uses as its store, made of the one on disk.
  virtual std::unique_ptr<RecordStore> Wrap(std::unique_ptr<RecordStore> store) { return store; }

  // What the service allows.
  virtual ServiceLimits Limits() const {
    ServiceLimits limits;
    limits.max_model_bytes = 2 << 20;
    return limits;
  }

  void Start() {
    auto store = OpenSqliteRecordStore(directory_ + "/heddle.db");
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = Wrap(*std::move(store));
    blobs_ = *BlobStore::Open(directory_ + "/blobs");
    SchedulerLoop::Options options;
    options.tracker_address = cluster_.tracker_address();
    options.fatal = [](const std::string& reason) { ADD_FAILURE() << reason; };
    auto loop = SchedulerLoop::Load(options, store_.get(), blobs_.get());
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    loop_->Begin();
    jobs_service_ = std::make_unique<JobServiceImpl>(loop_.get(), store_.get(), blobs_.get(),
                                                     &calls_, Limits());
    records_service_ =
        std::make_unique<RecordServiceImpl>(loop_.get(), store_.get(), &calls_, Limits());
    collector_ = std::make_unique<Collector>(loop_.get(), store_.get(), blobs_.get());
    store_service_ = std::make_unique<StoreServiceImpl>(directory_ + "/heddle.db", blobs_.get(),
                                                        collector_.get(), &calls_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(jobs_service_.get());
    builder.RegisterService(records_service_.get());
    builder.RegisterService(store_service_.get());
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
    jobs_ = v1::JobService::NewStub(channel);
    records_ = v1::RecordService::NewStub(channel);
  }
  // As abruptly as a process can do it to itself: running stages are cut off.
  void Stop() {
    jobs_service_->Stop();
    store_service_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    loop_.reset();
    store_service_.reset();
    blobs_.reset();
    store_.reset();
  }

  static v1::JobSpec Spec(int trials = 6) {
    v1::JobSpec spec;
    spec.set_name("model");
    spec.set_target("llvm -mcpu=x");
    spec.set_trials_per_task(trials);
    spec.set_batch(3);
    spec.set_allocation("uniform");
    spec.set_plan_search("off");
    return spec;
  }
  grpc::Status Submit(const v1::JobSpec& spec, const std::string& model, std::string* job,
                      const std::string& digest = "", const std::string& submit_key = "") {
    grpc::ClientContext context;
    v1::SubmitResponse response;
    auto writer = jobs_->Submit(&context, &response);
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_submit_key(submit_key);
    bool open = writer->Write(request);
    for (size_t at = 0; open && at < model.size(); at += 1 << 20) {
      request.mutable_chunk()->set_name("model");
      request.mutable_chunk()->set_data(model.substr(at, 1 << 20));
      request.mutable_chunk()->set_last(at + (1 << 20) >= model.size());
      request.mutable_chunk()->set_sha256(digest);
      open = writer->Write(request);
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    *job = response.job();
    return status;
  }
  std::string MustSubmit(const v1::JobSpec& spec, const std::string& model = "a model") {
    std::string job;
    const grpc::Status status = Submit(spec, model, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  v1::Job Get(const std::string& job) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job(job);
    v1::Job response;
    EXPECT_TRUE(jobs_->GetJob(&context, request, &response).ok());
    return response;
  }
  v1::Job Wait(const std::string& job, const std::function<bool(const v1::Job&)>& until) {
    const absl::Time limit = absl::Now() + kServiceLimit;
    v1::Job last = Get(job);
    while (!until(last) && absl::Now() < limit) {
      absl::SleepFor(absl::Milliseconds(5));
      last = Get(job);
    }
    EXPECT_TRUE(until(last)) << last.ShortDebugString();
    return last;
  }
  v1::Job WaitFinal(const std::string& job) {
    return Wait(job, [](const v1::Job& now) { return now.finished_unix_ns() != 0; });
  }
  // Waits until nothing of a paused job happens any more: no slot is held, none was given away for a
  // while, and all that was measured is shown. (A stage that was ordered before the pause may get its
  // lease only after it.)
  void WaitQuiet(const std::string& job) {
    const auto now = [&] { return std::pair(cluster_.tracker.grants(), Get(job).trials()); };
    const absl::Time limit = absl::Now() + kServiceLimit;
    for (std::pair<int, int> before(-1, -1);
         cluster_.tracker.Held("cpu0") || cluster_.tracker.Held("profile1") || before != now();) {
      ASSERT_LT(absl::Now(), limit);
      before = now();
      absl::SleepFor(absl::Milliseconds(200));
    }
  }
  using Method = grpc::Status (v1::JobService::Stub::*)(grpc::ClientContext*,
                                                        const v1::JobActionRequest&, v1::Job*);
  grpc::Status Act(Method method, const std::string& job, v1::Job* response) {
    grpc::ClientContext context;
    v1::JobActionRequest request;
    request.set_job(job);
    request.set_reason("because");
    return (jobs_.get()->*method)(&context, request, response);
  }
  grpc::Status Fetch(const std::string& job, v1::ScheduleChoice choice, std::string* module) {
    grpc::ClientContext context;
    v1::FetchModuleRequest request;
    request.set_job(job);
    request.set_choice(choice);
    auto reader = jobs_->FetchModule(&context, request);
    v1::Chunk chunk;
    module->clear();
    while (reader->Read(&chunk)) *module += chunk.data();
    return reader->Finish();
  }
  std::vector<v1::Record> Query(const v1::RecordQuery& query) {
    grpc::ClientContext context;
    auto reader = records_->QueryRecords(&context, query);
    std::vector<v1::Record> records;
    v1::Record record;
    while (reader->Read(&record)) records.push_back(record);
    EXPECT_TRUE(reader->Finish().ok());
    return records;
  }
  void ExpectEachTrialOnce(const v1::Job& job) {
    v1::RecordQuery query;
    query.set_job(job.id());
    std::set<int64_t> candidates;
    for (const v1::Record& record : Query(query)) {
      EXPECT_TRUE(candidates.insert(record.candidate()).second);
      EXPECT_NE(record.measurement().outcome(), v1::OUTCOME_LOST);
    }
    EXPECT_EQ(static_cast<int>(candidates.size()), job.trials());
  }

  FakeCluster cluster_;
  std::string directory_;
  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<SchedulerLoop> loop_;
  CallLimits calls_{{}};
  std::unique_ptr<JobServiceImpl> jobs_service_;
  std::unique_ptr<RecordServiceImpl> records_service_;
  std::unique_ptr<Collector> collector_;
  std::unique_ptr<StoreServiceImpl> store_service_;
  std::string address_;  // of the services
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::RecordService::Stub> records_;
};

// A fixture whose scheduler uses a `Store` around the one on disk, such as a GatedStore.
template <typename Store, typename Fixture = ServiceTest>
class WrappedStoreTest : public Fixture {
 protected:
  std::unique_ptr<RecordStore> Wrap(std::unique_ptr<RecordStore> store) override {
    auto wrapped = std::make_unique<Store>(std::move(store));
    wrapped_ = wrapped.get();
    return wrapped;
  }

  Store* wrapped_ = nullptr;  // while the service runs
};

}  // namespace heddle::scheduler
