// Long calls under pressure, over real gRPC: peers that never read or write, and too many callers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "scheduler/service/answer_pace.h"
#include "tests/eventually.h"
#include "tests/scheduler/service/gated_store.h"
#include "tests/scheduler/service/service_fixture.h"
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

// A server of its own whose Submit does nothing but wait for its peer. Who calls is in the metadata.
class WaitingService final : public v1::JobService::Service {
 public:
  explicit WaitingService(CallLimits* limits) : limits_(limits) {}
  grpc::Status Submit(grpc::ServerContext* context, grpc::ServerReader<v1::SubmitRequest>* reader,
                      v1::SubmitResponse*) override {
    Identity caller{.role = Role::kLocal};
    const auto uri = context->client_metadata().find("caller");
    if (uri != context->client_metadata().end())
      caller = *ParseIdentity({uri->second.data(), uri->second.length()});
    CallLimits::Call call(limits_, CallLimits::kUploads, context, caller);
    if (!call.ok()) return call.status();
    ++running;
    v1::SubmitRequest request;
    while (call.WithPeer([&] { return reader->Read(&request); })) continue;
    --running;
    return context->IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
  }
  std::atomic<int> running{0};

 private:
  CallLimits* const limits_;
};

class CallLimitsTest : public ::testing::Test {
 protected:
  void Start(const CallLimits::Options& options) {
    limits_ = std::make_unique<CallLimits>(options);
    service_ = std::make_unique<WaitingService>(limits_.get());
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    stub_ = v1::JobService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~CallLimitsTest() override {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
  }
  void AwaitRunning(int count) {
    const absl::Time limit = absl::Now() + kServiceLimit;
    while (service_->running != count && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(2));
    EXPECT_EQ(service_->running, count);
  }

  struct Stream {
    explicit Stream(v1::JobService::Stub* stub, const std::string& caller = "") {
      if (!caller.empty()) context.AddMetadata("caller", caller);
      writer = stub->Submit(&context, &response);
      v1::SubmitRequest request;
      request.mutable_spec()->set_name("x");
      writer->Write(request);
    }
    grpc::Status Finish() {
      writer->WritesDone();
      return writer->Finish();
    }
    grpc::ClientContext context;
    v1::SubmitResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::SubmitRequest>> writer;
  };

  std::unique_ptr<CallLimits> limits_;
  std::unique_ptr<WaitingService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::JobService::Stub> stub_;
};

TEST_F(CallLimitsTest, ACallThatStandsStillIsCancelled) {
  CallLimits::Options options;
  options.patience = absl::Milliseconds(200);
  std::atomic<int> slow{0};
  options.refused = [&](CallLimits::Refusal why) { slow += why == CallLimits::Refusal::kSlowPeer; };
  Start(options);
  Stream stalled(stub_.get());
  AwaitRunning(1);
  AwaitRunning(0);
  EXPECT_EQ(stalled.writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(slow, 1);
  limits_.reset();
}

TEST_F(CallLimitsTest, ACallThatMovesIsNotCancelledHoweverLongItTakes) {
  CallLimits::Options options;
  options.patience = absl::Seconds(2);
  Start(options);
  Stream slow(stub_.get());
  v1::SubmitRequest request;
  for (int i = 0; i < 25; ++i) {
    absl::SleepFor(absl::Milliseconds(100));
    ASSERT_TRUE(slow.writer->Write(request)) << i;
  }
  EXPECT_TRUE(slow.Finish().ok());
}

TEST_F(CallLimitsTest, ACallWithoutAPlaceIsToldWhenToTryAgain) {
  CallLimits::Options options;
  options.most[CallLimits::kUploads] = 1;
  options.queueing = absl::Milliseconds(20);
  options.retry_after = absl::Milliseconds(700);
  std::atomic<int> full{0};
  options.refused = [&](CallLimits::Refusal why) {
    full += why == CallLimits::Refusal::kServiceFull;
  };
  Start(options);
  Stream first(stub_.get());
  AwaitRunning(1);
  Stream second(stub_.get());
  const grpc::Status refused = second.writer->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("1 uploads at a time already; try again"));
  const auto& trailers = second.context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(found, trailers.end());
  EXPECT_EQ(std::string(found->second.data(), found->second.length()), "700");
  EXPECT_TRUE(first.Finish().ok()) << "the call in progress is not touched";
  EXPECT_EQ(full, 1);
}

// The place of a peer that does nothing goes to one that calls, long before its patience ends.
TEST_F(CallLimitsTest, WhoStandsStillMakesRoom) {
  CallLimits::Options options;
  options.most[CallLimits::kUploads] = 4;
  options.patience = absl::Seconds(3600);
  options.crowded_patience = absl::Milliseconds(50);
  options.queueing = absl::Seconds(20);
  Start(options);
  std::vector<std::unique_ptr<Stream>> stalled;
  for (int i = 0; i < 4; ++i) stalled.push_back(std::make_unique<Stream>(stub_.get()));
  AwaitRunning(4);
  absl::SleepFor(absl::Milliseconds(100));
  Stream served(stub_.get());
  EXPECT_TRUE(served.Finish().ok());
}

// What they upload counts for their tenant (upload_quota.h), but none waits for another one's slow line.
TEST_F(CallLimitsTest, UsersOfATenantDoNotShareItsPlaces) {
  CallLimits::Options options;
  options.most[CallLimits::kUploads] = 4;
  options.queueing = absl::Milliseconds(20);
  Start(options);
  Stream ann(stub_.get(), "heddle://user/ann?tenant=vision");
  Stream bob(stub_.get(), "heddle://user/bob?tenant=vision");
  Stream carl(stub_.get(), "heddle://user/carl?tenant=vision");
  AwaitRunning(3);
  for (Stream* stream : {&ann, &bob, &carl}) EXPECT_TRUE(stream->Finish().ok());
}

constexpr AnswerPace::Options kSlowPace = {.beginning_bytes = 50, .few = 1, .bytes_per_second = 10};
const absl::Time kPaceBegin = absl::FromUnixSeconds(1'000'000);

TEST(AnswerPaceTest, BeginningsWaitForEachOtherIfTheyAreMoreThanAFew) {
  AnswerPace pace(kSlowPace);
  AnswerPace::Answer first(&pace);
  EXPECT_EQ(first.Take(10, kPaceBegin), absl::ZeroDuration());
  {
    AnswerPace::Answer second(&pace);
    EXPECT_EQ(first.Take(10, kPaceBegin), absl::Seconds(1));
    EXPECT_EQ(second.Take(10, kPaceBegin), absl::Seconds(2));
    EXPECT_EQ(first.Take(10, kPaceBegin + absl::Seconds(1)), absl::Seconds(2));
    EXPECT_EQ(second.Take(10, kPaceBegin + absl::Seconds(5)), absl::Seconds(1))
        << "what they did not use is not saved up";
  }
  EXPECT_EQ(first.Take(10, kPaceBegin + absl::Seconds(5)), absl::ZeroDuration());
}

TEST(AnswerPaceTest, WhoHasTakenABeginningWaitsNoMoreAndHoldsUpNobody) {
  AnswerPace pace(kSlowPace);
  AnswerPace::Answer first(&pace);
  AnswerPace::Answer second(&pace);
  EXPECT_TRUE(first.begins());
  EXPECT_GT(first.Take(49, kPaceBegin), absl::ZeroDuration());
  EXPECT_TRUE(first.begins());
  EXPECT_EQ(first.Take(1, kPaceBegin), absl::ZeroDuration());
  EXPECT_FALSE(first.begins());
  EXPECT_EQ(first.Take(1000, kPaceBegin), absl::ZeroDuration());
  EXPECT_EQ(second.Take(49, kPaceBegin), absl::ZeroDuration()) << "it is the only one";
}

// Notes the nice values of the threads that read pages of records. Pages after the first can be held up.
class WatchedStore : public GatedStore {
 public:
  using GatedStore::GatedStore;
  absl::StatusOr<RecordPage> QueryPage(const v1::RecordQuery& query,
                                       const std::optional<RecordPlace>& after,
                                       int64_t limit) override {
    {
      absl::MutexLock lock(&mutex_);
      (after ? later_ : first_).push_back(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())));
      if (after) mutex_.Await(absl::Condition(&later_go_on_));
    }
    return GatedStore::QueryPage(query, after, limit);
  }
  void LetLaterPagesGoOn(bool go_on) {
    absl::MutexLock lock(&mutex_);
    later_go_on_ = go_on;
  }
  std::vector<int> first() {
    absl::MutexLock lock(&mutex_);
    return first_;
  }
  std::vector<int> later() {
    absl::MutexLock lock(&mutex_);
    return later_;
  }

 private:
  absl::Mutex mutex_;
  bool later_go_on_ ABSL_GUARDED_BY(mutex_) = true;
  std::vector<int> first_ ABSL_GUARDED_BY(mutex_), later_ ABSL_GUARDED_BY(mutex_);
};

