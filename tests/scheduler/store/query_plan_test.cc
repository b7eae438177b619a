// Millions of records, trials, stages or jobs cost no more than thousands: no statement of the SQLite store
// scans their tables. Every statement that the store runs is caught, and SQLite is asked for its plan. The
// planner does not know how many rows a table has, so a small store shows the plans of a large one. Statistics
// and pages that look at many records are tested in both databases.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "scheduler/store/postgres/postgres_record_store.h"
#include "scheduler/store/postgres/postgres_session.h"
#include "scheduler/store/sqlite_record_store.h"
#include "scheduler/store/sqlite_session.h"
#include "tests/scheduler/store/postgres_server.h"
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

// What may be scanned, and why.
struct Allowed {
  const char* sql;   // a part of the statement
  const char* plan;  // the beginning of a line of its plan
  const char* why;
};
constexpr Allowed kAllowed[] = {
    {"LIMIT ?12", "SCAN r USING INDEX records_created",
     "a page ends at its limit, or where ReadRecords says that it has looked at enough"},
    {"SELECT DISTINCT r.workload, r.target, r.device FROM records r", "SCAN r",
     "the best records that one worker measured or one user imported; no program asks for them"},
    {"FROM jobs WHERE state IN (4, 5, 6) AND model_digest<>''", "SCAN jobs",
     "a collection looks at every finished job once"},
    {"FROM stages ORDER BY attempt DESC LIMIT", "SCAN stages", "it ends at its limit"},
    {"FROM stages WHERE end_ns=0", "SCAN stages USING INDEX stages_open",
     "the index has the running stages only"},
    {"jobs_unfinished", "SCAN j USING INDEX jobs_unfinished",
     "the index has the unfinished jobs only"},
    {"jobs_unfinished", "SCAN j USING COVERING INDEX jobs_unfinished",
     "the index has the unfinished jobs only"},
};
// Names of the large tables in statements. The others have a row for each workload, target or device.
const std::set<std::string> kLarge = {"records", "r", "b",    "n",     "candidates",
                                      "c",       "j", "jobs", "stages"};

std::set<std::string>* caught = nullptr;

int Catch(unsigned, void*, void* statement, void*) {
  if (caught != nullptr) caught->insert(sqlite3_sql(static_cast<sqlite3_stmt*>(statement)));
  return 0;
}
int CatchStatements(sqlite3* db, char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, Catch, nullptr);
}

