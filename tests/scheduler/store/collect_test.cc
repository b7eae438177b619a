// What collecting a finished job removes, and what it never touches: the same promises of all stores.
#include <algorithm>
#include <optional>
#include <random>

#include "tests/scheduler/store/all_stores.h"

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
    auto found = store_->CollectionOf(job, {}, 1000);
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

// However small the pages are, together they have what one has, and none looks at more than it may.
TEST_P(CollectTest, PagesGiveEachRowOnce) {
  TwoJobs();
  const Collection whole = CollectionOf(1);
  EXPECT_FALSE(whole.last.has_value());
  const int rows = 6 + 2;  // candidates and stages of job 1
  for (const int limit : {1, 2, 3, 5, 8, 100}) {
    Collection all;
    int pages = 0;
    for (std::optional<CollectionPlace> place = CollectionPlace(); place; ++pages) {
      const auto page = store_->CollectionOf(1, *place, limit);
      ASSERT_TRUE(page.ok()) << page.status();
      ASSERT_LT(pages, 20);
      EXPECT_LE(page->rows.candidates.size() + page->rows.attempts.size(),
                static_cast<size_t>(limit));
      EXPECT_LE(page->rows.records.size(), static_cast<size_t>(limit));
      const auto add = [](const std::vector<int64_t>& from, std::vector<int64_t>* to) {
        to->insert(to->end(), from.begin(), from.end());
      };
      add(page->rows.candidates, &all.rows.candidates);
      add(page->rows.records, &all.rows.records);
      add(page->rows.attempts, &all.rows.attempts);
      all.bytes += page->bytes;
      place = page->last;
    }
    EXPECT_EQ(pages, rows / limit + 1) << limit << ": the last page may have nothing";
    EXPECT_EQ(all.rows.candidates, whole.rows.candidates) << limit;
    EXPECT_EQ(all.rows.records, whole.rows.records) << limit;
    EXPECT_EQ(all.rows.attempts, whole.rows.attempts) << limit;
    EXPECT_EQ(all.bytes, whole.bytes) << limit;
  }
}

// What was collected before is passed over in pages, too.
TEST_P(CollectTest, PagesOfRowsThatAreGoneAreBoundedToo) {
  TwoJobs();
  ASSERT_TRUE(Apply({CollectionOf(1).rows}).ok());
  const auto page = store_->CollectionOf(1, {}, 4);
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(page->rows.candidates, IsEmpty());
  ASSERT_TRUE(page->last.has_value());
  EXPECT_EQ(page->last->candidate, 4);
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
  EXPECT_EQ(store_->Timeline(3, 0, 10)->size(), 2u);
}

