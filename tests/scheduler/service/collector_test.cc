// Collecting finished jobs while the scheduler works, and false records that the comparison finds.
#include "scheduler/service/storage/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/sha256.h"
#include "base/vocabulary/workload_key.h"
#include "client/service_client.h"
#include "scheduler/service/storage/blob_sweeper.h"
#include "tests/scheduler/service/gated_store.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CollectorTest : public ServiceTest {
 protected:
  struct Told {
    std::vector<v1::CollectProgress::Job> jobs;
    v1::CollectProgress::Total total;
  };
  Told Collect(bool dry_run, int64_t older_than_s = 0, int64_t keep_jobs = 0) {
    v1::CollectRequest request;
    request.set_dry_run(dry_run);
    request.set_older_than_s(older_than_s);
    request.set_keep_jobs(keep_jobs);
    Told told;
    const auto total = client::ServiceClient(address_).Collect(request, [&](const auto& job) {
      told.jobs.push_back(job);
      return true;
    });
    EXPECT_TRUE(total.ok()) << total.status();
    if (total.ok()) told.total = *total;
    return told;
  }
  std::vector<std::string> Check() {
    std::vector<std::string> findings;
    const absl::Status status =
        client::ServiceClient(address_).CheckStore(true, [&](const v1::CheckProgress& now) {
          if (!now.finding().empty()) findings.push_back(now.finding());
          return true;
        });
    EXPECT_TRUE(status.ok()) << status;
    return findings;
  }
  void MakeOld() {
    for (const BlobStore::Entry& entry : blobs_->List()) {
      std::filesystem::last_write_time(
          BlobPath(directory_ + "/blobs", entry.digest),
          std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
    }
  }
  bool HasBlob(const std::string& digest) {
    return std::filesystem::exists(BlobPath(directory_ + "/blobs", digest));
  }
  // By candidate.
  std::map<int64_t, v1::Record> RecordsOf(const std::string& job) {
    v1::RecordQuery query;
    query.set_job(job);
    query.set_limit(100'000);
    std::map<int64_t, v1::Record> records;
    for (const v1::Record& record : Query(query)) records[record.candidate()] = record;
    return records;
  }
};

TEST_F(CollectorTest, ADryRunTellsWhatGoesAndTakesNothing) {
  const std::string job = MustSubmit(Spec(), "a model");
  const v1::Job done = WaitFinal(job);
  const Told told = Collect(true);
  ASSERT_THAT(told.jobs, SizeIs(1));
  EXPECT_EQ(told.jobs[0].id(), job);
  EXPECT_EQ(told.jobs[0].name(), "model");
  EXPECT_EQ(told.jobs[0].finished_unix_ns(), done.finished_unix_ns());
  EXPECT_EQ(told.jobs[0].blobs(), 2) << "model and module";
  EXPECT_GT(told.jobs[0].blob_bytes(), 0);
  EXPECT_GT(told.jobs[0].rows(), 12);
  EXPECT_GT(told.jobs[0].database_bytes(), 0);
  EXPECT_EQ(told.total.jobs(), 1);
  EXPECT_EQ(told.total.rows(), told.jobs[0].rows());
  EXPECT_EQ(told.total.blob_bytes(), told.jobs[0].blob_bytes());
  EXPECT_EQ(Get(job).ShortDebugString(), done.ShortDebugString());
  EXPECT_THAT(Collect(true).jobs, SizeIs(1));
}

TEST_F(CollectorTest, ACollectedJobKeepsItsRecordsAndLosesItsModule) {
  const std::string job = MustSubmit(Spec(), "a model");
  const v1::Job done = WaitFinal(job);
  MakeOld();
  const std::map<int64_t, v1::Record> before = RecordsOf(job);
  const Told told = Collect(false);
  EXPECT_EQ(told.total.jobs(), 1);
  EXPECT_GE(told.total.swept_bytes(), told.total.blob_bytes()) << "and what was left over before";
  EXPECT_FALSE(HasBlob(done.module_digest()));
  EXPECT_FALSE(HasBlob(Sha256Hex("a model")));
  EXPECT_THAT(Check(), IsEmpty());

  const auto expect_collected = [&] {
    const v1::Job now = Get(job);
    EXPECT_EQ(now.state(), v1::JOB_DONE);
    EXPECT_GT(now.collected_unix_ns(), done.finished_unix_ns());
    EXPECT_EQ(now.trials(), done.trials());
    EXPECT_EQ(now.tasks(0).best_ns(), done.tasks(0).best_ns());
    EXPECT_THAT(now.warnings(), ElementsAre(HasSubstr("were collected on")));
    for (const v1::ScheduleChoice choice : {v1::SCHEDULE_BEST, v1::SCHEDULE_NAIVE}) {
      std::string module;
      const grpc::Status fetched = Fetch(job, choice, &module);
      EXPECT_EQ(fetched.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
      EXPECT_THAT(fetched.error_message(), HasSubstr("submit the model again"));
    }
  };
  expect_collected();
  EXPECT_THAT(Collect(false).jobs, IsEmpty()) << "once is enough";

  // All records are there; the fastest of each task as they were.
  const std::map<int64_t, v1::Record> after = RecordsOf(job);
  ASSERT_EQ(after.size(), before.size());
  v1::RecordQuery best;
  best.set_best_only(true);
  std::set<int64_t> fastest;
  for (const v1::Record& record : Query(best)) fastest.insert(record.candidate());
  EXPECT_EQ(fastest.size(), 2u);
  for (const auto& [candidate, record] : after) {
    EXPECT_EQ(record.trace(), before.at(candidate).trace());
    EXPECT_EQ(record.median_ns(), before.at(candidate).median_ns());
    EXPECT_EQ(record.measurement().ShortDebugString() ==
                  before.at(candidate).measurement().ShortDebugString(),
              fastest.count(candidate) > 0)
        << candidate;
  }
  Stop();
  Start();
  expect_collected();
  // A job of the same model measures nothing anew, and is fetched as ever.
  const std::string again = MustSubmit(Spec(), "a model");
  EXPECT_EQ(WaitFinal(again).trials(), 0);
  std::string module;
  EXPECT_TRUE(Fetch(again, v1::SCHEDULE_BEST, &module).ok());
}

TEST_F(CollectorTest, ALiveJobAndItsModelAreLeftAlone) {
  const std::string first = MustSubmit(Spec(), "a model");
  WaitFinal(first);
  cluster_.behaviour.candidate_ms = 5;
  const std::string live = MustSubmit(Spec(200), "a model");
  Wait(live, [](const v1::Job& now) { return now.trials() >= 3; });
  MakeOld();
  const std::map<int64_t, v1::Record> before = RecordsOf(first);
  const Told told = Collect(false);
  ASSERT_THAT(told.jobs, SizeIs(1));
  EXPECT_EQ(told.jobs[0].id(), first);
  EXPECT_TRUE(HasBlob(Sha256Hex("a model"))) << "the live job needs it";
  for (const auto& [candidate, record] : RecordsOf(first)) {
    EXPECT_EQ(record.ShortDebugString(), before.at(candidate).ShortDebugString())
        << "the live job tunes these tasks";
  }
  cluster_.behaviour.candidate_ms = 0;
  const v1::Job done = WaitFinal(live);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  ExpectEachTrialOnce(done);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CollectorTest, AgeAndNumberKeepJobs) {
  std::vector<std::string> jobs;
  for (const char* model : {"one", "two", "three"}) {
    jobs.push_back(MustSubmit(Spec(2), model));
    WaitFinal(jobs.back());
  }
  EXPECT_THAT(Collect(true, 3600).jobs, IsEmpty()) << "they ended just now";
  const auto ids = [](const Told& told) {
    std::vector<std::string> out;
    for (const v1::CollectProgress::Job& job : told.jobs) out.push_back(job.id());
    return out;
  };
  EXPECT_THAT(ids(Collect(true)), ElementsAre(jobs[0], jobs[1], jobs[2]));
  EXPECT_THAT(ids(Collect(false, 0, 2)), ElementsAre(jobs[0]));
  EXPECT_THAT(ids(Collect(true, 0, 2)), IsEmpty());
  EXPECT_THAT(ids(Collect(true, 0, 99)), IsEmpty());
}

TEST_F(CollectorTest, ModulesMadeOnDemandGoWithTheirJob) {
  const std::string job = MustSubmit(Spec(2));
  WaitFinal(job);
  std::string module;
  ASSERT_TRUE(Fetch(job, v1::SCHEDULE_DEFAULT, &module).ok());
  ASSERT_THAT(loop_->KeptModules(), SizeIs(1));
  Collect(false);
  EXPECT_THAT(loop_->KeptModules(), IsEmpty());
}

TEST_F(CollectorTest, BlobsAreCountedOnce) {
  WaitFinal(MustSubmit(Spec(2), "a model"));
  WaitFinal(MustSubmit(Spec(2), "a model"));
  const Told told = Collect(true);
  ASSERT_THAT(told.jobs, SizeIs(2));
  EXPECT_GT(told.jobs[0].blobs(), 0);
  EXPECT_EQ(told.jobs[1].blobs(), 0) << "it shares model and module with the first";
}

// A kill after the rows and before the mark: the next collection takes the job up again.
TEST_F(CollectorTest, ACollectionThatWasCutOffIsTakenUpAgain) {
  const std::string job = MustSubmit(Spec(), "a model");
  WaitFinal(job);
  int asked = 0;
  const auto stopped = collector_->Collect(
      {absl::ZeroDuration(), 0}, false, absl::Now(),
      [](const v1::CollectProgress::Job&) { return true; },
      // before the old records, the job, its rows, its mark
      [&] { return ++asked < 4; });
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
  Stop();
  Start();
  EXPECT_THAT(Check(), IsEmpty());
  EXPECT_EQ(Get(job).collected_unix_ns(), 0);
  std::string module;
  EXPECT_TRUE(Fetch(job, v1::SCHEDULE_BEST, &module).ok()) << "what it lost it does not need";
  const Told told = Collect(false);
  EXPECT_EQ(told.total.jobs(), 1);
  EXPECT_GT(Get(job).collected_unix_ns(), 0);
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(CollectorTest, OneCollectionAtATime) {
  WaitFinal(MustSubmit(Spec(2)));
  absl::Status second;
  const auto first = collector_->Collect(
      {absl::ZeroDuration(), 0}, true, absl::Now(),
      [&](const v1::CollectProgress::Job&) {
        second = collector_
                     ->Collect(
                         {}, true, absl::Now(),
                         [](const v1::CollectProgress::Job&) { return true; }, [] { return true; })
                     .status();
        return true;
      },
      [] { return true; });
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsResourceExhausted(second)) << second;
}

TEST_F(CollectorTest, TheStandingRuleCollectsBeforeItSweeps) {
  const std::string job = MustSubmit(Spec(2), "a model");
  WaitFinal(job);
  MakeOld();
  { const BlobSweeper without(loop_.get(), store_.get(), blobs_.get(), collector_.get(), {}); }
  EXPECT_EQ(Get(job).collected_unix_ns(), 0);
  const BlobSweeper sweeper(loop_.get(), store_.get(), blobs_.get(), collector_.get(),
                            KeepRule{absl::ZeroDuration(), 0});
  Wait(job, [](const v1::Job& now) { return now.collected_unix_ns() != 0; });
  const absl::Time limit = absl::Now() + kServiceLimit;
  while (HasBlob(Sha256Hex("a model")) && absl::Now() < limit)
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_FALSE(HasBlob(Sha256Hex("a model")));
}

// Retracted records stay until a collection finds them old.
TEST_F(CollectorTest, OldRecordsGoAndADryRunTellsHowMany) {
  const std::string job = MustSubmit(Spec(), "a model");
  const v1::Job done = WaitFinal(job);
  v1::RecordQuery query;
  query.set_job(job);
  query.set_retracted(true);
  // The latest record of all always stays, so the other task is retracted.
  v1::Record latest;
  for (const v1::Record& record : Query(query)) {
    if (record.id() > latest.id()) latest = record;
  }
  v1::RecordQuery slow = query;
  slow.set_workload_key(latest.workload_key() == WorkloadKey("workload 0")
                            ? WorkloadKey("workload 1")
                            : WorkloadKey("workload 0"));
  v1::Retraction why;
  why.set_reason("its clock was broken");
  why.set_by("ann");
  why.set_unix_ns(absl::GetCurrentTimeNanos());
  const auto retracted = loop_->Retract(
      slow, why, [this](const auto&... page) { return store_->QueryPage(page...); },
      [] { return false; });
  ASSERT_TRUE(retracted.ok()) << retracted.status();
  ASSERT_GT(*retracted, 0);
  const size_t records = Query(query).size();
  ASSERT_GT(records, static_cast<size_t>(*retracted));

  Told told = Collect(false);
  EXPECT_EQ(told.total.records(), 0) << "the job shows its trials until it is collected";
  EXPECT_EQ(Query(query).size(), records);
  EXPECT_EQ(Collect(true, 3600).total.records(), 0) << "they were retracted just now";
  told = Collect(true);
  EXPECT_EQ(told.total.records(), *retracted);
  EXPECT_GT(told.total.record_bytes(), 0);
  EXPECT_EQ(Query(query).size(), records) << "a dry run takes nothing";
  const v1::Job before = Get(job);
  told = Collect(false);
  EXPECT_EQ(told.total.records(), *retracted);
  EXPECT_THAT(told.jobs, IsEmpty());
  EXPECT_EQ(Query(query).size(), records - static_cast<size_t>(*retracted));
  EXPECT_EQ(Collect(false).total.records(), 0);
  EXPECT_THAT(Check(), IsEmpty());
  const auto expect_same = [&] {
    const v1::Job now = Get(job);
    EXPECT_EQ(now.trials(), before.trials());
    ASSERT_EQ(now.tasks_size(), before.tasks_size());
    for (int i = 0; i < now.tasks_size(); ++i) {
      EXPECT_EQ(now.tasks(i).trials(), before.tasks(i).trials()) << i;
    }
  };
  expect_same();
  Stop();
  Start();
  expect_same();
}

// Counts what collections read at a time.
class CountingStore : public GatedStore {
 public:
  using GatedStore::GatedStore;
  absl::StatusOr<Collection> CollectionOf(int64_t job, const CollectionPlace& after,
                                          int64_t limit) override {
    auto page = GatedStore::CollectionOf(job, after, limit);
    ++pages;
    if (page.ok()) largest = std::max(largest.load(), page->rows.candidates.size());
    return page;
  }
  absl::StatusOr<OldRecords> FindOldRecords(const OldRecordRule& rule,
                                            const std::optional<OldRecordPlace>& after,
                                            int64_t limit) override {
    auto page = GatedStore::FindOldRecords(rule, after, limit);
    ++record_pages;
    if (page.ok()) largest = std::max(largest.load(), page->ids.size());
    return page;
  }
  std::atomic<int> pages{0}, record_pages{0};
  std::atomic<size_t> largest{0};
};

using PagesTest = WrappedStoreTest<CountingStore, CollectorTest>;

// However large a job is, no read and no transaction of its collection is.
TEST_F(PagesTest, ALargeJobIsCollectedInManySmallSteps) {
  const std::string job = MustSubmit(Spec(2), "a model");
  WaitFinal(job);
  // Other measurements of the job, as if it had had so many trials.
  constexpr int64_t kMore = 2000, kFirst = 1000;
  const v1::Record pattern = RecordsOf(job).begin()->second;
  Batch batch;
  for (int64_t id = kFirst; id < kFirst + kMore; ++id) {
    CandidateRow candidate;
    candidate.job = ParseJobName(job);
    candidate.id = id;
    candidate.trace = "a trace";
    batch.push_back(InsertCandidate{candidate});
    InsertRecord record{pattern};
    record.record.set_candidate(id);
    record.record.mutable_measurement()->mutable_evidence()->clear_slot();
    batch.push_back(record);
  }
  const auto applied = store_->Apply({batch});
  ASSERT_TRUE(applied.ok() && applied->front().ok()) << applied->front();
  const Told told = Collect(false);
  EXPECT_GE(told.total.rows(), 2 * kMore - 2);
  constexpr int64_t kPage = 250;
  EXPECT_GE(wrapped_->pages, kMore / kPage);
  EXPECT_LE(wrapped_->pages, kMore / kPage + 2) << "and none was read for nothing";
  EXPECT_LE(wrapped_->largest, static_cast<size_t>(kPage));
  EXPECT_GE(wrapped_->record_pages, kMore / kPage);
  EXPECT_THAT(RecordsOf(job), SizeIs(::testing::Gt(static_cast<size_t>(kMore))));
  EXPECT_EQ(store_->CollectionOf(ParseJobName(job), {}, 100)->rows.candidates.size(), 0u);
}

// Somebody imports a record that promises far too much.
class FalseRecordTest : public CollectorTest {
 protected:
  void Import(double ns, const std::string& trace) {
    grpc::ClientContext context;
    v1::ImportRecordsResponse response;
    auto writer = records_->ImportRecords(&context, &response);
    v1::Record record;
    record.set_schema_version(1);
    record.set_workload("workload 0");
    record.set_workload_key(WorkloadKey("workload 0"));
    record.set_target("llvm -mcpu=x");
    record.set_device_key("key");
    record.set_trace(trace);
    record.set_created_unix_ns(1);
    record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
    record.mutable_measurement()->add_samples_ns(ns);
    record.set_median_ns(ns);
    writer->Write(record);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.imported(), 1) << response.first_error();
  }
  // Comparisons find that the kernel of workload 0 takes `ns`, and its default one 3 us.
  void MeasureAs(double ns) {
    cluster_.worker.SetMutator([this, ns](v1::StageEvent* event) {
      if (!event->has_compared()) return;
      if (gate_ != nullptr) gate_->WaitForNotification();
      // The fake worker tells of tasks every other time.
      if (every_time_ && event->compared().tasks().empty())
        event->mutable_compared()->add_tasks()->set_workload_key(WorkloadKey("workload 0"));
      for (v1::CompareResult::Task& task : *event->mutable_compared()->mutable_tasks()) {
        if (task.workload_key() != WorkloadKey("workload 0")) continue;
        task.set_default_ns(3000);
        task.set_ns(ns);
        task.mutable_gain()->set_ratio(3000 / ns);
        task.mutable_gain()->set_low(2900 / ns);
        task.mutable_gain()->set_high(3100 / ns);
      }
    });
  }

  // By which workload 0 was compiled.
  static std::string TraceIn(const v1::CompileSpec& spec) {
    for (const v1::BestTrace& best : spec.best()) {
      if (best.workload_key() == WorkloadKey("workload 0")) return best.trace();
    }
    return "";
  }
  // The fastest record of workload 0 that the service measured itself.
  v1::Record FastestMeasured() {
    v1::RecordQuery query;
    query.set_workload_key(WorkloadKey("workload 0"));
    query.set_valid_only(true);
    v1::Record fastest;
    for (const v1::Record& record : Query(query)) {
      if (!record.imported_by().empty()) continue;
      if (fastest.median_ns() == 0 || record.median_ns() <= fastest.median_ns()) fastest = record;
    }
    return fastest;
  }

  bool every_time_ = false;             // whether all comparisons tell of that kernel
  absl::Notification* gate_ = nullptr;  // what comparisons wait for before they answer
};

TEST_F(FalseRecordTest, IsRetractedAndTheJobTakesItsOwnBest) {
  Import(1, "the false trace");
  MeasureAs(2800);  // faster than the default, and 2800 times as slow as it says
  const v1::Job done = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_EQ(done.comparison().made(), 2);
  ASSERT_EQ(done.comparison().broken_size(), 1);
  EXPECT_EQ(done.comparison().broken(0).claim().ns(), 1);
  EXPECT_EQ(done.comparison().taken_back_size(), 0);
  EXPECT_THAT(done.warnings(), ElementsAre(AllOf(HasSubstr("imported by ipv4:127.0.0.1"),
                                                 HasSubstr("is retracted: it says 1ns"))));
  v1::RecordQuery query;
  query.set_imported_by("ipv4:127.0.0.1");
  EXPECT_THAT(Query(query), IsEmpty());
  query.set_retracted(true);
  const std::vector<v1::Record> retracted = Query(query);
  ASSERT_THAT(retracted, SizeIs(1));
  EXPECT_EQ(retracted[0].retraction().by(), "scheduler");
  EXPECT_THAT(retracted[0].retraction().reason(), HasSubstr("its kernel took 2.8us"));
  const std::vector<v1::CompileSpec> compiled = cluster_.worker.Compiles();
  ASSERT_THAT(compiled, SizeIs(2));
  EXPECT_EQ(TraceIn(compiled[0]), "the false trace");
  EXPECT_THAT(TraceIn(compiled[1]), AllOf(HasSubstr("trace "), ::testing::Ne("the false trace")));
  EXPECT_GE(done.tasks(0).best_ns(), 1000) << "its own";

  // Nobody falls for it again.
  const int comparisons = cluster_.worker.comparisons;
  const v1::Job second = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(second.comparison().broken_size(), 0);
  EXPECT_EQ(cluster_.worker.comparisons, comparisons + 1);
}

TEST_F(FalseRecordTest, ThreeOfOneTaskLeaveTheJobItsOwnBest) {
  for (int i = 1; i <= 3; ++i) Import(i, absl::StrCat("false ", i));
  every_time_ = true;
  MeasureAs(2800);
  const v1::Job done = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_EQ(done.comparison().made(), 4);
  EXPECT_EQ(done.comparison().broken_size(), 3);
  EXPECT_EQ(done.comparison().taken_back_size(), 0);
  EXPECT_FALSE(done.tasks(0).keeps_default());
  EXPECT_GE(done.tasks(0).best_ns(), 1000) << "its own";
  EXPECT_EQ(TraceIn(cluster_.worker.Compiles().back()), FastestMeasured().trace());
  v1::RecordQuery query;
  query.set_imported_by("ipv4:127.0.0.1");
  EXPECT_THAT(Query(query), IsEmpty()) << "all three are retracted";
}

// There are more false records than comparisons judge. The others stay, for the next job to find.
TEST_F(FalseRecordTest, FiveOfOneTaskLeaveTheJobItsOwnBest) {
  for (int i = 1; i <= 5; ++i) Import(i, absl::StrCat("false ", i));
  every_time_ = true;
  MeasureAs(2800);
  const v1::Job done = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(done.comparison().made(), 4);
  EXPECT_EQ(done.comparison().broken_size(), 3);
  EXPECT_FALSE(done.tasks(0).keeps_default());
  EXPECT_EQ(TraceIn(cluster_.worker.Compiles().back()), FastestMeasured().trace());
  v1::RecordQuery query;
  query.set_imported_by("ipv4:127.0.0.1");
  EXPECT_THAT(Query(query), SizeIs(2));
  // The second job has what the first one measured, and loses it as little.
  const v1::Job second = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(second.comparison().broken_size(), 2);
  EXPECT_FALSE(second.tasks(0).keeps_default());
  // Both jobs measured one that takes as long.
  const std::string taken = TraceIn(cluster_.worker.Compiles().back());
  v1::RecordQuery own;
  own.set_workload_key(WorkloadKey("workload 0"));
  double median_ns = 0;
  for (const v1::Record& record : Query(own)) {
    if (record.trace() == taken) median_ns = record.median_ns();
  }
  EXPECT_EQ(median_ns, FastestMeasured().median_ns()) << taken;
  EXPECT_THAT(Query(query), IsEmpty());
}

TEST_F(FalseRecordTest, ATrueOneStaysInTheModule) {
  Import(900, "a true trace");
  MeasureAs(1500);
  const v1::Job done = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(done.comparison().made(), 1);
  EXPECT_EQ(done.comparison().broken_size(), 0);
  v1::RecordQuery query;
  query.set_imported_by("ipv4:127.0.0.1");
  EXPECT_THAT(Query(query), SizeIs(1));
}

// The scheduler is restarted between the compilation and the comparison.
TEST_F(FalseRecordTest, IsFoundAfterARestart) {
  Import(1, "the false trace");
  absl::Notification gate;
  gate_ = &gate;
  MeasureAs(2800);
  const std::string job = MustSubmit(Spec());
  Wait(job, [&](const v1::Job& now) {
    return now.state() == v1::JOB_COMPARING && cluster_.worker.comparisons > 0;
  });
  EXPECT_EQ(Get(job).claims_size(), 1);
  Stop();
  gate.Notify();
  cluster_.worker.comparisons = 0;  // the next one answers as the first does
  Start();
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.comparison().broken_size(), 1) << done.ShortDebugString();
}

}  // namespace
}  // namespace heddle::scheduler