// Calls every function of the store, and queries records by every combination of fields.
void UseAll(RecordStore& store) {
  const auto apply = [&](Batch batch) {
    const auto results = store.Apply({std::move(batch)});
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_TRUE(results->front().ok()) << results->front();
  };
  const WorkloadId id{Key(0), "llvm -mcpu=x", "dev"};
  Batch job = {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)}, CheckFence{{{"w1", "profile0"}, 1}}};
  for (int i = 1; i <= 4; ++i)
    job.push_back(InsertCandidate{MakeCandidate(1, i, 0, i == 1 ? "default" : "random")});
  apply(job);
  InsertRecord imported = MakeRecord(1, 3, 0, 90);
  imported.imported = true;
  imported.record.set_imported_by("ann");
  v1::Retraction why;
  why.set_reason("too fast");
  why.set_unix_ns(9);
  v1::TransferSamples samples;
  samples.set_samples("samples");
  v1::TransferModel model;
  model.set_model("model");
  v1::KernelFactor factor;
  factor.set_workload_key(Key(0));
  v1::StageSpan span;
  span.set_attempt_id(1);
  span.set_job("j1");
  InsertRecord slow = MakeRecord(1, 2, 0, 90), fast = MakeRecord(1, 4, 0, 80);
  for (InsertRecord* one : {&slow, &fast}) one->record.mutable_measurement()->set_loops("loops");
  apply({MakeRecord(1, 1, 0, 100), slow, fast, imported, PutSearchState{1, 0, "s"},
         PutLearned{1, 0, {}, id, samples, 9, 2},
         PutTransferModel{{id.target, id.device_key, "annealing"}, model},
         PutMachine{"dev", "machine 1"}, PutExperience{id.target, "dev", 9, {factor}},
         SetAttempts{JobId{1}, CandidateId{3}, 1},
         MarkLearned{JobId{1}, TaskIndex{0}, CandidateId{3}}, PutStage{{span, "lease"}}});
  for (const auto which :
       {JobSelection::kAll, JobSelection::kUnfinished, JobSelection::kFinished}) {
    EXPECT_TRUE(store.LoadJobs({.which = which}).ok());
    EXPECT_TRUE(store.Owners({.which = which}).ok());
  }
  for (unsigned fields = 0; fields < 1u << 10; ++fields) {
    const auto given = [&](int field) { return (fields >> field & 1) != 0; };
    v1::RecordQuery query;
    if (given(0)) query.set_workload_key(id.key);
    if (given(1)) query.set_target(id.target);
    if (given(2)) query.set_device_key(id.device_key);
    if (given(3)) query.set_job("j1");
    if (given(4)) query.set_worker("w1");
    if (given(5)) query.set_imported_by("ann");
    if (given(6)) query.set_id(1);
    query.set_best_only(given(7));
    query.set_valid_only(given(8));
    query.set_retracted(given(9) && !given(7));
    EXPECT_TRUE(store.QueryPage(query, std::nullopt, 10).ok());
    EXPECT_TRUE(store.QueryPage(query, RecordPlace{1'000'000, 10}, 10).ok());
  }
  EXPECT_TRUE(store.Query({}).ok());
  EXPECT_TRUE(store.LastJob().ok());
  EXPECT_TRUE(store.FindSubmitted("ann", "key").ok());
  EXPECT_TRUE(store.BlobsOfJobs().ok());
  EXPECT_TRUE(store.UnfinishedStages().ok());
  EXPECT_TRUE(store.LastAttempt().ok());
  EXPECT_TRUE(store.Fences().ok());
  EXPECT_TRUE(store.Timeline(1, 0, 9).ok());
  EXPECT_TRUE(store.SampleTrials(id, 9).ok());
  EXPECT_TRUE(store.LatestStages(0, 9).ok());
  EXPECT_TRUE(store.FindWorkloads("conv", "", 9).ok());
  EXPECT_TRUE(store.CompareDevices("dev", "other", 9).ok());
  EXPECT_TRUE(store.Known(id).ok());
  EXPECT_TRUE(store.Known({Key(5), id.target, "dev"}).ok());
  EXPECT_TRUE(store.BestMeasured(id).ok());
  EXPECT_TRUE(store.Report(1, 0).ok());
  EXPECT_TRUE(store.FindRelatedSamples(id, 9).ok());
  EXPECT_TRUE(store.SamplesAfter("llvm", std::nullopt, 9).ok());
  EXPECT_TRUE(store.SamplesAfter("llvm", id, 9).ok());
  EXPECT_TRUE(store.AllTransferModels().ok());
  EXPECT_TRUE(store.Machines().ok());
  EXPECT_TRUE(store.FindExperience(id.target, "dev", 9).ok());
  EXPECT_TRUE(store.DeviceKeys(id.target).ok());
  apply({RetractRecords{{2}, why}});
  JobRow done = MakeJob(1, v1::JOB_DONE);
  apply({PutJob{done}});
  EXPECT_TRUE(store.Collectable().ok());
  EXPECT_TRUE(store.CollectionOf(1, {}, 9).ok());
  apply({CollectRows{1, {1}, {1}, {1}}, CollectJob{1, 9}});
  OldRecordRule rule{1'000'000, 1};
  const auto old = store.FindOldRecords(rule, {}, 9);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_FALSE(old->ids.empty());
  const auto page = store.FindOldRecords(rule, {}, 1);
  ASSERT_TRUE(page.ok() && page->last) << page.status();
  EXPECT_TRUE(store.FindOldRecords(rule, page->last, 9).ok());
  apply({RemoveRecords{rule, {}, 9}});
}