class LongAnswersTest : public WrappedStoreTest<WatchedStore> {
 protected:
  static constexpr int kSmallPage = 100;  // records

  void Insert(int records) {
    Batch batch;
    for (int i = 1; i <= records; ++i) {
      InsertRecord record = MakeRecord(1, i, 0, 100);
      record.imported = true;
      batch.push_back(record);
    }
    ASSERT_TRUE(store_->Apply({batch})->front().ok());
  }
  static v1::RecordQuery Newest(int records) {
    v1::RecordQuery query;
    query.set_limit(records);
    return query;
  }
};

TEST_F(LongAnswersTest, LaterPagesAreReadWithLessOfTheCores) {
  if (getpriority(PRIO_PROCESS, 0) >= 10) GTEST_SKIP() << "this process has little itself";
  constexpr int kRecords = 3 * kSmallPage + 50;
  Insert(kRecords);
  std::set<int64_t> ids;
  for (const v1::Record& record : Query(Newest(kRecords))) ids.insert(record.id());
  EXPECT_EQ(ids.size(), static_cast<size_t>(kRecords));
  EXPECT_THAT(wrapped_->first(), ElementsAre(Lt(10)));
  EXPECT_THAT(wrapped_->later(), ElementsAre(10, 10, 10));
}

TEST_F(LongAnswersTest, ShortAnswersDoNotWaitForLongOnes) {
  constexpr int kPlaces = 8, kRecords = kSmallPage + 50;
  Insert(kRecords);
  wrapped_->LetLaterPagesGoOn(false);
  std::atomic<int> whole{0}, refused{0};
  std::vector<std::thread> calls;
  for (int i = 0; i <= kPlaces; ++i) {
    calls.emplace_back([&] {
      grpc::ClientContext context;
      auto reader = records_->QueryRecords(&context, Newest(kRecords));
      int records = 0;
      for (v1::Record record; reader->Read(&record);) ++records;
      const grpc::Status status = reader->Finish();
      whole += status.ok() && records == kRecords;
      if (status.ok()) return;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_THAT(status.error_message(), HasSubstr("8 long queries at a time already"));
      EXPECT_EQ(records, 0) << "whoever calls again must not get records twice";
      EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
      ++refused;
    });
  }
  EXPECT_TRUE(testing::Eventually([&] { return refused == 1; }));
  EXPECT_EQ(Query(Newest(kSmallPage)).size(), static_cast<size_t>(kSmallPage));
  wrapped_->LetLaterPagesGoOn(true);
  for (std::thread& call : calls) call.join();
  EXPECT_EQ(whole, kPlaces);
  EXPECT_EQ(refused, 1);
}

