// One suite for all record stores.
#include "tests/scheduler/store/all_stores.h"

#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

namespace heddle::scheduler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST_P(RecordStoreTest, LoadsWhatWasPut) {
  AddJob(3, 2, 3);
  ASSERT_TRUE(Apply({PutSearchState{3, 1, std::string("a\0b", 3)}, SetAttempts{3, 2, 2}}).ok());
  ASSERT_TRUE(Apply({MakeRecord(3, 1, 0, 100)}).ok());
  auto jobs = store_->LoadJobs();
  ASSERT_TRUE(jobs.ok());
  ASSERT_THAT(*jobs, SizeIs(1));
  const StoredJob& job = jobs->front();
  EXPECT_EQ(job.row.job.spec().name(), "model");
  EXPECT_EQ(job.row.job.state(), v1::JOB_TUNING);
  EXPECT_EQ(job.row.device_key, "dev");
  EXPECT_THAT(job.row.job.inputs(), ElementsAre("x: f32[1]"));
  EXPECT_EQ(job.row.job.plan(), "plan 1\n");
  EXPECT_EQ(job.row.job.machine(), "machine 1\n");
  ASSERT_THAT(job.tasks, SizeIs(2));
  EXPECT_EQ(job.tasks[1].info.workload(), "workload 1");
  EXPECT_EQ(job.tasks[1].info.weight(), 2);
  EXPECT_EQ(job.tasks[1].estimated_weight, 3);
  EXPECT_EQ(job.tasks[1].rival_weight, 5);
  EXPECT_THAT(job.states, ElementsAre("", std::string("a\0b", 3)));
  ASSERT_THAT(job.candidates, SizeIs(3));
  EXPECT_EQ(job.candidates[0].outcome, v1::OUTCOME_OK);
  EXPECT_EQ(job.candidates[0].median_ns, 100);
  EXPECT_EQ(job.candidates[0].origin, "default");
  EXPECT_EQ(job.candidates[1].outcome, std::nullopt);
  EXPECT_EQ(job.candidates[1].attempts, 2);
}

TEST_P(RecordStoreTest, PutReplacesAndKeepsTheSearchState) {
  AddJob(1);
  ASSERT_TRUE(Apply({PutSearchState{1, 0, "state"}}).ok());
  TaskRow task = MakeTask(1, 0);
  task.done = true;
  task.exhausted = true;
  task.estimated_weight = 4;
  task.rival_weight = 0;
  JobRow job = MakeJob(1, v1::JOB_FAILED);
  job.job.mutable_fault()->set_kind(v1::FAULT_USER);
  job.job.mutable_fault()->set_message("bad model");
  job.paused = true;
  ASSERT_TRUE(Apply({PutTask{task}, PutJob{job}}).ok());
  auto jobs = store_->LoadJobs();
  ASSERT_TRUE(jobs.ok());
  EXPECT_TRUE(jobs->front().tasks[0].done);
  EXPECT_TRUE(jobs->front().tasks[0].exhausted);
  EXPECT_EQ(jobs->front().tasks[0].estimated_weight, 4);
  EXPECT_EQ(jobs->front().tasks[0].rival_weight, 0);
  EXPECT_EQ(jobs->front().states[0], "state");
  EXPECT_EQ(jobs->front().row.job.fault().message(), "bad model");
  EXPECT_TRUE(jobs->front().row.paused);
  EXPECT_THAT(jobs->front().candidates, SizeIs(4));
  EXPECT_EQ(jobs->front().candidates[0].trace, "") << "finished jobs come without traces";
}

TEST_P(RecordStoreTest, ACandidateHasExactlyOneFinalRecord) {
  AddJob(1);
  EXPECT_TRUE(Apply({MakeRecord(1, 1, 0, 100)}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Apply({MakeRecord(1, 1, 0, 90)}))) << "same attempt";
  EXPECT_TRUE(absl::IsAlreadyExists(Apply({MakeRecord(1, 1, 0, 90, 1, 2)}))) << "another attempt";
  EXPECT_THAT(Query({}), SizeIs(1));
}

TEST_P(RecordStoreTest, OlderFencingTokensAreRefused) {
  AddJob(1);
  EXPECT_TRUE(Apply({MakeRecord(1, 1, 0, 100, 7)}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Apply({MakeRecord(1, 2, 0, 100, 6)})));
  EXPECT_TRUE(Apply({MakeRecord(1, 2, 0, 100, 7)}).ok()) << "the same lease goes on";
  InsertRecord elsewhere = MakeRecord(1, 3, 0, 100, 2);
  elsewhere.record.mutable_measurement()->mutable_evidence()->set_slot("profile1");
  EXPECT_TRUE(Apply({elsewhere}).ok()) << "tokens are compared within a slot";
}