// The lines of the statement's plan that scan a large table and are not allowed to.
std::vector<std::string> ScansOf(sqlite3* db, const std::string& sql) {
  std::vector<std::string> scans;
  sqlite3_stmt* plan = nullptr;
  if (sqlite3_prepare_v2(db, ("EXPLAIN QUERY PLAN " + sql).c_str(), -1, &plan, nullptr) !=
      SQLITE_OK)
    return scans;  // such as BEGIN, which has no plan
  while (sqlite3_step(plan) == SQLITE_ROW) {
    const std::string line = reinterpret_cast<const char*>(sqlite3_column_text(plan, 3));
    if (!line.starts_with("SCAN ")) continue;
    if (!kLarge.contains(line.substr(5, line.find(' ', 5) - 5))) continue;
    bool allowed = false;
    for (const Allowed& one : kAllowed)
      allowed |= absl::StrContains(sql, one.sql) && absl::StartsWith(line, one.plan);
    if (!allowed) scans.push_back(line);
  }
  sqlite3_finalize(plan);
  return scans;
}

TEST(QueryPlanTest, NoStatementScansALargeTable) {
  const std::string directory = TempDirectory();
  sqlite3_auto_extension(reinterpret_cast<void (*)()>(CatchStatements));
  std::set<std::string> statements;
  {
    auto store = OpenSqliteRecordStore(directory + "/test.db");
    ASSERT_TRUE(store.ok()) << store.status();
    caught = &statements;  // a migration may look at everything
    UseAll(**store);
    caught = nullptr;
  }
  sqlite3_reset_auto_extension();
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((directory + "/test.db").c_str(), &db), SQLITE_OK);
  int planned = 0;
  for (const std::string& sql : statements) {
    planned += absl::StrContains(sql, "FROM") || absl::StrContains(sql, "UPDATE");
    for (const std::string& scan : ScansOf(db, sql)) ADD_FAILURE() << scan << "\n  of: " << sql;
  }
  EXPECT_GT(planned, 500) << "the store's statements are caught";
  // The check itself finds what it should.
  EXPECT_EQ(ScansOf(db, "SELECT count(*) FROM records WHERE retracted_ns=0").size(), 1u);
  EXPECT_EQ(ScansOf(db, "SELECT 1 FROM records r WHERE r.worker='w'").size(), 1u);
  EXPECT_EQ(ScansOf(db, "SELECT 1 FROM records r WHERE r.id=7").size(), 0u);
  sqlite3_close(db);
  std::filesystem::remove_all(directory);
}

// ---- all pages of old records ----

int64_t steps = 0;  // of SQLite's virtual machine
int64_t runs = 0;   // of statements

int CountSteps(unsigned, void*, void* statement, void*) {
  steps += sqlite3_stmt_status(static_cast<sqlite3_stmt*>(statement), SQLITE_STMTSTATUS_VM_STEP,
                               /*resetFlg=*/1);
  ++runs;
  return 0;
}
int CountAllSteps(sqlite3* db, char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(db, SQLITE_TRACE_PROFILE, CountSteps, nullptr);
}

// What SQLite does to read all pages of a look at so many imported records of one workload, all but
// a tenth of which are to stay.
int64_t StepsOfALook(int64_t records, bool same_time) {
  const std::string directory = TempDirectory();
  sqlite3_auto_extension(reinterpret_cast<void (*)()>(CountAllSteps));
  auto store = OpenSqliteRecordStore(directory + "/test.db");
  EXPECT_TRUE(store.ok()) << store.status();
  Batch batch;
  for (int64_t i = 1; i <= records; ++i) {
    InsertRecord record = MakeRecord(1, i, 0, 100);
    record.imported = true;
    record.record.set_imported_by("ann");
    if (same_time) record.record.set_created_unix_ns(5000);
    batch.push_back(record);
  }
  EXPECT_TRUE((*store)->Apply({std::move(batch)})->front().ok());
  steps = 0;
  int64_t found = 0;
  std::optional<OldRecordPlace> after;
  do {
    const auto page = (*store)->FindOldRecords({1'000'000, records * 9 / 10}, after, 10);
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok()) break;
    found += static_cast<int64_t>(page->ids.size());
    after = page->last;
  } while (after);
  EXPECT_EQ(found, records / 10 - 1) << "the first is the fastest";
  store->reset();
  sqlite3_reset_auto_extension();
  std::filesystem::remove_all(directory);
  return steps;
}