TEST_P(CollectTest, AttemptIdsNeverGoBack) {
  TwoJobs();
  ASSERT_TRUE(Apply({CollectRows{1, {}, {}, {1, 2}}}).ok());
  EXPECT_EQ(*store_->LastAttempt(), 2);
  EXPECT_EQ(store_->Timeline(1, 0, 10)->size(), 1u);
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

// Records that a collection removes, besides what it takes of jobs.
class OldRecordsTest : public CollectTest {
 protected:
  static constexpr int64_t kEnd = 6000;  // all records were made before

  // Job 1 was collected. Its task 0 has eight records, one of each candidate, with the same ids and made
  // in this order. The first is of the default schedule, the third is the fastest.
  void CollectedJob() {
    Batch batch = {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)}};
    for (int64_t id = 1; id <= 8; ++id)
      batch.push_back(InsertCandidate{MakeCandidate(1, id, 0, id == 1 ? "default" : "random")});
    ASSERT_TRUE(Apply(batch).ok());
    const double ns[] = {100, 90, 20, 0, 70, 60, 55, 50};
    for (int64_t id = 1; id <= 8; ++id) ASSERT_TRUE(Apply({MakeRecord(1, id, 0, ns[id - 1])}).ok());
    Finish(1, 5500);
    ASSERT_TRUE(Apply({CollectJob{1, 5600}}).ok());
  }
  std::vector<int64_t> Old(int64_t before, int64_t newest) {
    const auto found = store_->FindOldRecords({before, newest}, {}, 1000);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? Sorted(found->ids) : std::vector<int64_t>();
  }
  static std::vector<int64_t> Sorted(std::vector<int64_t> ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  struct Walked {
    std::vector<int64_t> ids;
    int pages = 0;
  };
  // All pages of so many records. With `remove`, what is found is removed before the next page is
  // read.
  Walked Walk(const OldRecordRule& rule, int64_t limit, bool remove = false) {
    Walked walked;
    std::optional<OldRecordPlace> after;
    do {
      const auto page = store_->FindOldRecords(rule, after, limit);
      EXPECT_TRUE(page.ok()) << page.status();
      if (!page.ok()) break;
      EXPECT_LE(page->ids.size(), static_cast<size_t>(limit));
      walked.ids.insert(walked.ids.end(), page->ids.begin(), page->ids.end());
      if (remove) {
        EXPECT_TRUE(Apply({RemoveRecords{rule, after, limit}}).ok());
      }
      after = page->last;
    } while (after && ++walked.pages < 10'000);
    walked.pages += !after;
    return walked;
  }
  static InsertRecord Imported(InsertRecord record) {
    record.record.mutable_measurement()->mutable_evidence()->clear_slot();
    record.record.set_imported_by("bob");
    record.imported = true;
    return record;
  }
  absl::Status Retract(std::vector<int64_t> ids, int64_t unix_ns) {
    v1::Retraction why;
    why.set_reason("its clock was broken");
    why.set_by("ann");
    why.set_unix_ns(unix_ns);
    return Apply({RetractRecords{std::move(ids), why}});
  }
  // Ids of all records, retracted ones included.
  std::vector<int64_t> Ids() {
    v1::RecordQuery query;
    query.set_retracted(true);
    std::vector<int64_t> ids;
    for (const v1::Record& record : Query(query)) ids.push_back(record.id());
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  StoredJob Finished(int64_t job) {
    auto jobs = store_->LoadJobs({.which = JobSelection::kFinished, .before = job + 1, .limit = 1});
    EXPECT_TRUE(jobs.ok() && jobs->size() == 1);
    return jobs->front();
  }
};

TEST_P(OldRecordsTest, SupersededAreThoseWithEnoughNewerOnes) {
  CollectedJob();
  EXPECT_THAT(Old(kEnd, 3), ElementsAre(2, 4, 5))
      << "not 1, the default schedule, nor 3, the fastest, nor the newest three";
  EXPECT_THAT(Old(kEnd, 6), ElementsAre(2));
  EXPECT_THAT(Old(kEnd, 8), IsEmpty());
  EXPECT_THAT(Old(kEnd, kMaxWarmRecords), IsEmpty());
  EXPECT_THAT(Old(5004, 3), ElementsAre(2)) << "4 was made at that time";
  EXPECT_THAT(Old(0, 3), IsEmpty());
}

TEST_P(OldRecordsTest, RetractedOnesAreOldByTheirRetraction) {
  CollectedJob();
  ASSERT_TRUE(Retract({3, 7}, 5700).ok());
  EXPECT_THAT(Old(5700, 100), IsEmpty());
  EXPECT_THAT(Old(5701, 100), ElementsAre(3, 7));
  EXPECT_THAT(Old(5701, 3), ElementsAre(2, 3, 4, 7))
      << "5, 6 and 8 are the newest that stand, and 8 is the fastest now";
}

TEST_P(OldRecordsTest, WhatAJobMayNeedIsNotOld) {
  CollectedJob();
  ASSERT_TRUE(Retract({7}, 10).ok());
  ASSERT_TRUE(Apply({PutJob{MakeJob(2)}, PutTask{MakeTask(2, 0)}}).ok());
  EXPECT_THAT(Old(kEnd, 3), ElementsAre(7)) << "job 2 tunes the task; nobody reads 7";
  Finish(2, 5900);
  EXPECT_THAT(Old(kEnd, 3), ElementsAre(2, 4, 7));
  // A job that was not collected is shown with its trials' messages.
  AddJob(3, 1, 2);
  ASSERT_TRUE(Apply({MakeRecord(3, 1, 1, 500), MakeRecord(3, 2, 1, 600)}).ok());
  ASSERT_TRUE(Retract({9}, 10).ok());
  Finish(3, 5900);
  EXPECT_THAT(Old(kEnd, 1), ::testing::Not(::testing::Contains(9)));
  ASSERT_TRUE(Apply({CollectJob{3, 5950}}).ok());
  EXPECT_THAT(Old(kEnd, 1), ::testing::Contains(9));
}

TEST_P(OldRecordsTest, ARemovedRecordLeavesItsTrialAsItWas) {
  CollectedJob();
  ASSERT_TRUE(Retract({7}, 10).ok());
  const KnownRecords before = *store_->Known({Key(0), "llvm -mcpu=x", "dev"});
  const StoredJob shown = Finished(1);
  ASSERT_TRUE(Apply({RemoveRecords{{kEnd, 3}, {}, 1000}}).ok());
  EXPECT_THAT(Ids(), ElementsAre(1, 3, 5, 6, 8));
  const KnownRecords after = *store_->Known({Key(0), "llvm -mcpu=x", "dev"});
  EXPECT_EQ(after.total, before.total - 2);
  EXPECT_EQ(after.best_ns, before.best_ns);
  EXPECT_EQ(after.untuned_ns, before.untuned_ns);
  const StoredJob now = Finished(1);
  ASSERT_EQ(now.candidates.size(), shown.candidates.size());
  for (size_t i = 0; i < now.candidates.size(); ++i) {
    EXPECT_EQ(now.candidates[i].outcome, shown.candidates[i].outcome) << i;
    EXPECT_EQ(now.candidates[i].median_ns, shown.candidates[i].median_ns) << i;
  }
  EXPECT_EQ(now.candidates[6].outcome, v1::OUTCOME_LOST) << "it was retracted";
  EXPECT_EQ(now.candidates[6].message, kRemoved);
  EXPECT_EQ(now.candidates[3].message, kRemoved) << "it had failed";
  EXPECT_EQ(now.candidates[1].message, "");
  EXPECT_THAT(Old(kEnd, 3), IsEmpty());
}

// Each page looks at as many records as it may, so their number tells whether one is looked at
// twice.
TEST_P(OldRecordsTest, PagesGiveEachRecordOnce) {
  CollectedJob();
  for (const int64_t limit : {1, 2, 3, 7, 8, 100}) {
    const Walked walked = Walk({kEnd, 3}, limit);
    EXPECT_THAT(Sorted(walked.ids), ElementsAre(2, 4, 5)) << limit;
    EXPECT_EQ(walked.pages, 8 / limit + 1) << limit;
  }
}

// Records of several jobs and devices, imported ones and measured ones, many of the same time and
// speed: what pages of any size find is what the rule says of a list of them.
TEST_P(OldRecordsTest, PagesFindWhatTheRuleSays) {
  struct Made {
    int64_t id, job;
    int group;
    int64_t created_ns, retracted_ns;
    double ns;  // 0: it failed
    bool imported, is_default;
  };
  constexpr int kTasks = 4, kLive = 3;  // job 2 goes on with the last task
  constexpr int64_t kCollected = 1, kShown = 3, kRecords = 150;
  std::mt19937 random(5);
  Batch batch;
  for (const int64_t job : {kCollected, kShown}) {
    batch.push_back(PutJob{MakeJob(job)});
    for (int i = 0; i < kTasks; ++i) batch.push_back(PutTask{MakeTask(job, i)});
  }
  batch.push_back(PutJob{MakeJob(2)});
  batch.push_back(PutTask{MakeTask(2, kLive)});
  std::vector<Made> all;
  for (int64_t id = 1; id <= kRecords; ++id) {
    Made& made = all.emplace_back();
    const int task = static_cast<int>(random() % kTasks), device = static_cast<int>(random() % 2);
    made = {.id = id,
            .job = random() % 5 == 0 ? kShown : kCollected,
            .group = 2 * task + device,
            .created_ns = 5000 + static_cast<int64_t>(random() % 30),
            .retracted_ns = random() % 6 == 0 ? 5900 + static_cast<int64_t>(random() % 200) : 0,
            .ns = static_cast<double>(random() % 8) * 10,
            .imported = random() % 3 == 0,
            .is_default = random() % 12 == 0};
    batch.push_back(
        InsertCandidate{MakeCandidate(made.job, id, task, made.is_default ? "default" : "random")});
    InsertRecord record = MakeRecord(made.job, id, task, made.ns);
    record.record.set_created_unix_ns(made.created_ns);
    if (device == 1) record.record.set_device_key("other");
    batch.push_back(made.imported ? Imported(record) : record);
  }
  ASSERT_TRUE(Apply(std::move(batch)).ok());
  for (const Made& made : all) {
    if (made.retracted_ns != 0) {
      ASSERT_TRUE(Retract({made.id}, made.retracted_ns).ok());
    }
  }
  Finish(kCollected, 5500);
  Finish(kShown, 5500);
  ASSERT_TRUE(Apply({CollectJob{kCollected, 5600}}).ok());

  const auto old = [&](const OldRecordRule& rule) {
    std::vector<int64_t> ids;
    for (const Made& made : all) {
      if (made.id == kRecords || (!made.imported && made.job == kShown)) continue;
      bool is_old = made.retracted_ns != 0 && made.retracted_ns < rule.before_unix_ns;
      if (made.retracted_ns == 0) {
        int64_t newer = 0;
        bool best = made.ns > 0, best_here = made.ns > 0 && !made.imported;
        for (const Made& other : all) {
          if (other.group != made.group || other.retracted_ns != 0) continue;
          newer += std::pair(other.created_ns, other.id) > std::pair(made.created_ns, made.id);
          const bool faster =
              other.ns > 0 && std::pair(other.ns, other.id) < std::pair(made.ns, made.id);
          best &= !faster;
          best_here &= !faster || other.imported;
        }
        is_old = newer >= rule.newest && made.created_ns < rule.before_unix_ns && !best &&
                 !best_here && made.group / 2 != kLive && (made.imported || !made.is_default);
      }
      if (is_old) ids.push_back(made.id);
    }
    return ids;
  };
  for (const OldRecordRule rule : {OldRecordRule{kEnd, 1}, OldRecordRule{kEnd, 4},
                                   OldRecordRule{5015, 2}, OldRecordRule{kEnd, 1000}}) {
    const std::vector<int64_t> expected = old(rule);
    EXPECT_FALSE(expected.empty() && rule.before_unix_ns == kEnd);
    for (const int64_t limit : {1, 7, 50, 1000}) {
      const Walked walked = Walk(rule, limit);
      EXPECT_EQ(Sorted(walked.ids), expected) << rule.newest << " " << limit;
      EXPECT_EQ(walked.pages, kRecords / limit + 1) << rule.newest << " " << limit;
    }
  }
  // So does a collection, which removes what a page finds before it reads the next one.
  const std::vector<int64_t> expected = old({kEnd, 2});
  EXPECT_EQ(Sorted(Walk({kEnd, 2}, 6, /*remove=*/true).ids), expected);
  std::vector<int64_t> left;
  for (const Made& made : all) left.push_back(made.id);
  std::erase_if(
      left, [&](int64_t id) { return std::binary_search(expected.begin(), expected.end(), id); });
  EXPECT_EQ(Ids(), left);
}

// A page does not look for the fastest record again, but what happened to it in between counts.
TEST_P(OldRecordsTest, TheFastestOfNowStays) {
  Batch batch = {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)}};
  const double ns[] = {30, 10, 20, 90, 80, 70};
  for (int64_t id = 1; id <= 6; ++id) {
    batch.push_back(InsertCandidate{MakeCandidate(1, id, 0)});
    batch.push_back(MakeRecord(1, id, 0, ns[id - 1]));
  }
  ASSERT_TRUE(Apply(std::move(batch)).ok());
  Finish(1, 5500);
  ASSERT_TRUE(Apply({CollectJob{1, 5600}}).ok());
  const auto first = store_->FindOldRecords({kEnd, 1}, {}, 3);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Sorted(first->ids), ElementsAre(4, 5)) << "2 is the fastest";
  ASSERT_TRUE(first->last.has_value());
  // It was wrong, and faster ones are imported; the last of these is the latest of all.
  ASSERT_TRUE(Retract({2}, 5700).ok());
  for (const auto& [candidate, imported_ns] : {std::pair(7, 5.0), std::pair(8, 500.0)}) {
    InsertRecord record = MakeRecord(9, candidate, 0, imported_ns);
    record.record.set_created_unix_ns(4000 + candidate);
    ASSERT_TRUE(Apply({Imported(record)}).ok());
  }
  const auto second = store_->FindOldRecords({kEnd, 1}, first->last, 100);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(Sorted(second->ids), ElementsAre(1, 2))
      << "3 is the fastest that was measured here, and 7 of all";
  EXPECT_FALSE(second->last.has_value());
}