TEST_P(RecordStoreTest, AnOldLeaseCannotOverwriteANewerSearchState) {
  AddJob(1);
  const SlotId slot{"w1", "cpu0"};
  const auto commit = [&](uint64_t token, const std::string& state) {
    v1::SearchReport report;
    report.set_samples(static_cast<int32_t>(token));
    return Apply({CheckFence{{slot, token}}, PutSearchState{1, 0, state},
                  PutLearned{1, 0, report, {Key(0), "llvm -mcpu=x", "dev"}, {}, 1},
                  MarkLearned{1, 0, 9}, InsertCandidate{MakeCandidate(1, 90 + token, 0)}});
  };
  EXPECT_TRUE(commit(7, "newer").ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(commit(6, "older")));
  EXPECT_EQ(store_->LoadJobs()->front().states[0], "newer");
  EXPECT_EQ(store_->LoadJobs()->front().candidates.size(), 5u) << "nothing of it is taken";
  EXPECT_EQ((*store_->Report(1, 0))->samples(), 7);
  EXPECT_TRUE(Apply({CheckFence{{slot, 7}}, PutSearchState{1, 0, "again"}}).ok())
      << "the same lease goes on";
  EXPECT_TRUE(Apply({CheckFence{{{"w1", "cpu1"}, 2}}, PutSearchState{1, 0, "elsewhere"}}).ok())
      << "tokens are compared within a slot";
  EXPECT_EQ(store_->Fences()->at(slot), 7u);
  InsertRecord record = MakeRecord(1, 1, 0, 100, 6);
  record.record.mutable_measurement()->mutable_evidence()->set_slot(slot.slot);
  EXPECT_TRUE(absl::IsFailedPrecondition(Apply({record}))) << "records and states share the fence";
}

TEST_P(RecordStoreTest, ABatchIsTakenAsAWholeOrNotAtAll) {
  AddJob(1);
  ASSERT_TRUE(Apply({MakeRecord(1, 1, 0, 100, 5)}).ok());
  auto results = store_->Apply(
      {Batch{MakeRecord(1, 2, 0, 50, 9), MakeRecord(1, 1, 0, 50, 9), SetAttempts{1, 3, 2}},
       Batch{MakeRecord(1, 3, 0, 70, 6)}});
  ASSERT_TRUE(results.ok());
  EXPECT_FALSE((*results)[0].ok());
  EXPECT_TRUE((*results)[1].ok()) << "the fence of the refused batch must be gone with it: "
                                  << (*results)[1];
  EXPECT_THAT(Query({}), SizeIs(2));
  auto jobs = store_->LoadJobs();
  EXPECT_EQ(jobs->front().candidates[1].outcome, std::nullopt);
  EXPECT_EQ(jobs->front().candidates[2].attempts, 0);
}

TEST_P(RecordStoreTest, CandidatesNeedTheirTask) {
  AddJob(1);
  EXPECT_FALSE(Apply({InsertCandidate{MakeCandidate(1, 9, 5)}}).ok());
  EXPECT_FALSE(Apply({InsertCandidate{MakeCandidate(1, 1, 0)}}).ok()) << "the id is taken";
}

TEST_P(RecordStoreTest, LearnMarksThoseWithARecordUpToTheNextRound) {
  AddJob(1, 2, 4);
  ASSERT_TRUE(Apply({MakeRecord(1, 1, 0, 100), MakeRecord(1, 2, 1, 100), MakeRecord(1, 3, 0, 100),
                     MarkLearned{1, 0, 3}})
                  .ok());
  auto jobs = store_->LoadJobs();
  std::vector<bool> learned;
  for (const CandidateRow& row : jobs->front().candidates) learned.push_back(row.learned);
  EXPECT_THAT(learned, ElementsAre(true, false, false, false));
}