TEST(QueryPlanTest, APageOfOldRecordsReadsNothingAgain) {
  for (const bool same_time : {false, true}) {
    const int64_t some = StepsOfALook(400, same_time), more = StepsOfALook(1600, same_time);
    EXPECT_GT(some, 400) << "steps are counted";
    EXPECT_LT(more, 5 * some) << "of four times as many records";
  }
}

// ---- samples of a rare kind of target ----

// What SQLite does to read a page of the samples of one kind, of which there are three, all of the oldest
// workload, among so many of another kind.
int64_t StepsOfRareSamples(int others) {
  const std::string directory = TempDirectory();
  sqlite3_auto_extension(reinterpret_cast<void (*)()>(CountAllSteps));
  auto store = OpenSqliteRecordStore(directory + "/test.db");
  EXPECT_TRUE(store.ok()) << store.status();
  Batch batch = {PutJob{MakeJob(1)}};
  v1::TransferSamples samples;
  samples.set_samples("samples");
  const auto learn = [&](int task, const std::string& target, const std::string& device) {
    batch.push_back(PutLearned{1, task, {}, {Key(task), target, device}, samples, 9, 2});
  };
  for (int i = 0; i < others; ++i) {
    batch.push_back(PutTask{MakeTask(1, i)});
    learn(i, "llvm -mcpu=x", "dev");
  }
  learn(0, "rare -a", "dev");
  learn(0, "rare -a", "dev 2");
  learn(0, "rare -b", "dev");
  EXPECT_TRUE((*store)->Apply({std::move(batch)})->front().ok());
  steps = 0;
  const auto page = (*store)->SamplesAfter("rare", std::nullopt, 9);
  EXPECT_TRUE(page.ok() && page->size() == 3) << page.status();
  store->reset();
  sqlite3_reset_auto_extension();
  std::filesystem::remove_all(directory);
  return steps;
}

TEST(QueryPlanTest, APageOfSamplesReadsNoneOfOtherKinds) {
  const int64_t some = StepsOfRareSamples(20), more = StepsOfRareSamples(400);
  EXPECT_GT(some, 10) << "steps are counted";
  EXPECT_LT(more, some + some / 2);
}

// Each statement is a round trip to PostgreSQL.
TEST(QueryPlanTest, APageOfSamplesTakesFewStatements) {
  const std::string directory = TempDirectory();
  sqlite3_auto_extension(reinterpret_cast<void (*)()>(CountAllSteps));
  auto store = OpenSqliteRecordStore(directory + "/test.db");
  ASSERT_TRUE(store.ok()) << store.status();
  Batch batch = {PutJob{MakeJob(1)}};
  v1::TransferSamples samples;
  samples.set_samples("samples");
  for (int i = 0; i < 40; ++i) {
    batch.push_back(PutTask{MakeTask(1, i)});
    batch.push_back(PutLearned{1, i, {}, {Key(i), "llvm", "dev"}, samples, 9, 2});
  }
  ASSERT_TRUE((*store)->Apply({std::move(batch)})->front().ok());
  for (const size_t limit : {4, 40}) {
    runs = 0;
    const auto page = (*store)->SamplesAfter("llvm", std::nullopt, static_cast<int64_t>(limit));
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(page->size(), limit);
    EXPECT_EQ(runs, 3) << "the targets, the rows of the one target, their samples";
  }
  store->reset();
  sqlite3_reset_auto_extension();
  std::filesystem::remove_all(directory);
}

