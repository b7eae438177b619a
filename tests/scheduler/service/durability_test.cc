// What users are shown is on disk, whatever the disk does; a submission that is sent again makes no
// second job; a start loads no history.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "client/service_client.h"
#include "proto/job_states.h"
#include "tests/eventually.h"
#include "tests/scheduler/service/gated_store.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

class DurabilityTest : public WrappedStoreTest<GatedStore> {
 protected:
  void TearDown() override {
    wrapped_->SetOpen(true);
    wrapped_->SetProblem(absl::OkStatus());
    ServiceTest::TearDown();
  }
  std::vector<v1::Job> ListAll() {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_all(true);
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
    return {response.jobs().rbegin(), response.jobs().rend()};  // the oldest first
  }
  // Whether the store has all that users see of the job, which was read before.
  void ExpectStored(const v1::Job& shown) {
    const auto stored = store_->LoadJobs({.before = ParseJobName(shown.id()) + 1, .limit = 1});
    ASSERT_TRUE(stored.ok()) << stored.status();
    ASSERT_TRUE(!stored->empty() && stored->front().row.job.id() == shown.id())
        << shown.id() << " is shown and not stored";
    const StoredJob& job = stored->front();
    const auto trials = std::count_if(job.candidates.begin(), job.candidates.end(),
                                      [](const auto& one) { return one.outcome.has_value(); });
    EXPECT_GE(trials, shown.trials()) << "trials are shown and not stored";
    EXPECT_GE(job.tasks.size(), static_cast<size_t>(shown.tasks_size()));
    if (IsFinal(shown.state())) {
      EXPECT_EQ(job.row.job.state(), shown.state());
    }
    if (!shown.module_digest().empty()) {
      EXPECT_EQ(job.row.job.module_digest(), shown.module_digest());
    }
    if (shown.state() == v1::JOB_PAUSED) {
      EXPECT_TRUE(job.row.paused);
    }
  }
};

// While a disk takes no writes for a while, again and again, a watcher and others look at jobs.
TEST_F(DurabilityTest, NothingIsShownThatIsNotOnDisk) {
  std::vector<std::string> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(MustSubmit(Spec(12)));
  std::atomic<bool> over{false};
  std::atomic<int> watched{0};
  std::thread watcher([&] {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job(jobs[0]);
    auto watch = jobs_->WatchJob(&context, request);
    for (v1::Job now; watch->Read(&now); ++watched) ExpectStored(now);
    watch->Finish();
    over = true;
  });
  std::mt19937 random(7);
  const absl::Time limit = absl::Now() + kServiceLimit;
  for (bool open = false; !over && absl::Now() < limit; open = !open) {
    wrapped_->SetOpen(open);
    const absl::Time turn = absl::Now() + absl::Milliseconds(20 + random() % 60);
    while (absl::Now() < turn) {
      for (const v1::Job& job : ListAll()) ExpectStored(job);
      ExpectStored(Get(jobs[random() % jobs.size()]));
    }
  }
  wrapped_->SetOpen(true);
  watcher.join();
  EXPECT_GT(watched, 1);
  for (const std::string& job : jobs) EXPECT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
}

TEST_F(DurabilityTest, AnAnswerMeansThatItIsOnDisk) {
  cluster_.behaviour.candidate_ms = 20;
  const std::string job = MustSubmit(Spec(60));
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  wrapped_->SetOpen(false);
  std::atomic<bool> answered{false};
  std::thread user([&] {
    v1::Job now;
    EXPECT_TRUE(Act(&v1::JobService::Stub::PauseJob, job, &now).ok());
    EXPECT_EQ(now.state(), v1::JOB_PAUSED);
    answered = true;
  });
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_FALSE(answered);
  EXPECT_NE(Get(job).state(), v1::JOB_PAUSED);
  wrapped_->SetOpen(true);
  user.join();
  ExpectStored(Get(job));
  v1::Job now;
  EXPECT_TRUE(Act(&v1::JobService::Stub::CancelJob, job, &now).ok());
}