TEST_P(RecordStoreTest, QueryFiltersAndOrders) {
  AddJob(1, 2, 4);
  AddJob(2, 2, 4);
  ASSERT_TRUE(Apply({MakeRecord(1, 1, 0, 100), MakeRecord(1, 2, 1, 50), MakeRecord(1, 3, 0, 80),
                     MakeRecord(1, 4, 1, 0), MakeRecord(2, 1, 0, 90)})
                  .ok());
  v1::RecordQuery query;
  EXPECT_THAT(Query(query), SizeIs(5));
  EXPECT_EQ(Query(query)[0].candidate(), 4) << "newest first";
  EXPECT_EQ(Query(query)[0].workload(), "");
  query.set_limit(2);
  EXPECT_THAT(Query(query), SizeIs(2));
  query.set_limit(0);
  query.set_workload_key(Key(0));
  EXPECT_THAT(Query(query), SizeIs(3));
  query.set_best_only(true);
  query.set_with_workload(true);
  ASSERT_THAT(Query(query), SizeIs(1));
  EXPECT_EQ(Query(query)[0].median_ns(), 80);
  EXPECT_EQ(Query(query)[0].workload(), "workload 0");
  query.Clear();
  query.set_job("j2");
  EXPECT_THAT(Query(query), SizeIs(1));
  query.set_best_only(true);
  ASSERT_THAT(Query(query), SizeIs(1))
      << "the best of the job, though another job has a better one";
  EXPECT_EQ(Query(query)[0].median_ns(), 90);
  query.Clear();
  query.set_valid_only(true);
  EXPECT_THAT(Query(query), SizeIs(4));
  query.set_device_key("other");
  EXPECT_THAT(Query(query), SizeIs(0));
}

TEST_P(RecordStoreTest, PagesTogetherAreTheWholeQuery) {
  AddJob(1, 2, 40);
  AddJob(2, 2, 40);
  std::mt19937 random(7);
  Batch batch;
  for (int job = 1; job <= 2; ++job) {
    for (int candidate = 1; candidate <= 40; ++candidate) {
      InsertRecord one = MakeRecord(job, candidate, candidate % 2,
                                    candidate % 5 == 0 ? 0 : 10 + static_cast<int>(random() % 8));
      // Few different times, so that pages end among records of one time.
      one.record.set_created_unix_ns(1000 + static_cast<int64_t>(random() % 3));
      batch.push_back(std::move(one));
    }
  }
  ASSERT_TRUE(Apply(batch).ok());
  for (int round = 0; round < 100; ++round) {
    v1::RecordQuery query;
    if (random() % 2) query.set_workload_key(Key(static_cast<int>(random() % 2)));
    if (random() % 2) query.set_job(random() % 2 ? "j1" : "j2");
    if (random() % 3 == 0) query.set_target("llvm -mcpu=x");
    if (random() % 3 == 0) query.set_device_key("dev");
    query.set_valid_only(random() % 2);
    query.set_best_only(random() % 2);
    const std::vector<v1::Record> whole = Query(query);
    const auto limit = static_cast<int64_t>(1 + random() % 30);
    std::vector<v1::Record> pages;
    std::optional<RecordPlace> place;
    do {
      auto page = store_->QueryPage(query, place, limit);
      ASSERT_TRUE(page.ok()) << page.status();
      ASSERT_LE(static_cast<int64_t>(page->records.size()), limit);
      pages.insert(pages.end(), page->records.begin(), page->records.end());
      place = page->last;
    } while (place && pages.size() <= whole.size());
    ASSERT_EQ(pages.size(), whole.size()) << query.ShortDebugString() << ", " << limit;
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_EQ(pages[i].SerializeAsString(), whole[i].SerializeAsString());
  }
}

TEST_P(RecordStoreTest, KnownCountsAndFindsTheDefaultSchedule) {
  AddJob(1);
  InsertRecord lost = MakeRecord(1, 4, 0, 0);
  lost.record.mutable_measurement()->set_outcome(v1::OUTCOME_LOST);
  ASSERT_TRUE(
      Apply({MakeRecord(1, 1, 0, 300), MakeRecord(1, 2, 0, 100), MakeRecord(1, 3, 0, 0), lost})
          .ok());
  auto known = store_->Known({Key(0), "llvm -mcpu=x", "dev"});
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(known->total, 3) << "a lost trial says nothing";
  EXPECT_EQ(known->valid, 2);
  EXPECT_EQ(known->best_ns, 100);
  EXPECT_EQ(known->untuned_ns, 300);
  EXPECT_EQ(store_->Known({Key(0), "llvm -mcpu=x", "other"})->total, 0);
  EXPECT_EQ(store_->Known({Key(0), "llvm -mcpu=y", "dev"})->total, 0);
}