// ---- long answers ----

std::vector<sqlite3*> readers;  // connections that read pages of records, in order

int NoteReader(unsigned, void*, void* statement, void*) {
  auto* const read = static_cast<sqlite3_stmt*>(statement);
  if (absl::StrContains(sqlite3_sql(read), "LIMIT ?12")) readers.push_back(sqlite3_db_handle(read));
  return 0;
}
int NoteReaders(sqlite3* db, char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, NoteReader, nullptr);
}

// So that those who ask little wait for nobody who reads on and on.
TEST(LongAnswersTest, LaterPagesHaveAConnectionOfTheirOwn) {
  const std::string directory = TempDirectory();
  sqlite3_auto_extension(reinterpret_cast<void (*)()>(NoteReaders));
  auto store = OpenSqliteRecordStore(directory + "/test.db");
  ASSERT_TRUE(store.ok()) << store.status();
  for (int i = 1; i <= 3; ++i) {
    InsertRecord record = MakeRecord(1, i, 0, 100);
    record.imported = true;
    ASSERT_TRUE((*store)->Apply({Batch{record}})->front().ok());
  }
  readers.clear();
  const auto first = (*store)->QueryPage({}, std::nullopt, 1);
  ASSERT_TRUE(first.ok() && first->last) << first.status();
  EXPECT_TRUE((*store)->QueryPage({}, first->last, 1).ok());
  EXPECT_TRUE((*store)->QueryPage({}, std::nullopt, 1).ok());
  ASSERT_THAT(readers, ::testing::SizeIs(3));
  EXPECT_NE(readers[0], readers[1]);
  EXPECT_EQ(readers[0], readers[2]);
  store->reset();
  sqlite3_reset_auto_extension();
  std::filesystem::remove_all(directory);
}

// ---- statistics that are kept ----