// Between the read and the removal a job begins.
TEST_P(OldRecordsTest, TheRemovalLooksAnew) {
  CollectedJob();
  ASSERT_THAT(Old(kEnd, 3), ElementsAre(2, 4, 5));
  ASSERT_TRUE(Apply({PutJob{MakeJob(2)}, PutTask{MakeTask(2, 0)}}).ok());
  ASSERT_TRUE(Apply({RemoveRecords{{kEnd, 3}, {}, 1000}}).ok());
  EXPECT_EQ(Ids().size(), 8u);
}

TEST_P(OldRecordsTest, ABatchThatIsRefusedRemovesNothing) {
  CollectedJob();
  ASSERT_TRUE(Retract({7}, 10).ok());
  EXPECT_FALSE(Apply({RemoveRecords{{kEnd, 3}, {}, 1000}, CollectJob{77, 1}}).ok());
  EXPECT_EQ(Ids().size(), 8u);
  EXPECT_EQ(Finished(1).candidates[3].message, "signal 11");
}

TEST_P(OldRecordsTest, WhatWasRetractedIsNotImportedAgain) {
  const auto import = [&](int64_t candidate, double ns) {
    InsertRecord record = MakeRecord(9, candidate, 0, ns);
    record.record.mutable_measurement()->mutable_evidence()->clear_slot();
    record.record.set_imported_by("bob");
    record.imported = true;
    return Apply({record});
  };
  for (int64_t i = 1; i <= 4; ++i) ASSERT_TRUE(import(i, 10.0 * static_cast<double>(i)).ok());
  ASSERT_TRUE(Retract({1}, 10).ok());
  ASSERT_TRUE(Apply({RemoveRecords{{kEnd, 1}, {}, 1000}}).ok());
  EXPECT_THAT(Ids(), ElementsAre(2, 4)) << "2 is the fastest, 4 the newest; 3 is superseded";
  EXPECT_TRUE(absl::IsAlreadyExists(import(1, 10))) << "a false record does not come back";
  EXPECT_TRUE(import(3, 30).ok());
  EXPECT_THAT(Ids(), ElementsAre(2, 4, 5));
}