// So that the texts of a search that finds ever faster schedules do not stay for ever.
TEST_P(RecordStoreTest, TheFastestTrialKeepsItsLoopsAndTheDefaultOne) {
  AddJob(1, 1, 5);  // the first candidate is the default schedule
  const auto put = [&](int64_t candidate, double ns) {
    InsertRecord record = MakeRecord(1, candidate, 0, ns);
    record.record.mutable_measurement()->set_loops(absl::StrCat("loops ", candidate));
    ASSERT_TRUE(Apply({record}).ok());
  };
  const auto shown = [&] {
    std::vector<std::string> loops;
    const auto page = store_->QueryPage({}, std::nullopt, 100);
    EXPECT_TRUE(page.ok()) << page.status();
    for (const v1::Record& record : page->records) loops.push_back(record.measurement().loops());
    return loops;  // of the newest first
  };
  put(2, 100);
  put(1, 90);
  EXPECT_THAT(shown(), UnorderedElementsAre("loops 1", "loops 2"));
  put(3, 80);
  EXPECT_THAT(shown(), UnorderedElementsAre("loops 1", "", "loops 3"));
  put(4, 85);
  EXPECT_THAT(shown(), UnorderedElementsAre("loops 1", "", "loops 3", ""));
  InsertRecord imported = MakeRecord(2, 5, 0, 10);
  imported.imported = true;
  imported.record.mutable_measurement()->set_loops("of elsewhere");
  ASSERT_TRUE(Apply({imported}).ok());
  EXPECT_THAT(shown(), Contains("loops 3"));
  // A batch that is refused as a whole drops nothing.
  InsertRecord faster = MakeRecord(1, 5, 0, 70);
  faster.record.mutable_measurement()->set_loops("loops 5");
  EXPECT_FALSE(Apply({faster, MakeRecord(1, 5, 0, 60)}).ok());
  EXPECT_THAT(shown(), Contains("loops 3"));
  for (const v1::Record& record : Query({})) EXPECT_EQ(record.measurement().loops(), "");
}

TEST_P(RecordStoreTest, ImportSkipsWhatIsThere) {
  AddJob(1);
  ASSERT_TRUE(Apply({MakeRecord(1, 1, 0, 100)}).ok());
  v1::RecordQuery all;
  all.set_with_workload(true);
  std::vector<v1::Record> exported = Query(all);
  EXPECT_TRUE(absl::IsAlreadyExists(Apply({InsertRecord{exported[0], 0, true}})))
      << "one of its own";
  std::unique_ptr<RecordStore> other = GetParam().make(TempDirectory());
  auto first = other->Apply(
      {Batch{InsertRecord{exported[0], 0, true}}, Batch{InsertRecord{exported[0], 0, true}}});
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE((*first)[0].ok());
  EXPECT_TRUE(absl::IsAlreadyExists((*first)[1]));
  auto there = other->Query(all);
  ASSERT_TRUE(there.ok());
  ASSERT_THAT(*there, SizeIs(1));
  EXPECT_EQ(there->front().job(), "j1") << "provenance stays";
  EXPECT_EQ(there->front().median_ns(), 100);
  EXPECT_EQ(there->front().workload(), "workload 0");
  v1::Record changed = exported[0];
  changed.mutable_measurement()->add_samples_ns(77);
  EXPECT_TRUE(other->Apply({Batch{InsertRecord{changed, 0, true}}})->front().ok());
  v1::RecordQuery by_job;
  by_job.set_job("j1");
  EXPECT_THAT(*other->Query(by_job), SizeIs(0)) << "not one of this database's jobs";
}

TEST_P(RecordStoreTest, StageHistory) {
  AddJob(1);
  auto stage = [](int64_t attempt, int64_t start, int64_t end) {
    StageRow row;
    row.span.set_job("j1");
    row.span.set_kind(v1::STAGE_BUILD);
    row.span.set_attempt_id(attempt);
    row.span.set_start_unix_ns(start);
    row.span.set_end_unix_ns(end);
    row.span.set_worker("w1");
    row.lease_id = absl::StrCat("l", attempt);
    return PutStage{row};
  };
  ASSERT_TRUE(Apply({stage(1, 10, 0), stage(2, 30, 40), stage(3, 20, 0)}).ok());
  ASSERT_TRUE(Apply({stage(1, 10, 15)}).ok());
  auto spans = store_->Timeline(1, 0, 10);
  ASSERT_TRUE(spans.ok());
  ASSERT_THAT(*spans, SizeIs(3));
  EXPECT_EQ((*spans)[0].end_unix_ns(), 15);
  EXPECT_EQ((*spans)[1].attempt_id(), 3);
  EXPECT_EQ((*store_->Timeline(1, 0, 1))[0].attempt_id(), 2) << "the latest ones";
  EXPECT_THAT(*store_->Timeline(1, 20, 10), SizeIs(2)) << "those that began then or later";
  EXPECT_EQ((*store_->Timeline(1, 20, 10))[0].attempt_id(), 3);
  EXPECT_THAT(*store_->Timeline(1, 31, 10), SizeIs(0));
  EXPECT_THAT(*store_->Timeline(2, 0, 10), SizeIs(0));
  EXPECT_THAT(*store_->UnfinishedStages(), SizeIs(1));
  EXPECT_EQ(store_->UnfinishedStages()->front().lease_id, "l3");
  EXPECT_EQ(*store_->LastAttempt(), 3);
}