// A store in each of the databases. Parameter: whether it is PostgreSQL.
class SqlStoreTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && PostgresServer::Shared() == nullptr) GTEST_SKIP() << kNoPostgres;
    directory_ = TempDirectory();
    address_ = GetParam() ? PostgresServer::Shared()->NewDatabase() : directory_ + "/test.db";
    Reopen();
  }
  void TearDown() override {
    session_.reset();
    store_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Reopen() {
    store_.reset();
    auto store = GetParam() ? OpenPostgresRecordStore(address_) : OpenSqliteRecordStore(address_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  absl::Status Apply(Batch batch) {
    const auto results = store_->Apply({std::move(batch)});
    return results.ok() ? results->front() : results.status();
  }
  // A connection of the test's own.
  SqlSession* session() {
    if (session_ != nullptr) return session_.get();
    if (GetParam()) {
      session_ =
          *PostgresSession::Open({.url = address_, .application = "test", .connected = nullptr});
    } else {
      session_ = std::make_unique<SqliteSession>(*Connect(address_, SQLITE_OPEN_READWRITE));
    }
    return session_.get();
  }
  // The numbers of the rows.
  std::vector<std::string> Rows(const std::string& sql, int columns) {
    std::vector<std::string> found;
    Statement rows(session(), sql);
    while (rows.Step()) {
      std::string& row = found.emplace_back();
      for (int i = 0; i < columns; ++i) absl::StrAppend(&row, rows.Real(i), " ");
    }
    EXPECT_TRUE(rows.status().ok()) << rows.status();
    return found;
  }
  int64_t Uncounted() {
    Statement row(session(), "SELECT count(*) FROM record_groups WHERE counted=0");
    return row.Step() ? row.Int(0) : -1;
  }
  // The statistics of the store are those that its records give, once all are counted.
  void CompareStatistics() {
    for (int64_t left = Uncounted(); left > 0; --left)
      ASSERT_TRUE(Apply({}).ok());  // each transaction counts one at least
    EXPECT_EQ(
        Rows("SELECT workload, target, device, records, known, valid, best_ns, untuned_ns "
             "FROM record_groups WHERE counted=1 AND records>0 ORDER BY 1, 2, 3",
             8),
        Rows("SELECT r.workload, r.target, r.device, count(*), "
             "count(CASE WHEN r.outcome<>7 THEN 1 END), count(CASE WHEN r.outcome=1 THEN 1 END), "
             "coalesce(min(CASE WHEN r.outcome=1 THEN r.median_ns END), 0), "
             "coalesce(min(CASE WHEN r.outcome=1 AND c.origin='default' THEN r.median_ns END), 0) "
             "FROM records r LEFT JOIN candidates c ON c.job=r.job AND c.id=r.candidate "
             "WHERE r.retracted_ns=0 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
             8));
    EXPECT_EQ(Uncounted(), 0);
  }

  std::string directory_, address_;
  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<SqlSession> session_;
};
INSTANTIATE_TEST_SUITE_P(Databases, SqlStoreTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Postgres" : "Sqlite"; });

TEST_P(SqlStoreTest, EveryStatementRuns) { UseAll(*store_); }

TEST_P(SqlStoreTest, StatisticsAgreeWithTheRecordsWhateverIsDone) {
  RecordStore& store = *store_;
  std::mt19937 random(7);
  constexpr int kTasks = 3, kCandidates = 400;
  Batch job = {PutJob{MakeJob(1, v1::JOB_DONE)}};  // of a live job, no record is old
  for (int i = 0; i < kTasks; ++i) job.push_back(PutTask{MakeTask(1, i)});
  for (int i = 1; i <= kCandidates; ++i)
    job.push_back(InsertCandidate{MakeCandidate(1, i, i % kTasks, i % 5 ? "random" : "default")});
  ASSERT_TRUE(store.Apply({job})->front().ok());
  int64_t next = 1, last = 0;
  int removed = 0;
  for (int step = 0; step < 300 && !::testing::Test::HasFailure(); ++step) {
    Batch batch;
    switch (random() % 4) {
      case 0: {
        std::vector<int64_t> ids;
        for (unsigned i = random() % 4; i > 0 && last > 0; --i)
          ids.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(last)));
        v1::Retraction why;
        why.set_reason("wrong");
        why.set_unix_ns(10);
        batch.push_back(RetractRecords{ids, why});
        break;
      }
      case 1:
        // Old are those of collected jobs and imported ones; of these, all but the newest five.
        batch.push_back(RemoveRecords{{1'000'000, 5}, {}, 100});
        break;
      default:
        for (unsigned i = 1 + random() % 4; i > 0 && next <= kCandidates; --i, ++next, ++last) {
          const double ns = random() % 5 == 0 ? 0 : 10 + static_cast<double>(random() % 50);
          InsertRecord record = MakeRecord(1, next, static_cast<int>(next % kTasks), ns);
          record.imported = random() % 2 == 0;
          if (random() % 6 == 0) {
            record.record.mutable_measurement()->set_outcome(v1::OUTCOME_LOST);
          }
          batch.push_back(record);
        }
        // A batch that is refused changes no statistics.
        if (random() % 5 == 0) {
          Batch refused = batch;
          refused.push_back(InsertCandidate{MakeCandidate(1, 1, 0)});
          const auto results = store.Apply({refused});
          ASSERT_TRUE(results.ok()) << results.status();
          EXPECT_FALSE(results->front().ok());
        }
    }
    const auto before = store.Query({});
    const auto results = store.Apply({batch});
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_TRUE(results->front().ok()) << results->front();
    removed += std::holds_alternative<RemoveRecords>(batch.front()) &&
               store.Query({})->size() < before->size();
    CompareStatistics();
  }
  EXPECT_GT(removed, 0) << "some records were old";
}

TEST_P(SqlStoreTest, StatisticsThatAnOlderProgramDidNotKeepAreCountedAfterTheStart) {
  constexpr int kTasks = 8;
  Batch job = {PutJob{MakeJob(1)}};
  for (int i = 0; i < kTasks; ++i) job.push_back(PutTask{MakeTask(1, i)});
  for (int i = 1; i <= 3 * kTasks; ++i) {
    job.push_back(InsertCandidate{MakeCandidate(1, i, i % kTasks, i <= kTasks ? "default" : "")});
    job.push_back(MakeRecord(1, i, i % kTasks, 100 - i));
  }
  ASSERT_TRUE(Apply(job).ok());
  store_.reset();
  if (GetParam()) {  // no program is older
    ASSERT_TRUE(session()
                    ->Execute("UPDATE record_groups SET counted=0, records=7, known=7, best_ns=1")
                    .ok());
  } else {  // as the version before this left it
    ASSERT_TRUE(session()
                    ->Execute("DROP TABLE record_groups; DROP INDEX experience_pages; "
                              "DROP INDEX records_equal; "
                              "CREATE INDEX records_digest ON records(digest); "
                              "PRAGMA user_version=12")
                    .ok());
  }
  Reopen();
  EXPECT_EQ(Uncounted(), kTasks);
  const auto check = [&] {
    for (int task = 0; task < kTasks; ++task) {
      const auto known = store_->Known({Key(task), "llvm -mcpu=x", "dev"});
      ASSERT_TRUE(known.ok()) << known.status();
      EXPECT_EQ(known->total, 3);
      EXPECT_EQ(known->best_ns, 100 - (task == 0 ? 24 : 16 + task));
      EXPECT_EQ(known->untuned_ns, 100 - (task == 0 ? 8 : task));
    }
    EXPECT_THAT(*store_->DeviceKeys("llvm -mcpu=x"), ::testing::ElementsAre("dev"));
    v1::RecordQuery best;
    best.set_best_only(true);
    EXPECT_EQ(store_->Query(best)->size(), static_cast<size_t>(kTasks));
  };
  check();
  for (int i = 0; i < kTasks && Uncounted() > 0; ++i)
    ASSERT_TRUE(Apply({}).ok());  // each transaction counts one at least
  EXPECT_EQ(Uncounted(), 0);
  check();
  CompareStatistics();
}

// ---- pages that look at many records ----

TEST_P(SqlStoreTest, APageEndsThoughNothingMatches) {
  RecordStore& store = *store_;
  constexpr int64_t kRecords = 25'000;
  Batch batch;
  for (int64_t i = 1; i <= kRecords; ++i) {
    InsertRecord record = MakeRecord(1, i, 0, 100);
    record.imported = true;
    record.record.set_imported_by(i == 3 ? "ann" : "bob");
    record.record.set_created_unix_ns(i / 7);  // many have the same time
    batch.push_back(record);
    if (i % 500 != 0) continue;
    ASSERT_TRUE(Apply(std::move(batch)).ok());
    batch.clear();
  }
  v1::RecordQuery query;
  query.set_imported_by("ann");
  std::optional<RecordPlace> place;
  std::vector<size_t> sizes;
  do {
    const auto page = store.QueryPage(query, place, 100);
    ASSERT_TRUE(page.ok()) << page.status();
    sizes.push_back(page->records.size());
    place = page->last;
  } while (place && sizes.size() < 10);
  EXPECT_THAT(sizes, ::testing::ElementsAre(0, 0, 1));
  // Where all match, pages end by their limit only.
  query.set_imported_by("bob");
  int64_t count = 0;
  std::set<int64_t> ids;
  do {
    const auto page = store.QueryPage(query, place, 999);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const v1::Record& record : page->records) ids.insert(record.id());
    count += static_cast<int64_t>(page->records.size());
    place = page->last;
  } while (place);
  EXPECT_EQ(count, kRecords - 1);
  EXPECT_EQ(static_cast<int64_t>(ids.size()), kRecords - 1) << "each comes once";
}

}  // namespace
}  // namespace heddle::scheduler