TEST_P(OldRecordsTest, TheLatestRecordStaysSoThatNoIdComesAgain) {
  CollectedJob();
  ASSERT_TRUE(Retract({8}, 10).ok());
  EXPECT_THAT(Old(kEnd, 100), IsEmpty());
  ASSERT_TRUE(Apply({RemoveRecords{{kEnd, 100}, {}, 1000}}).ok());
  AddJob(2);
  ASSERT_TRUE(Apply({MakeRecord(2, 1, 0, 500)}).ok());
  EXPECT_EQ(Ids().back(), 9);
  EXPECT_THAT(Old(kEnd, 100), ElementsAre(8));
}

// Imported records are no claims of this service.
TEST_P(OldRecordsTest, TheBestMeasuredHereIsNotImported) {
  EXPECT_FALSE(store_->BestMeasured({Key(0), "llvm -mcpu=x", "dev"})->has_value());
  CollectedJob();
  InsertRecord imported = MakeRecord(9, 1, 0, 5);
  imported.record.mutable_measurement()->mutable_evidence()->clear_slot();
  imported.record.set_imported_by("bob");
  imported.imported = true;
  ASSERT_TRUE(Apply({imported}).ok());
  const auto best = [&] {
    const auto found = store_->BestMeasured({Key(0), "llvm -mcpu=x", "dev"});
    return found.ok() && found->has_value() ? (*found)->id() : -1;
  };
  EXPECT_EQ(best(), 3);
  ASSERT_TRUE(Retract({3}, 10).ok());
  EXPECT_EQ(best(), 8);
  EXPECT_FALSE(store_->BestMeasured({Key(0), "llvm -mcpu=x", "other"})->has_value());
}

INSTANTIATE_TEST_SUITE_P(All, OldRecordsTest, kStores, StoreName);

}  // namespace
}  // namespace heddle::scheduler