TEST_P(RecordStoreTest, DeviceKeysByUse) {
  AddJob(1);
  InsertRecord other = MakeRecord(1, 1, 0, 100);
  other.record.set_device_key("rare");
  ASSERT_TRUE(Apply({other, MakeRecord(1, 2, 0, 100), MakeRecord(1, 3, 0, 100)}).ok());
  EXPECT_THAT(*store_->DeviceKeys("llvm -mcpu=x"), ElementsAre("dev", "rare"));
  EXPECT_THAT(*store_->DeviceKeys("llvm -mcpu=y"), SizeIs(0));
}

v1::Retraction Why(const std::string& reason) {
  v1::Retraction why;
  why.set_reason(reason);
  why.set_by("ann");
  why.set_unix_ns(77);
  return why;
}

TEST_P(RecordStoreTest, ARetractedRecordStaysAndIsUsedNoMore) {
  AddJob(1);
  ASSERT_TRUE(
      Apply({MakeRecord(1, 1, 0, 100), MakeRecord(1, 2, 0, 50), MakeRecord(1, 3, 0, 80)}).ok());
  v1::RecordQuery best;
  best.set_best_only(true);
  ASSERT_THAT(Query(best), SizeIs(1));
  const int64_t id = Query(best)[0].id();
  EXPECT_EQ(Query(best)[0].median_ns(), 50);
  ASSERT_TRUE(Apply({RetractRecords{{id, 9999}, Why("too fast")}}).ok());
  ASSERT_THAT(Query(best), SizeIs(1));
  EXPECT_EQ(Query(best)[0].median_ns(), 80);
  EXPECT_THAT(Query({}), SizeIs(2));
  const auto known = store_->Known({Key(0), "llvm -mcpu=x", "dev"});
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(known->total, 2);
  EXPECT_EQ(known->best_ns, 80);
  v1::RecordQuery all;
  all.set_retracted(true);
  ASSERT_THAT(Query(all), SizeIs(3));
  all.set_id(id);
  ASSERT_THAT(Query(all), SizeIs(1));
  const v1::Record record = Query(all)[0];
  EXPECT_EQ(record.median_ns(), 50) << "what was measured stays";
  EXPECT_EQ(record.retraction().reason(), "too fast");
  EXPECT_EQ(record.retraction().by(), "ann");
  EXPECT_EQ(record.retraction().unix_ns(), 77);
  all.set_best_only(true);
  EXPECT_THAT(Query(all), SizeIs(0));
  // The job's trial counts as lost.
  const auto jobs = store_->LoadJobs();
  ASSERT_TRUE(jobs.ok());
  EXPECT_EQ(jobs->front().candidates[1].outcome, v1::OUTCOME_LOST);
  EXPECT_EQ(jobs->front().candidates[1].median_ns, 0);
  EXPECT_EQ(jobs->front().candidates[1].message, "its record was retracted: too fast");
  EXPECT_EQ(jobs->front().candidates[2].outcome, v1::OUTCOME_OK);
  EXPECT_TRUE(absl::IsAlreadyExists(Apply({InsertRecord{record, 0, true}}))) << "it is there";
  ASSERT_TRUE(Apply({RetractRecords{{id}, Why("again")}}).ok());
  all.clear_best_only();
  EXPECT_EQ(Query(all)[0].retraction().reason(), "too fast") << "the first reason stays";
}

TEST_P(RecordStoreTest, RecordsTellWhoBroughtThem) {
  AddJob(1);
  InsertRecord imported = MakeRecord(1, 9, 0, 70);
  imported.imported = true;
  imported.record.set_imported_by("bob");
  imported.record.set_id(1234);
  *imported.record.mutable_retraction() = Why("elsewhere");
  InsertRecord own = MakeRecord(1, 1, 0, 100);
  own.record.set_imported_by("a worker that lies");
  ASSERT_TRUE(Apply({own, imported}).ok());
  v1::RecordQuery query;
  query.set_worker("w1");
  ASSERT_THAT(Query(query), SizeIs(1)) << "a worker of another service may have the same name";
  EXPECT_EQ(Query(query)[0].candidate(), 1);
  EXPECT_EQ(Query(query)[0].imported_by(), "");
  query.Clear();
  query.set_imported_by("bob");
  ASSERT_THAT(Query(query), SizeIs(1));
  EXPECT_EQ(Query(query)[0].median_ns(), 70);
  EXPECT_NE(Query(query)[0].id(), 1234);
  query.set_best_only(true);
  EXPECT_THAT(Query(query), SizeIs(1)) << "the best of his, not of all";
  query.set_worker("w1");
  EXPECT_THAT(Query(query), SizeIs(0));
}

