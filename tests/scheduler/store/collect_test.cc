// What collecting a finished job removes, and what it never touches: the same promises of both stores.
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CollectTest : public RecordStoreTest {
 protected:
  // Job 1 has ended. Of its task 0, candidate 2 is the fastest; candidate 3 crashed. Of task 1,
  // candidate 5 is. Job 2 goes on, with a task whose workload is that of task 1.
  void TwoJobs() {
    Batch batch = {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)}, PutTask{MakeTask(1, 1)}};
    for (int64_t id = 1; id <= 6; ++id)
      batch.push_back(InsertCandidate{MakeCandidate(1, id, id > 3 ? 1 : 0)});
    ASSERT_TRUE(Apply(batch).ok());
    const std::pair<int, double> measured[] = {{0, 100}, {0, 50}, {0, 0}, {1, 70}, {1, 60}};
    for (int64_t id = 1; id <= 5; ++id) {  // candidate 6 was never measured
      const auto& [task, ns] = measured[id - 1];
      ASSERT_TRUE(Apply({MakeRecord(1, id, task, ns)}).ok());
    }
    ASSERT_TRUE(Apply({Stage(1, 1), Stage(2, 1)}).ok());
    ASSERT_TRUE(Apply({PutJob{MakeJob(2)}, PutTask{MakeTask(2, 1)}}).ok());
    Finish(1, 7000);
  }
  static JobRow FinishedRow(int64_t job, int64_t finished_ns) {
    JobRow row = MakeJob(job, v1::JOB_DONE);
    row.submit_key = absl::StrCat("key ", job);
    row.job.mutable_spec()->set_user("ann");
    row.job.set_model_digest(absl::StrCat("model ", job));
    row.job.set_parts_digest(absl::StrCat("parts ", job));
    row.job.set_module_digest(absl::StrCat("module ", job));
    row.job.set_finished_unix_ns(finished_ns);
    return row;
  }
  void Finish(int64_t job, int64_t finished_ns) {
    ASSERT_TRUE(Apply({PutJob{FinishedRow(job, finished_ns)}}).ok());
  }
  static PutStage Stage(int64_t attempt, int64_t job) {
    StageRow row;
    row.span.set_job(JobName(job));
    row.span.set_kind(v1::STAGE_PROFILE);
    row.span.set_attempt_id(attempt);
    row.span.set_worker("w1");
    row.span.set_slot("profile0");
    row.span.set_start_unix_ns(attempt);
    row.span.set_end_unix_ns(attempt + 1);
    return {row};
  }
  // By candidate: how many samples the records of job 1 have.
  std::map<int64_t, int> Samples() {
    v1::RecordQuery query;
    query.set_job("j1");
    std::map<int64_t, int> samples;
    for (const v1::Record& record : Query(query))
      samples[record.candidate()] = record.measurement().samples_ns_size();
    return samples;
  }
  Collection CollectionOf(int64_t job) {
    auto found = store_->CollectionOf(job);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : Collection{};
  }
};