TEST_F(DurabilityTest, OnAFullDiskNewWorkIsRefusedUntilThereIsSpace) {
  cluster_.behaviour.candidate_ms = 5;
  const std::string job = MustSubmit(Spec(30));
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  wrapped_->SetProblem(absl::ResourceExhaustedError("database or disk is full"));
  Wait(job, [](const v1::Job& now) { return absl::StrContains(now.reason(), "disk"); });
  const int trials = Get(job).trials();
  ExpectStored(Get(job));
  const absl::Time begin = absl::Now();
  std::string refused;
  grpc::Status status = Submit(Spec(), "another model", &refused);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("full"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10)) << "at once, not after a wait";
  {
    grpc::ClientContext context;
    v1::ImportRecordsResponse response;
    auto writer = records_->ImportRecords(&context, &response);
    v1::Record record;
    record.set_schema_version(1);
    record.set_workload_key(std::string(16, '0'));
    record.set_target("t");
    record.set_device_key("d");
    record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
    record.mutable_measurement()->add_samples_ns(1);
    writer->Write(record);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_GE(Get(job).trials(), trials) << "reads go on";
  wrapped_->SetProblem(absl::OkStatus());
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  ExpectEachTrialOnce(done);
  EXPECT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  EXPECT_EQ(ListAll().size(), 2u) << "the refused one is not there";
}

// ---- submissions that are sent again ----