TEST_P(RecordStoreTest, WhatWasLearnedFromARetractedRecordGoes) {
  AddJob(1, 2);
  ASSERT_TRUE(Apply({MakeRecord(1, 1, 0, 100), MakeRecord(1, 2, 1, 100)}).ok());
  const auto learned = [](int task) {
    PutLearned put{1, task, {}, {Key(task), "llvm -mcpu=x", "dev"}, {}, 1};
    put.transfer_samples.set_samples("samples");
    return put;
  };
  v1::TransferModel model;
  model.set_model("trees");
  v1::KernelFactor factors[2];
  for (int i = 0; i < 2; ++i) factors[i].set_workload_key(Key(i));
  const TransferModelId here{"llvm -mcpu=x", "dev", "annealing"};
  const TransferModelId there{"llvm -mcpu=x", "other", "annealing"};
  ASSERT_TRUE(
      Apply({learned(0), learned(1), PutTransferModel{here, model}, PutTransferModel{there, model},
             PutExperience{"llvm -mcpu=x", "dev", 1, {factors[0], factors[1]}}})
          .ok());
  v1::RecordQuery query;
  query.set_workload_key(Key(0));
  const int64_t id = Query(query)[0].id();
  const auto samples = [&] {
    return store_->FindRelatedSamples({Key(7), "llvm -mcpu=x", "dev"}, 9)->size();
  };
  const auto experience = [&] { return store_->FindExperience("llvm -mcpu=x", "dev", 9)->device; };
  ASSERT_EQ(samples(), 2u);
  // A batch that is refused changes nothing.
  EXPECT_FALSE(Apply({RetractRecords{{id}, Why("no")}, MakeRecord(1, 1, 0, 5)}).ok());
  EXPECT_THAT(Query({}), SizeIs(2));
  EXPECT_EQ(samples(), 2u);
  EXPECT_THAT(experience(), SizeIs(2));
  EXPECT_THAT(*store_->AllTransferModels(), SizeIs(2));
  ASSERT_TRUE(Apply({RetractRecords{{id}, Why("no")}}).ok());
  EXPECT_EQ(samples(), 1u);
  ASSERT_THAT(experience(), SizeIs(1));
  EXPECT_EQ(experience()[0].workload_key(), Key(1));
  ASSERT_THAT(*store_->AllTransferModels(), SizeIs(1));
  EXPECT_EQ(store_->AllTransferModels()->begin()->first.device_key, "other");
}

TEST_P(RecordStoreTest, ASubmitKeyBelongsToOneJobOfItsUser) {
  const auto job = [](int64_t id, const std::string& user, const std::string& key) {
    JobRow row = MakeJob(id);
    row.job.mutable_spec()->set_user(user);
    row.submit_key = key;
    return PutJob{row};
  };
  ASSERT_TRUE(
      Apply({job(1, "ada", "k"), job(2, "bob", "k"), job(3, "ada", ""), job(4, "ada", "")}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Apply({job(5, "ada", "k")})));
  EXPECT_TRUE(Apply({job(1, "ada", "k")}).ok()) << "the job itself may be put again";
  EXPECT_EQ((*store_->FindSubmitted("ada", "k"))->id, 1);
  EXPECT_EQ((*store_->FindSubmitted("bob", "k"))->id, 2);
  EXPECT_EQ((*store_->FindSubmitted("bob", "k"))->job.spec().user(), "bob");
  EXPECT_EQ(*store_->FindSubmitted("ada", "other"), std::nullopt);
  EXPECT_EQ(store_->LoadJobs()->front().row.submit_key, "k");
  EXPECT_EQ(*store_->LastJob(), 4);
}