TEST_P(CollectTest, TheBestAndWhatALiveJobTunesKeepTheirSamples) {
  TwoJobs();
  const KnownRecords before = *store_->Known({Key(0), "llvm -mcpu=x", "dev"});
  const Collection found = CollectionOf(1);
  EXPECT_THAT(found.rows.candidates, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(found.rows.records, ElementsAre(1, 3)) << "not 2, the best, nor 4 and 5 of job 2";
  EXPECT_THAT(found.rows.attempts, ElementsAre(1));
  EXPECT_EQ(found.count(), 9);
  EXPECT_GT(found.bytes, 0);
  ASSERT_TRUE(Apply({found.rows}).ok());
  EXPECT_EQ(Samples(), (std::map<int64_t, int>{{1, 1}, {2, 3}, {3, 0}, {4, 3}, {5, 3}}));

  // Searches find what they found before.
  const KnownRecords after = *store_->Known({Key(0), "llvm -mcpu=x", "dev"});
  EXPECT_EQ(after.total, before.total);
  EXPECT_EQ(after.valid, before.valid);
  EXPECT_EQ(after.best_ns, before.best_ns);
  v1::RecordQuery query;
  query.set_id(1);
  const std::vector<v1::Record> thin = Query(query);
  ASSERT_EQ(thin.size(), 1u);
  EXPECT_EQ(thin[0].trace(), "trace 1");
  EXPECT_EQ(thin[0].median_ns(), 100);
  EXPECT_THAT(thin[0].measurement().samples_ns(), ElementsAre(100));
  EXPECT_EQ(thin[0].measurement().evidence().worker(), "w1");
  EXPECT_EQ(thin[0].measurement().evidence().slot(), "");
  query.set_id(3);
  EXPECT_EQ(Query(query)[0].measurement().message(), "signal 11");
  query.Clear();
  query.set_worker("w1");
  EXPECT_EQ(Query(query).size(), 5u) << "who measured a record is still known";

  const Collection rest = CollectionOf(1);
  EXPECT_THAT(rest.rows.candidates, IsEmpty());
  EXPECT_THAT(rest.rows.attempts, IsEmpty());
  EXPECT_LT(rest.bytes, found.bytes);
}

TEST_P(CollectTest, ARetractedRecordIsNotTheBest) {
  TwoJobs();
  v1::Retraction why;
  why.set_reason("its clock was broken");
  why.set_by("ann");
  why.set_unix_ns(1);
  ASSERT_TRUE(Apply({RetractRecords{{2}, why}}).ok());
  EXPECT_THAT(CollectionOf(1).rows.records, ElementsAre(2, 3)) << "1 is the best now";
}

TEST_P(CollectTest, UnfinishedJobsAreRefused) {
  TwoJobs();
  ASSERT_TRUE(Apply({InsertCandidate{MakeCandidate(2, 1, 1)}}).ok());
  const absl::Status rows = Apply({CollectRows{2, {1}, {}, {}}});
  EXPECT_TRUE(absl::IsFailedPrecondition(rows)) << rows;
  const absl::Status job = Apply({CollectJob{2, 9000}});
  EXPECT_TRUE(absl::IsFailedPrecondition(job)) << job;
  EXPECT_THAT(job.message(), HasSubstr("j2"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Apply({CollectRows{77, {1}, {}, {}}})));
  EXPECT_TRUE(absl::IsFailedPrecondition(Apply({CollectJob{77, 9000}})));
  const auto jobs = store_->LoadJobs({.which = JobSelection::kUnfinished});
  ASSERT_TRUE(jobs.ok());
  EXPECT_EQ(jobs->front().candidates.front().trace, "trace 1");
  EXPECT_EQ(jobs->front().row.job.collected_unix_ns(), 0);
}

TEST_P(CollectTest, RowsOfAnotherJobAreLeftAlone) {
  TwoJobs();
  AddJob(3);
  ASSERT_TRUE(Apply({MakeRecord(3, 1, 0, 500)}).ok());
  ASSERT_TRUE(Apply({Stage(3, 3), Stage(4, 3)}).ok());
  // Record 6 and stage 3 are of job 3, which has not ended.
  ASSERT_TRUE(Apply({CollectRows{1, {}, {6}, {3}}}).ok());
  v1::RecordQuery query;
  query.set_id(6);
  EXPECT_EQ(Query(query)[0].measurement().samples_ns_size(), 3);
  EXPECT_EQ(store_->Timeline(3, 10)->size(), 2u);
}

TEST_P(CollectTest, AttemptIdsNeverGoBack) {
  TwoJobs();
  ASSERT_TRUE(Apply({CollectRows{1, {}, {}, {1, 2}}}).ok());
  EXPECT_EQ(*store_->LastAttempt(), 2);
  EXPECT_EQ(store_->Timeline(1, 10)->size(), 1u);
}

TEST_P(CollectTest, ACollectedJobRefersToNoBlob) {
  TwoJobs();
  Finish(3, 6000);
  ASSERT_TRUE(Apply({PutTask{MakeTask(3, 0)}}).ok());
  PutLearned learned{1, 0, {}, {Key(0), "llvm -mcpu=x", "dev"}, {}, 1, 1};
  learned.report.set_samples(5);
  ASSERT_TRUE(Apply({learned, PutSearchState{1, 0, "a state"}}).ok());
  std::vector<int64_t> order;
  const auto chosen = store_->Collectable();
  ASSERT_TRUE(chosen.ok());
  for (const FinishedJob& job : *chosen) order.push_back(job.id);
  EXPECT_THAT(order, ElementsAre(3, 1)) << "job 3 ended first, job 2 has not";
  EXPECT_EQ((*chosen)[1].finished_unix_ns, 7000);
  EXPECT_EQ((*chosen)[1].name, "model");
  EXPECT_THAT((*chosen)[1].blobs.blobs, ElementsAre("model 1", "parts 1", "module 1"));

  ASSERT_TRUE(Apply({CollectJob{1, 1'700'000'000'000'000'000}}).ok());
  EXPECT_EQ(store_->Collectable()->size(), 1u);
  const std::vector<JobBlobs> of_jobs = *store_->BlobsOfJobs();
  for (const JobBlobs& used : of_jobs) EXPECT_EQ(used.blobs.empty(), used.job != 3) << used.job;
  EXPECT_FALSE(store_->Report(1, 0)->has_value());
  const std::optional<JobRow> row = *store_->FindSubmitted("ann", "key 1");
  ASSERT_TRUE(row.has_value()) << "a submission that is sent again finds it";
  EXPECT_EQ(row->job.state(), v1::JOB_DONE);
  EXPECT_EQ(row->job.parts_digest(), "");
  EXPECT_EQ(row->job.collected_unix_ns(), 1'700'000'000'000'000'000);
  EXPECT_THAT(row->job.warnings(), ElementsAre(HasSubstr("were collected on 2023-11-14")));
  const auto jobs = store_->LoadJobs({.which = JobSelection::kFinished, .before = 2, .limit = 1});
  EXPECT_THAT(jobs->front().states, ElementsAre("", ""));
  EXPECT_EQ(jobs->front().candidates.size(), 6u);

  ASSERT_TRUE(Apply({CollectJob{1, 1'800'000'000'000'000'000}}).ok()) << "again, as after a kill";
  EXPECT_EQ((*store_->FindSubmitted("ann", "key 1"))->job.collected_unix_ns(),
            1'700'000'000'000'000'000);
}

TEST_P(CollectTest, ClaimsOfImportedRecordsOutliveARestart) {
  JobRow row = MakeJob(1, v1::JOB_COMPARING);
  v1::Claim& claim = *row.job.add_claims();
  claim.set_workload_key(Key(0));
  claim.set_record(7);
  claim.set_ns(12);
  claim.set_imported_by("bob");
  v1::BrokenClaim& broken = *row.job.mutable_comparison()->add_broken();
  *broken.mutable_claim() = claim;
  broken.set_ns(300);
  ASSERT_TRUE(Apply({PutJob{row}}).ok());
  const auto jobs = store_->LoadJobs();
  EXPECT_EQ(jobs->front().row.job.ShortDebugString(), row.job.ShortDebugString());
}

INSTANTIATE_TEST_SUITE_P(All, CollectTest, kStores, StoreName);

}  // namespace
}  // namespace heddle::scheduler