TEST_F(DurabilityTest, TheSameKeyIsTheSameJob) {
  std::string first, again;
  ASSERT_TRUE(Submit(Spec(), "a model", &first, "", "key").ok());
  ASSERT_TRUE(Submit(Spec(), "a model", &again, "", "key").ok());
  EXPECT_EQ(first, again);
  WaitFinal(first);
  Stop();
  Start();
  ASSERT_TRUE(Submit(Spec(), "a model", &again, "", "key").ok());
  EXPECT_EQ(first, again) << "also after a restart, when the job is over";
  const auto expect_refused = [&](const v1::JobSpec& spec, const std::string& model) {
    const grpc::Status status = Submit(spec, model, &again, "", "key");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
    EXPECT_THAT(status.error_message(), HasSubstr("job " + first));
  };
  expect_refused(Spec(7), "a model");
  expect_refused(Spec(), "another model");
  v1::JobSpec other = Spec();
  other.set_user("bob");
  ASSERT_TRUE(Submit(other, "a model", &again, "", "key").ok());
  EXPECT_NE(first, again) << "keys of different users are independent";
  ASSERT_TRUE(Submit(Spec(), "a model", &again, "", "").ok());
  EXPECT_NE(first, again) << "no key, no promise";
  EXPECT_EQ(ListAll().size(), 3u);
  EXPECT_EQ(Submit(Spec(), "a model", &again, "", std::string(65, 'k')).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// The first call has not been answered when the second comes.
TEST_F(DurabilityTest, CallsWithTheSameKeyAtOnceMakeOneJob) {
  wrapped_->SetOpen(false);
  std::vector<std::string> jobs(8);
  std::vector<std::thread> users;
  for (std::string& job : jobs) {
    users.emplace_back([&] { EXPECT_TRUE(Submit(Spec(), "a model", &job, "", "key").ok()); });
  }
  absl::SleepFor(absl::Milliseconds(200));
  wrapped_->SetOpen(true);
  for (std::thread& user : users) user.join();
  for (const std::string& job : jobs) EXPECT_EQ(job, jobs[0]);
  EXPECT_EQ(ListAll().size(), 1u);
}

// The answer is lost, and the client sends its submission again.
class ForgetfulService final : public v1::JobService::Service {
 public:
  explicit ForgetfulService(JobServiceImpl* real) : real_(real) {}
  grpc::Status Submit(grpc::ServerContext* context, grpc::ServerReader<v1::SubmitRequest>* reader,
                      v1::SubmitResponse* response) override {
    const grpc::Status status = real_->Submit(context, reader, response);
    if (lose-- > 0) return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
    return status;
  }
  std::atomic<int> lose{2};

 private:
  JobServiceImpl* const real_;
};

TEST_F(DurabilityTest, AClientWhoseAnswerIsLostGetsItsJob) {
  ForgetfulService forgetful(jobs_service_.get());
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&forgetful);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const client::ServiceClient client(absl::StrCat("127.0.0.1:", port));
  const absl::StatusOr<std::string> job = client.Submit(Spec(), "a model");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_LT(forgetful.lose, 0) << "it was sent three times";
  EXPECT_EQ(ListAll().size(), 1u);
  const absl::StatusOr<std::string> next = client.Submit(Spec(), "a model");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_NE(*job, *next) << "a new submission has a new key";
  server->Shutdown();
  // A service that was never there is not waited for.
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(
      absl::IsUnavailable(client::ServiceClient("127.0.0.1:1").Submit(Spec(), "a model").status()));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
}

// ---- history ----

TEST_F(DurabilityTest, JobsOfEarlierProcessesAreThereAndNotLoaded) {
  const std::string done = MustSubmit(Spec());
  WaitFinal(done);
  cluster_.behaviour.bad_model = true;
  const std::string failed = MustSubmit(Spec(), "a bad model");
  WaitFinal(failed);
  cluster_.behaviour.bad_model = false;
  // Without the time that counts on until the last stage has let its slot go.
  const auto shown = [&](const std::string& id) {
    v1::Job job = Get(id);
    job.clear_running_ms();
    return job.ShortDebugString();
  };
  const std::string before = shown(done), failed_before = shown(failed);
  Stop();
  Start();
  EXPECT_FALSE(loop_->jobs().Has(JobId{ParseJobName(done)})) << "a start does not load it";
  EXPECT_EQ(shown(done), before);
  EXPECT_EQ(shown(failed), failed_before);
  const std::string next = MustSubmit(Spec(9));
  EXPECT_EQ(ParseJobName(next), 3);
  std::vector<std::string> listed;
  for (const v1::Job& job : ListAll()) listed.push_back(job.id());
  EXPECT_EQ(listed, (std::vector<std::string>{done, failed, next}));
  v1::Job acted;
  EXPECT_EQ(Act(&v1::JobService::Stub::PauseJob, done, &acted).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  std::string module;
  EXPECT_TRUE(Fetch(done, v1::SCHEDULE_BEST, &module).ok());
  EXPECT_FALSE(loop_->jobs().Has(JobId{ParseJobName(done)}));
  // What has to be compiled is loaded.
  EXPECT_TRUE(Fetch(done, v1::SCHEDULE_NAIVE, &module).ok());
  EXPECT_EQ(module, "module of a model, choice 2, best 0");
  EXPECT_EQ(shown(done), before);
  EXPECT_EQ(Fetch(failed, v1::SCHEDULE_NAIVE, &module).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job(failed);
  auto watch = jobs_->WatchJob(&context, request);
  v1::Job now;
  ASSERT_TRUE(watch->Read(&now));
  EXPECT_EQ(now.state(), v1::JOB_FAILED);
  EXPECT_FALSE(watch->Read(&now));
  EXPECT_TRUE(watch->Finish().ok());
  EXPECT_EQ(WaitFinal(next).state(), v1::JOB_DONE);
}

class ShortMemoryTest : public DurabilityTest {
 protected:
  absl::Duration KeepFinished() const override { return absl::ZeroDuration(); }
  bool Dropped(const std::string& job) {
    return testing::Eventually([&] { return !loop_->jobs().Has(JobId{ParseJobName(job)}); });
  }
};

// What users see of them is what they saw before, and what they may do is the same.
TEST_F(ShortMemoryTest, JobsThatHaveEndedAreReadFromTheStore) {
  const std::string done = MustSubmit(Spec());
  const v1::Job last = WaitFinal(done);
  ASSERT_TRUE(Dropped(done));
  v1::Job now = Get(done);
  EXPECT_EQ(now.state(), v1::JOB_DONE);
  EXPECT_EQ(now.trials(), last.trials());
  EXPECT_EQ(now.module_digest(), last.module_digest());
  ASSERT_EQ(now.tasks_size(), last.tasks_size());
  for (int i = 0; i < now.tasks_size(); ++i)
    EXPECT_EQ(now.tasks(i).ShortDebugString(), last.tasks(i).ShortDebugString());
  std::string module;
  EXPECT_TRUE(Fetch(done, v1::SCHEDULE_BEST, &module).ok());
  // A module that has to be compiled brings the job back, and it goes again.
  for (int times = 0; times < 3; ++times) {
    EXPECT_TRUE(Fetch(done, v1::SCHEDULE_NAIVE, &module).ok());
    EXPECT_EQ(module, "module of a model, choice 2, best 0");
    EXPECT_TRUE(Dropped(done));
  }
  v1::Job acted;
  EXPECT_EQ(Act(&v1::JobService::Stub::CancelJob, done, &acted).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  const std::string cancelled = MustSubmit(Spec(3000));
  for (int times = 0; times < 2; ++times) {
    EXPECT_TRUE(Act(&v1::JobService::Stub::CancelJob, cancelled, &acted).ok());
    EXPECT_EQ(acted.state(), v1::JOB_CANCELLED);
    EXPECT_TRUE(Dropped(cancelled));
  }
  // Others go on, and know what it has measured.
  const v1::Job again = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(again.state(), v1::JOB_DONE);
  EXPECT_EQ(again.trials(), 0);
  EXPECT_EQ(ListAll().size(), 3u);
}

// Who watches a job sees its end, though it may have been dropped when he looks again.
TEST_F(ShortMemoryTest, AWatcherSeesTheEndOfAJobThatIsDropped) {
  for (int times = 0; times < 3; ++times) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job(MustSubmit(Spec(), absl::StrCat("model ", times)));
    request.set_changes(true);
    auto watch = jobs_->WatchJob(&context, request);
    v1::Job last, next;
    while (watch->Read(&next)) last = next;
    EXPECT_TRUE(watch->Finish().ok());
    EXPECT_EQ(last.state(), v1::JOB_DONE);
    EXPECT_TRUE(Dropped(request.job()));
  }
}

// Counts reads of finished jobs, and refuses to say what is known while it is told to.
class WatchedStore : public GatedStore {
 public:
  using GatedStore::GatedStore;
  absl::StatusOr<std::vector<StoredJob>> LoadJobs(const JobSelection& selection) override {
    finished_reads += selection.which == JobSelection::kFinished;
    return GatedStore::LoadJobs(selection);
  }
  absl::StatusOr<KnownRecords> Known(const WorkloadId& id) override {
    if (!knows_nothing) return GatedStore::Known(id);
    ++refused;
    return absl::UnavailableError("the store is busy");
  }
  std::atomic<int> finished_reads{0}, refused{0};
  std::atomic<bool> knows_nothing{false};
};

class WatchedStoreTest : public WrappedStoreTest<WatchedStore, ServiceTest> {
 protected:
  absl::Duration KeepFinished() const override { return absl::ZeroDuration(); }
  bool Dropped(const std::string& job) {
    return testing::Eventually([&] { return !loop_->jobs().Has(JobId{ParseJobName(job)}); });
  }
};

TEST_F(WatchedStoreTest, AJobLeavesMemoryWhileOthersWaitForTheStore) {
  v1::JobSpec spec = Spec();
  spec.set_target("llvm -mcpu=x -threads=2");
  const auto waits = [](const v1::Job& now) {
    return now.reason().starts_with("no device with target");
  };
  const std::string first = MustSubmit(spec), other = MustSubmit(spec);
  for (const std::string& job : {first, other}) Wait(job, waits);
  wrapped_->knows_nothing = true;
  v1::ListWorkersResponse workers = cluster_.DefaultWorkers();
  workers.mutable_workers(0)->mutable_slots(1)->mutable_slot()->add_cores(2);
  cluster_.tracker.SetWorkers(workers);
  ASSERT_TRUE(testing::Eventually([&] { return wrapped_->refused > 0; }));
  v1::Job cancelled;
  ASSERT_TRUE(Act(&v1::JobService::Stub::CancelJob, first, &cancelled).ok());
  EXPECT_TRUE(Dropped(first));
  EXPECT_EQ(Get(first).state(), v1::JOB_CANCELLED);
  EXPECT_EQ(Get(other).finished_unix_ns(), 0);
  wrapped_->knows_nothing = false;
  EXPECT_EQ(WaitFinal(other).state(), v1::JOB_DONE);
}

TEST_F(WatchedStoreTest, AModuleThatIsKeptNeedsNoReadOfItsJob) {
  const std::string job = MustSubmit(Spec());
  WaitFinal(job);
  std::string module;
  ASSERT_TRUE(Fetch(job, v1::SCHEDULE_NAIVE, &module).ok());
  ASSERT_TRUE(Dropped(job));
  Get(job);  // what is shown of it is kept from now on
  const int reads = wrapped_->finished_reads;
  ASSERT_TRUE(Fetch(job, v1::SCHEDULE_NAIVE, &module).ok());
  EXPECT_EQ(module, "module of a model, choice 2, best 0");
  EXPECT_EQ(wrapped_->finished_reads, reads);
}

// HEDDLE_HISTORY says how many finished jobs of 100 records there are; it prints how long a start takes.
TEST_F(DurabilityTest, ALongHistoryIsNotFelt) {
  const char* many = std::getenv("HEDDLE_HISTORY");
  if (many == nullptr) GTEST_SKIP() << "set HEDDLE_HISTORY to a number of jobs";
  Stop();
  {
    auto store = *OpenSqliteRecordStore(directory_ + "/heddle.db");
    for (int64_t id = 1; id <= std::atoll(many); ++id) {
      JobRow row;
      row.id = id;
      row.job.mutable_spec()->set_name("model");
      row.job.mutable_spec()->set_target("llvm -mcpu=x");
      row.job.mutable_spec()->set_trials_per_task(10);
      row.job.set_state(v1::JOB_DONE);
      row.job.set_finished_unix_ns(id);
      Batch batch = {PutJob{row}};
      for (int t = 0; t < 10; ++t) {
        TaskRow task;
        task.job = id;
        task.index = t;
        task.info.set_key(absl::StrCat(100 * (id % 50) + t));
        task.info.set_workload("workload");
        batch.push_back(PutTask{task});
      }
      for (int64_t c = 1; c <= 100; ++c) {
        const auto t = static_cast<int32_t>(c % 10);
        batch.push_back(InsertCandidate{{id, c, t, std::string(400, 't'), "random"}});
        InsertRecord insert;
        v1::Record& record = insert.record;
        record.set_workload_key(absl::StrCat(100 * (id % 50) + t));
        record.set_target("llvm -mcpu=x");
        record.set_device_key("key");
        record.set_trace(std::string(400, 't'));
        record.set_created_unix_ns(1000 * id + c);
        record.set_job(JobName(id));
        record.set_candidate(c);
        record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
        for (int i = 0; i < 5; ++i) record.mutable_measurement()->add_samples_ns(100.0 + i);
        batch.push_back(std::move(insert));
      }
      ASSERT_TRUE(store->Apply({batch})->front().ok());
    }
  }
  const auto timed = [](const char* what, const std::function<void()>& run) {
    const absl::Time begin = absl::Now();
    run();
    std::printf("%s: %s\n", what, absl::FormatDuration(absl::Now() - begin).c_str());
  };
  std::printf("database: %lld MiB\n",
              static_cast<long long>(std::filesystem::file_size(directory_ + "/heddle.db") >> 20));
  timed("a start", [&] { Start(); });
  timed("heddle jobs --all", [&] { EXPECT_GT(ListAll().size(), 100u); });
  timed("heddle show j7", [&] { EXPECT_EQ(Get("j7").trials(), 100); });
  Stop();
  timed("reading all jobs, which a start does not", [&] {
    auto store = *OpenSqliteRecordStore(directory_ + "/heddle.db");
    EXPECT_GT(store->LoadJobs()->size(), 100u);
  });
  Start();
}

// More than one page of history, and more than one answer takes.
TEST_F(DurabilityTest, TheNewestJobsAreListed) {
  Stop();
  {
    auto store = *OpenSqliteRecordStore(directory_ + "/heddle.db");
    Batch batch;
    for (int64_t id = 1; id <= 150; ++id) {
      JobRow row;
      row.id = id;
      row.job.mutable_spec()->set_name(std::string(100'000, 'n'));
      row.job.mutable_spec()->set_target("llvm -mcpu=x");
      row.job.set_state(id % 50 == 0 ? v1::JOB_TUNING : v1::JOB_CANCELLED);
      row.paused = id % 50 == 0;
      if (!row.paused) row.job.set_finished_unix_ns(id);
      batch.push_back(PutJob{row});
    }
    ASSERT_TRUE(store->Apply({batch})->front().ok());
  }
  Start();
  const std::vector<v1::Job> listed = ListAll();
  ASSERT_GT(listed.size(), 20u);
  ASSERT_LT(listed.size(), 40u) << "3 MiB";
  for (size_t i = 0; i < listed.size(); ++i)
    EXPECT_EQ(ParseJobName(listed[i].id()), static_cast<int64_t>(151 - listed.size() + i));
  grpc::ClientContext context;
  v1::ListJobsResponse unfinished;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &unfinished).ok());
  EXPECT_EQ(unfinished.jobs_size(), 3);
}

}  // namespace
}  // namespace heddle::scheduler