// Beginnings of answers hardly go on at all.
class SlowBeginningsTest : public LongAnswersTest {
 protected:
  ServiceLimits Limits() const override {
    ServiceLimits limits = LongAnswersTest::Limits();
    limits.answers = {.beginning_bytes = beginning_bytes_, .few = 0, .bytes_per_second = 1};
    return limits;
  }
  int64_t beginning_bytes_ = int64_t{1} << 20;
};

TEST_F(SlowBeginningsTest, NothingIsReadAheadForAPeerThatIsNotKnownToRead) {
  Insert(kSmallPage + 50);
  EXPECT_EQ(Query(Newest(kSmallPage)).size(), static_cast<size_t>(kSmallPage));
  grpc::ClientContext context;
  auto reader = records_->QueryRecords(&context, Newest(kSmallPage + 50));
  v1::Record record;
  for (int i = 0; i < kSmallPage; ++i) ASSERT_TRUE(reader->Read(&record)) << i;
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_THAT(wrapped_->later(), IsEmpty());
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

class KnownReadersTest : public SlowBeginningsTest {
 protected:
  KnownReadersTest() { beginning_bytes_ = 1; }
};

TEST_F(KnownReadersTest, AfterItsBeginningAnAnswerGoesOnAtOnceInLargePages) {
  constexpr int kRecords = 3 * kSmallPage + 50;
  Insert(kRecords);
  EXPECT_EQ(Query(Newest(kRecords)).size(), static_cast<size_t>(kRecords));
  EXPECT_EQ(wrapped_->later().size(), 1u);
}

class LongCallsTest : public ServiceTest {};

TEST_F(LongCallsTest, ManyStalledWatchersKeepNobodyOut) {
  const std::string job = MustSubmit(Spec(12));
  v1::WatchJobRequest request;
  request.set_job(job);
  // None of these ever reads.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Job>>> readers;
  for (int i = 0; i < 200; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(jobs_->WatchJob(contexts.back().get(), request));
  }
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  ExpectEachTrialOnce(done);
  for (const auto& context : contexts) context->TryCancel();
}

TEST_F(LongCallsTest, ChangesGiveTheSameAsWholeJobs) {
  // Many tasks, of which only a few change in the tenth of a second between two messages.
  cluster_.behaviour.candidate_ms = 20;
  cluster_.behaviour.tasks = 8;
  const std::string job = MustSubmit(Spec(6));
  v1::WatchJobRequest request;
  request.set_job(job);
  request.set_changes(true);
  grpc::ClientContext context;
  auto reader = jobs_->WatchJob(&context, request);
  v1::Job update;
  std::map<int, std::string> tasks;
  int messages = 0, partial = 0;
  while (reader->Read(&update)) {
    ++messages;
    if (messages > 1) {
      ASSERT_EQ(update.changed_tasks_size(), update.tasks_size());
      partial += update.tasks_size() < static_cast<int>(tasks.size());
    }
    for (int i = 0; i < update.tasks_size(); ++i)
      tasks[messages == 1 ? i : update.changed_tasks(i)] = update.tasks(i).SerializeAsString();
  }
  EXPECT_TRUE(reader->Finish().ok());
  const v1::Job whole = Get(job);
  ASSERT_EQ(static_cast<int>(tasks.size()), whole.tasks_size());
  for (int i = 0; i < whole.tasks_size(); ++i)
    EXPECT_EQ(tasks[i], whole.tasks(i).SerializeAsString()) << "task " << i;
  EXPECT_GT(partial, 0) << "no message was smaller than the whole, in " << messages;
}

TEST_F(LongCallsTest, JobsAreListedInPages) {
  std::vector<std::string> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(MustSubmit(Spec()));
  for (const std::string& job : jobs) WaitFinal(job);
  v1::ListJobsRequest request;
  request.set_all(true);
  request.set_before(jobs[3]);
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  ASSERT_TRUE(jobs_->ListJobs(&context, request, &response).ok());
  ASSERT_EQ(response.jobs_size(), 3);
  EXPECT_FALSE(response.more());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(response.jobs(i).id(), jobs[2 - i]);
  request.set_before("nonsense");
  grpc::ClientContext second;
  const grpc::Status refused = jobs_->ListJobs(&second, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("nonsense"));
}

}  // namespace
}  // namespace heddle::scheduler