TEST_P(RecordStoreTest, OwnersAreFoundWithoutTheJobs) {
  const auto job = [](int64_t id, const std::string& user, v1::JobState state) {
    JobRow row = MakeJob(id);
    row.job.mutable_spec()->set_user(user);
    row.job.set_state(state);
    return PutJob{row};
  };
  ASSERT_TRUE(Apply({job(1, "ada", v1::JOB_DONE), job(2, "bob", v1::JOB_TUNING),
                     job(4, "", v1::JOB_FAILED), job(7, "bob", v1::JOB_CANCELLED)})
                  .ok());
  const auto owners = [&](const JobSelection& selection) {
    std::string text;
    const auto found = store_->Owners(selection);
    EXPECT_TRUE(found.ok()) << found.status();
    for (const JobOwner& owner : *found) absl::StrAppend(&text, owner.job, owner.user, " ");
    return text;
  };
  EXPECT_EQ(owners({}), "1ada 2bob 4 7bob ");
  EXPECT_EQ(owners({.which = JobSelection::kUnfinished}), "2bob ");
  EXPECT_EQ(owners({.which = JobSelection::kFinished}), "1ada 4 7bob ");
  EXPECT_EQ(owners({.which = JobSelection::kFinished, .before = 7, .limit = 1}), "4 ");
  EXPECT_EQ(owners({.before = 3, .limit = 1}), "2bob ") << "one job by its id";
  EXPECT_EQ(owners({.before = 6, .limit = 1}), "4 ") << "there is no job 5";
  EXPECT_EQ(owners({.before = 1, .limit = 1}), "");
}

TEST_P(RecordStoreTest, JobsTellTheirBlobs) {
  JobRow row = MakeJob(1);
  row.job.set_model_digest("model");
  row.job.set_module_digest("module");
  row.job.set_parts_digest("parts");
  row.job.set_default_digest("default");
  ASSERT_TRUE(Apply({PutJob{row}, PutJob{MakeJob(2)}}).ok());
  const auto used = store_->BlobsOfJobs();
  ASSERT_TRUE(used.ok());
  ASSERT_THAT(*used, SizeIs(2));
  EXPECT_THAT((*used)[0].blobs, ElementsAre("model", "parts", "module", "default"));
  EXPECT_EQ((*used)[0].parts_digest, "parts");
  EXPECT_THAT((*used)[1].blobs, SizeIs(0));
}

INSTANTIATE_TEST_SUITE_P(All, RecordStoreTest, kStores, StoreName);

// ---- what only a file can do ----

TEST_P(RecordStoreTest, KeepsTheMachineOfADeviceKey) {
  using Machines = std::map<std::string, std::string>;
  EXPECT_EQ(store_->Machines().value(), Machines());
  AddJob(1);
  ASSERT_TRUE(Apply({MakeRecord(1, 1, 0, 100)}).ok());
  EXPECT_EQ(store_->Machines().value(), Machines()) << "a device key with records only";
  ASSERT_TRUE(Apply({PutMachine{"dev", "machine 1\na"}, PutMachine{"new", "machine 1\nb"}}).ok());
  EXPECT_EQ(store_->Machines().value(),
            Machines({{"dev", "machine 1\na"}, {"new", "machine 1\nb"}}));
  ASSERT_TRUE(Apply({PutMachine{"dev", "machine 2"}, PutMachine{"new", ""}}).ok());
  EXPECT_EQ(store_->Machines().value(), Machines({{"dev", "machine 2"}}));
  // A batch that is refused changes none.
  EXPECT_FALSE(Apply({PutMachine{"dev", "machine 3"}, MakeRecord(1, 1, 0, 90)}).ok());
  EXPECT_EQ(store_->Machines().value(), Machines({{"dev", "machine 2"}}));
  EXPECT_THAT(Query({}), SizeIs(1));
}

// Whatever is inserted and retracted, all stores answer every query alike.
TEST(AllStoresTest, AgreeOnWhatStands) {
  const std::string directory = TempDirectory();
  std::vector<std::unique_ptr<RecordStore>> stores;
  stores.push_back(MakeMemoryRecordStore());
  stores.push_back(*OpenSqliteRecordStore(directory + "/a.db"));
  if (PostgresServer* const server = PostgresServer::Shared())
    stores.push_back(*OpenPostgresRecordStore(server->NewDatabase()));
  std::mt19937 random(3);
  const auto pick = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  const auto apply = [&](const Batch& batch) {
    std::vector<std::string> answers;
    for (const auto& store : stores)
      answers.push_back(absl::StatusCodeToString(store->Apply({batch})->front().code()));
    for (const std::string& answer : answers) ASSERT_EQ(answer, answers[0]);
  };
  Batch job = {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)}, PutTask{MakeTask(1, 1)}};
  for (int i = 1; i <= 40; ++i)
    job.push_back(InsertCandidate{MakeCandidate(1, i, i % 2, i < 9 ? "default" : "random")});
  apply(job);
  for (int step = 0; step < 300; ++step) {
    const int candidate = 1 + pick(40);
    InsertRecord insert = MakeRecord(1, candidate, candidate % 2, pick(5) == 0 ? 0 : 50 + pick(20));
    insert.imported = pick(3) == 0;
    insert.record.set_imported_by(pick(2) == 0 ? "ann" : "bob");
    if (pick(3) == 0) {
      v1::Retraction why = Why(absl::StrCat("step ", step));
      apply({RetractRecords{{pick(30), pick(30)}, why}});
    } else {
      apply({insert});
    }
    v1::RecordQuery query;
    if (pick(2) == 0) query.set_workload_key(Key(pick(2)));
    if (pick(3) == 0) query.set_job("j1");
    if (pick(3) == 0) query.set_worker("w1");
    if (pick(3) == 0) query.set_imported_by(pick(2) == 0 ? "ann" : "bob");
    if (pick(5) == 0) query.set_id(1 + pick(20));
    query.set_best_only(pick(3) == 0);
    query.set_valid_only(pick(3) == 0);
    query.set_retracted(pick(2) == 0);
    const size_t count = stores.size();
    std::vector<std::string> found(count), known(count), candidates(count);
    for (size_t i = 0; i < count; ++i) {
      const auto records = stores[i]->Query(query);
      ASSERT_TRUE(records.ok()) << records.status();
      for (const v1::Record& record : *records) {
        absl::StrAppend(&found[i], record.id(), " ", record.median_ns(), " ", record.imported_by(),
                        " ", record.retraction().reason(), "\n");
      }
      const KnownRecords of = *stores[i]->Known({Key(step % 2), "llvm -mcpu=x", "dev"});
      known[i] = absl::StrCat(of.total, " ", of.valid, " ", of.best_ns, " ", of.untuned_ns);
      const std::vector<StoredJob> jobs = *stores[i]->LoadJobs();
      for (const StoredCandidate& row : jobs.front().candidates) {
        absl::StrAppend(&candidates[i], row.outcome ? static_cast<int>(*row.outcome) : -1, " ",
                        row.median_ns, " ", row.message, "\n");
      }
    }
    for (size_t i = 1; i < count; ++i) {
      ASSERT_EQ(found[0], found[i]) << step << ": " << query.ShortDebugString();
      ASSERT_EQ(known[0], known[i]) << step;
      ASSERT_EQ(candidates[0], candidates[i]) << step;
    }
  }
  stores.clear();
  std::filesystem::remove_all(directory);
}

TEST(SqliteStoreTest, SurvivesReopening) {
  const std::string path = TempDirectory() + "/a.db";
  {
    auto store = OpenSqliteRecordStore(path);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE((*store)->Apply({Batch{PutJob{MakeJob(4)}}})->front().ok());
  }
  auto store = OpenSqliteRecordStore(path);
  ASSERT_TRUE(store.ok());
  EXPECT_THAT(*(*store)->LoadJobs(), SizeIs(1));
}

TEST(SqliteStoreTest, ACorruptFileIsNamed) {
  const std::string path = TempDirectory() + "/bad.db";
  std::ofstream(path) << std::string(8192, 'x');
  auto store = OpenSqliteRecordStore(path);
  EXPECT_TRUE(absl::IsDataLoss(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr(path));
}

TEST(SqliteStoreTest, ALockedFileIsNamed) {
  const std::string path = TempDirectory() + "/locked.db";
  sqlite3* holder = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &holder), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(holder, "CREATE TABLE t(x); BEGIN EXCLUSIVE", nullptr, nullptr, nullptr),
            SQLITE_OK);
  auto store = OpenSqliteRecordStore(path);
  EXPECT_TRUE(absl::IsUnavailable(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("close the program"));
  sqlite3_close(holder);
}

// However long somebody reads, whoever he is.
TEST(SqliteStoreTest, AReaderHoldsUpNoWriter) {
  const std::string path = TempDirectory() + "/read.db";
  auto store = OpenSqliteRecordStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  sqlite3* reader = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &reader), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(reader, "BEGIN; SELECT * FROM jobs", nullptr, nullptr, nullptr),
            SQLITE_OK);
  const auto applied = (*store)->Apply({Batch{PutJob{MakeJob(4)}}});
  EXPECT_TRUE(applied.ok()) << applied.status();
  EXPECT_THAT(*(*store)->LoadJobs(), SizeIs(1));
  sqlite3_close(reader);
}

TEST(SqliteStoreTest, ANewerVersionIsRefused) {
  const std::string path = TempDirectory() + "/newer.db";
  ASSERT_TRUE(OpenSqliteRecordStore(path).ok());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version=99", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenSqliteRecordStore(path).status()));
}

}  // namespace
}  // namespace heddle::scheduler
