// What only the store in PostgreSQL has to stand: connections that are cut, a server that is killed, answers
// that are lost, another scheduler on the same database; with a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "scheduler/store/copy_store.h"
#include "scheduler/store/maintenance.h"
#include "scheduler/store/memory_record_store.h"
#include "scheduler/store/open_store.h"
#include "scheduler/store/postgres/postgres_record_store.h"
#include "scheduler/store/postgres/postgres_schema.h"
#include "scheduler/store/postgres/postgres_session.h"
#include "scheduler/store/sql_record_store.h"
#include "scheduler/store/sqlite_record_store.h"
#include "scheduler/store/sqlite_schema.h"
#include "scheduler/store/store_writer.h"
#include "tests/scheduler/store/fault_workload.h"
#include "tests/scheduler/store/postgres_server.h"
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::unique_ptr<RecordStore> MustOpen(const std::string& url) {
  auto store = OpenPostgresRecordStore(url);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

absl::Status ApplyOne(RecordStore* store, const Batch& batch) {
  const auto results = store->Apply({batch});
  return results.ok() ? results->front() : results.status();
}

TEST(PostgresSqlTest, ParametersAreNumberedByUse) {
  const PostgresSql plain = ToPostgres("SELECT a FROM t WHERE b=? AND c='?' AND \"d?\"=?");
  EXPECT_EQ(plain.text, "SELECT a FROM t WHERE b=$1 AND c='?' AND \"d?\"=$2");
  EXPECT_THAT(plain.parameters, ElementsAre(1, 2));
  // Those that are left out are not counted: nothing tells their types.
  const PostgresSql numbered = ToPostgres("SELECT a FROM t WHERE b=?7 AND c=?2 AND d=?7 LIMIT ?10");
  EXPECT_EQ(numbered.text, "SELECT a FROM t WHERE b=$1 AND c=$2 AND d=$1 LIMIT $3");
  EXPECT_THAT(numbered.parameters, ElementsAre(7, 2, 10));
  EXPECT_EQ(ToPostgres("FROM jobs j INDEXED BY jobs_unfinished CROSS JOIN tasks t ON t.job=j.id "
                       "WHERE instr(x COLLATE BINARY, 'a')>0")
                .text,
            "FROM jobs j JOIN tasks t ON t.job=j.id WHERE strpos(x COLLATE \"C\", 'a')>0");
  EXPECT_EQ(ToPostgres("SELECT user_version FROM pragma_user_version").text,
            "SELECT version FROM heddle_schema");
}

TEST(PostgresSqlTest, StatesBecomeCodes) {
  EXPECT_EQ(CodeOfSqlState("53100"), absl::StatusCode::kResourceExhausted) << "disk full";
  EXPECT_EQ(CodeOfSqlState("53200"), absl::StatusCode::kUnavailable) << "no memory now";
  EXPECT_EQ(CodeOfSqlState("57P01"), absl::StatusCode::kUnavailable) << "an operator stops it";
  EXPECT_EQ(CodeOfSqlState("08006"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfSqlState("23505"), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(CodeOfSqlState("XX001"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(CodeOfSqlState("42601"), absl::StatusCode::kInternal);
}

TEST(PostgresSqlTest, AddressesAreShownWithoutPasswords) {
  EXPECT_EQ(ShownAddress("postgresql://ann:secret@db.example:5433/heddle"),
            "postgresql://db.example:5433/heddle");
  EXPECT_EQ(ShownAddress("/var/lib/heddle/heddle.db"), "/var/lib/heddle/heddle.db");
  EXPECT_FALSE(IsPostgres("/var/lib/postgresql"));
}

TEST(PostgresSqlTest, AServerThatIsNotThereIsNamed) {
  const auto store = OpenPostgresRecordStore("postgresql://ann:secret@/heddle?host=/nowhere");
  EXPECT_TRUE(absl::IsUnavailable(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("/nowhere"));
  EXPECT_THAT(std::string(store.status().message()), Not(HasSubstr("secret")));
  EXPECT_THAT(std::string(store.status().message()), Not(HasSubstr("\n")));
}

class PostgresStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = PostgresServer::Shared();
    if (server_ == nullptr) GTEST_SKIP() << kNoPostgres;
    url_ = server_->NewDatabase();
  }
  std::string Sql(const std::string& sql) {
    const auto rows = server_->Sql(url_, sql);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.ok() && !rows->empty() ? rows->front() : "";
  }

  PostgresServer* server_ = nullptr;
  std::string url_;
};

// Whoever migrates is alone, so that a scheduler that stands by changes no table under the one that leads.
TEST_F(PostgresStoreTest, TablesThatAnotherSchedulerUsesAreNotMigrated) {
  std::unique_ptr<RecordStore> first = MustOpen(url_);
  const std::unique_ptr<RecordStore> second = MustOpen(url_);  // of the same version
  Sql("UPDATE heddle_schema SET version=12");
  const auto newer = OpenPostgresRecordStore(url_);
  EXPECT_TRUE(absl::IsFailedPrecondition(newer.status())) << newer.status();
  EXPECT_THAT(std::string(newer.status().message()),
              AllOf(HasSubstr("tables are of another version"),
                    HasSubstr(absl::StrCat(":", getpid(), " uses it"))));
}

TEST_F(PostgresStoreTest, SchedulersThatStartTogetherMakeTheTablesOnce) {
  std::vector<std::unique_ptr<RecordStore>> stores(6);
  std::vector<std::thread> threads;
  for (auto& store : stores) threads.emplace_back([&] { store = MustOpen(url_); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& store : stores) {
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(*store->Identity(), *stores[0]->Identity());
  }
}

LeaderClaim ClaimOf(const std::string& scheduler, absl::Duration lease) {
  return {.scheduler = scheduler, .address = scheduler + ":1", .lease = lease};
}

// As that of a leader that was stopped after its first change and before its commit.
TEST_F(PostgresStoreTest, ATransactionThatStandsStillHoldsNobodyUp) {
  const std::unique_ptr<RecordStore> first = MustOpen(url_);
  ASSERT_EQ(first->Lead(ClaimOf("first", absl::Milliseconds(1)))->epoch, 1);
  absl::SleepFor(absl::Milliseconds(20));
  const auto stopped =
      PostgresSession::Open({.url = url_, .application = "stopped", .connected = nullptr});
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  ASSERT_TRUE((*stopped)->Begin(SqlSession::Running::kAtOnce).ok());
  ASSERT_TRUE((*stopped)->Execute("UPDATE leaders SET epoch=epoch").ok());
  const std::unique_ptr<RecordStore> second = MustOpen(url_);
  absl::SleepFor(absl::Milliseconds(700));  // one that is under way gets its time
  const auto leader = second->Lead(ClaimOf("second", absl::Minutes(1)));
  ASSERT_TRUE(leader.ok()) << leader.status();
  EXPECT_EQ(leader->scheduler, "second");
  EXPECT_EQ(leader->epoch, 2);
  EXPECT_FALSE((*stopped)->Commit().ok());
}

constexpr int kNextVersion = kSchemaVersion + 1;  // whose tables are those of this one

// A connection that has no lock on the database, such as one through a pool of connections.
std::unique_ptr<PostgresSession> WithoutLock(const std::string& url) {
  auto session =
      PostgresSession::Open({.url = url, .application = "without a lock", .connected = nullptr});
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

// The lock keeps a newer program from migrating under a leader that is stopped; a leader that has lost it with its
// connections finds out when it connects again, and one that never had it when it writes.
TEST_F(PostgresStoreTest, AStoppedLeaderWritesNothingAfterAMigration) {
  for (const bool locked : {true, false}) {
    url_ = server_->NewDatabase();
    std::unique_ptr<RecordStore> leader = MustOpen(url_);
    if (!locked)
      leader = MakeSqlRecordStore(
          {WithoutLock(url_), WithoutLock(url_), WithoutLock(url_), WithoutLock(url_)});
    leader->SetEpoch(kDefaultPool, leader->Lead(ClaimOf("old", absl::Minutes(1)))->epoch);
    ASSERT_TRUE(ApplyOne(leader.get(), {PutJob{MakeJob(1)}}).ok());
    if (locked) {
      ASSERT_GT(server_->CutConnections(url_), 0);
    }
    const absl::Status migrated =
        MigratePostgres(WithoutLock(url_).get(), /*copying=*/false, kNextVersion);
    ASSERT_TRUE(migrated.ok()) << migrated;
    for (int i = 0; i < 2; ++i) {
      const absl::Status refused = ApplyOne(leader.get(), {PutJob{MakeJob(2)}});
      EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("use the newer program"));
    }
    const absl::Status led = leader->Lead(ClaimOf("old", absl::Minutes(1))).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(led)) << led;
    EXPECT_EQ(Sql("SELECT count(*) FROM jobs"), "1");
    EXPECT_EQ(Sql("SELECT epoch FROM leaders"), "2") << "the migration has ended the epoch";
    EXPECT_TRUE(absl::IsFailedPrecondition(OpenPostgresRecordStore(url_).status()));
  }
}

// Whatever the version is afterwards: the epoch alone tells a leader that it was not alone.
TEST_F(PostgresStoreTest, AChangeOfTheVersionEndsTheEpoch) {
  const std::unique_ptr<RecordStore> leader = MustOpen(url_);
  leader->SetEpoch(kDefaultPool, leader->Lead(ClaimOf("old", absl::Minutes(1)))->epoch);
  ASSERT_TRUE(ApplyOne(leader.get(), {PutJob{MakeJob(1)}}).ok());
  ASSERT_TRUE(SetPostgresVersion(kSchemaVersion, WithoutLock(url_).get()).ok());
  const absl::Status refused = ApplyOne(leader.get(), {PutJob{MakeJob(2)}});
  EXPECT_TRUE(absl::IsAborted(refused)) << refused;
}

TEST_F(PostgresStoreTest, AMigrationEndsATransactionThatStandsStill) {
  ASSERT_TRUE(MustOpen(url_)->Lead(ClaimOf("old", absl::Minutes(1))).ok());
  const std::unique_ptr<PostgresSession> stopped = WithoutLock(url_);
  ASSERT_TRUE(stopped->Begin(SqlSession::Running::kAtOnce).ok());
  ASSERT_TRUE(stopped->Execute("UPDATE leaders SET epoch=epoch").ok());
  ASSERT_TRUE(stopped->Execute("INSERT INTO targets VALUES(1, 'old')").ok());
  absl::SleepFor(absl::Milliseconds(700));  // one that is under way gets its time
  const absl::Status migrated =
      MigratePostgres(WithoutLock(url_).get(), /*copying=*/false, kNextVersion);
  ASSERT_TRUE(migrated.ok()) << migrated;
  EXPECT_FALSE(stopped->Commit().ok());
  EXPECT_EQ(Sql("SELECT count(*) FROM targets"), "0");
  EXPECT_EQ(Sql("SELECT version FROM heddle_schema"), absl::StrCat(kNextVersion));
}

// The leadership of a scheduler that cannot reach the server is open to others.
TEST(PostgresKillTest, AServerThatIsAwayIsNotTakenForALockedOne) {
  if (!PostgresServer::Installed()) GTEST_SKIP() << kNoPostgres;
  auto server = PostgresServer::Start(/*durable=*/false);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::unique_ptr<RecordStore> store = MustOpen((*server)->NewDatabase());
  ASSERT_TRUE(store->Lead(ClaimOf("a", absl::Minutes(1))).ok());
  (*server)->Kill();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(absl::IsUnavailable(store->Lead(ClaimOf("a", absl::Minutes(1))).status()));
}

TEST_F(PostgresStoreTest, OnlyFitDatabasesAreTaken) {
  MustOpen(url_);
  Sql("UPDATE heddle_schema SET version=99");
  EXPECT_TRUE(absl::IsFailedPrecondition(OpenPostgresRecordStore(url_).status()));
  Sql("UPDATE heddle_schema SET version=12");
  EXPECT_THAT(std::string(OpenPostgresRecordStore(url_).status().message()),
              AllOf(HasSubstr("version 12"), HasSubstr("an empty database")));
  Sql("UPDATE heddle_schema SET version=-11");
  EXPECT_THAT(std::string(OpenPostgresRecordStore(url_).status().message()),
              HasSubstr("heddle store copy"));
  const std::string other =
      server_->NewDatabase("ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
  EXPECT_THAT(std::string(OpenPostgresRecordStore(other).status().message()),
              HasSubstr("--encoding=UTF8"));
}

// A database of version 13 may also have a table heddle_owner, which nothing reads.
TEST_F(PostgresStoreTest, ADatabaseOfTheEarlierFormOfVersionThirteenIsTaken) {
  const std::string identity = *MustOpen(url_)->Identity();
  Sql("CREATE TABLE heddle_owner(epoch BIGINT NOT NULL, name TEXT COLLATE \"C\" NOT NULL)");
  Sql("INSERT INTO heddle_owner VALUES(3, 'heddle-scheduler old:1')");
  const std::unique_ptr<RecordStore> store = MustOpen(url_);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(*store->Identity(), identity);
  const auto leader = store->Lead(ClaimOf("new", absl::Minutes(1)));
  ASSERT_TRUE(leader.ok()) << leader.status();
  store->SetEpoch(kDefaultPool, leader->epoch);
  const auto applied = store->Apply({Batch{PutExperience{"llvm", "dev", 1, {}}}});
  EXPECT_TRUE(applied.ok() && applied->front().ok()) << applied.status();
  EXPECT_TRUE(store->EndLead(kDefaultPool, leader->epoch).ok());
}

TEST_F(PostgresStoreTest, BytesThatAreNoTextDoNotStopAJob) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  JobRow row = MakeJob(1, v1::JOB_FAILED);
  row.job.set_reason(std::string("a\0b\xff", 4));
  ASSERT_TRUE(ApplyOne(store.get(), {PutJob{row}}).ok());
  EXPECT_EQ(store->LoadJobs()->front().row.job.reason(), "a?b?");
}

// Whatever the server's locale says.
TEST_F(PostgresStoreTest, KeysAreInTheOrderOfTheirBytes) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  for (const char* key : {"b", "B", "a", "_"}) {
    InsertRecord one = MakeRecord(1, 1, 0, 50);
    one.record.set_workload_key(key);
    one.record.set_label("Conv");
    one.imported = true;
    ASSERT_TRUE(ApplyOne(store.get(), {one}).ok());
  }
  std::string keys;
  const auto found = store->FindWorkloads("conv", "", 9);
  ASSERT_TRUE(found.ok()) << found.status();
  for (const WorkloadName& name : *found) keys += name.key;
  EXPECT_EQ(keys, "B_ab");
}

// A page ends after some MiB, though the server has more rows on the way; the session goes on.
TEST_F(PostgresStoreTest, PagesOfLargeRecordsLeaveNothingBehind) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  for (int i = 0; i < 24; ++i) {
    InsertRecord one = MakeRecord(1, i, 0, 50);
    one.record.set_trace(std::string(size_t{1} << 20, static_cast<char>('a' + i)));
    one.imported = true;
    ASSERT_TRUE(ApplyOne(store.get(), {one}).ok());
  }
  std::optional<RecordPlace> place;
  int pages = 0;
  std::string first_letters;
  do {
    const auto page = store->QueryPage({}, place, 1000);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const v1::Record& record : page->records) first_letters += record.trace().substr(0, 1);
    place = page->last;
    ++pages;
  } while (place && pages < 30);
  EXPECT_EQ(first_letters, "xwvutsrqponmlkjihgfedcba");
  EXPECT_GE(pages, 3);
}

TEST_F(PostgresStoreTest, AFullDiskBlocksWritesUntilThereIsSpace) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  ASSERT_TRUE(ApplyOne(store.get(), {PutJob{MakeJob(1)}}).ok());
  Sql("CREATE FUNCTION full_disk() RETURNS trigger AS $$ BEGIN "
      "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE='53100'; "
      "END $$ LANGUAGE plpgsql; "
      "CREATE TRIGGER full_disk BEFORE INSERT ON jobs EXECUTE FUNCTION full_disk()");
  const absl::Status full = ApplyOne(store.get(), {PutJob{MakeJob(2)}});
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_THAT(*store->LoadJobs(), SizeIs(1));
  Sql("DROP TRIGGER full_disk ON jobs");
  EXPECT_TRUE(ApplyOne(store.get(), {PutJob{MakeJob(2)}}).ok());
  EXPECT_THAT(*store->LoadJobs(), SizeIs(2));
}

TEST_F(PostgresStoreTest, ReadsGoOnAfterTheirConnectionsAreCut) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  ASSERT_TRUE(ApplyOne(store.get(), {PutJob{MakeJob(1)}}).ok());
  for (int round = 0; round < 5; ++round) {
    ASSERT_GT(server_->CutConnections(url_), 0);
    EXPECT_THAT(*store->LoadJobs(), SizeIs(1));
    const auto blobs = store->BlobsOfJobs();
    EXPECT_TRUE(blobs.ok()) << blobs.status();
  }
}

TEST_F(PostgresStoreTest, ACheckFindsAStrayRecordAndABackupNamesTheTool) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  ASSERT_TRUE(
      ApplyOne(store.get(), {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)},
                             InsertCandidate{MakeCandidate(1, 1, 0)}, MakeRecord(1, 1, 0, 100)})
          .ok());
  const auto clean = CheckDatabase(url_, 9, [] { return true; });
  ASSERT_TRUE(clean.ok()) << clean.status();
  EXPECT_THAT(*clean, IsEmpty());
  EXPECT_GT(BytesOfDatabase(url_), 100'000);
  EXPECT_THAT(*BlobsOfDatabase(url_), SizeIs(1));
  Sql("UPDATE records SET candidate=7");
  const auto wrong = CheckDatabase(url_, 9, [] { return true; });
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_THAT(*wrong, ElementsAre(HasSubstr("candidate 7 of job j1")));
  const auto backup = BackUpDatabase(url_, "/nowhere", [](int64_t, int64_t) { return true; });
  EXPECT_THAT(std::string(backup.status().message()), HasSubstr("pg_dump"));
}

// ---- faults in mid-write ----

// Applies the workload, each call again while the store is away, and compares results and contents with
// the store in memory now and then. `blocked`: how often a call came back without a result. Whoever
// holds `steady` keeps the contents from being read meanwhile, so that they are read by a server that is there.
void RunWorkload(RecordStore* store, const std::vector<std::vector<Batch>>& groups,
                 std::mutex* steady, int* blocked) {
  const std::vector<std::string> states = StatesOf(groups);
  const std::unique_ptr<RecordStore> memory = MakeMemoryRecordStore();
  const absl::Time limit = absl::Now() + absl::Seconds(120);
  for (size_t i = 0; i < groups.size(); ++i) {
    absl::StatusOr<std::vector<absl::Status>> results = store->Apply(groups[i]);
    while (absl::IsUnavailable(results.status()) && absl::Now() < limit) {
      ++*blocked;
      absl::SleepFor(absl::Milliseconds(5));
      results = store->Apply(groups[i]);
    }
    ASSERT_TRUE(results.ok()) << results.status();
    const auto wanted = memory->Apply(groups[i]);
    ASSERT_EQ(results->size(), wanted->size());
    for (size_t k = 0; k < wanted->size(); ++k)
      ASSERT_EQ((*results)[k].code(), (*wanted)[k].code())
          << "group " << i << ": " << (*results)[k];
    if (i % 8 != 0 && i + 1 != groups.size()) continue;
    const std::lock_guard<std::mutex> lock(*steady);
    ASSERT_EQ(Dump(store), states[i + 1]) << "after group " << i;
  }
}

TEST_F(PostgresStoreTest, AnsweringAsTheStoreInMemory) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  std::mutex steady;
  int blocked = 0;
  RunWorkload(store.get(), FaultWorkload(6, 20'000), &steady, &blocked);
  EXPECT_EQ(blocked, 0);
}

TEST_F(PostgresStoreTest, NothingIsLostOrDoubledWhereConnectionsAreCut) {
  std::unique_ptr<RecordStore> store = MustOpen(url_);
  std::mutex steady;
  std::atomic<bool> stop{false};
  std::atomic<int> cuts{0};
  std::thread operator_thread([&] {
    std::mt19937 random(1);
    while (!stop) {
      absl::SleepFor(absl::Milliseconds(2 + random() % 40));
      const std::lock_guard<std::mutex> lock(steady);
      cuts += server_->CutConnections(url_);
    }
  });
  int blocked = 0;
  RunWorkload(store.get(), FaultWorkload(9, 50'000), &steady, &blocked);
  stop = true;
  operator_thread.join();
  EXPECT_GT(cuts, 10);
  std::printf("%d connections cut, %d calls repeated\n", cuts.load(), blocked);
}

TEST(PostgresKillTest, NothingIsLostOrDoubledWhereTheServerIsKilled) {
  if (!PostgresServer::Installed()) GTEST_SKIP() << kNoPostgres;
  auto server = PostgresServer::Start(/*durable=*/true);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string url = (*server)->NewDatabase();
  std::unique_ptr<RecordStore> store = MustOpen(url);
  const auto groups = FaultWorkload(12, 50'000);
  int blocked = 0;
  std::mutex steady;
  std::atomic<bool> done{false};
  std::thread writer([&] {
    RunWorkload(store.get(), groups, &steady, &blocked);
    done = true;
  });
  std::mt19937 random(2);
  int kills = 0;
  while (!done && kills < 6) {
    absl::SleepFor(absl::Milliseconds(20 + random() % 60));
    const std::lock_guard<std::mutex> lock(steady);
    (*server)->Kill();
    ++kills;
    const absl::Status restarted = (*server)->Restart();
    EXPECT_TRUE(restarted.ok()) << restarted;
  }
  writer.join();
  EXPECT_GT(blocked, 0);
  std::printf("%d kills, %d calls repeated\n", kills, blocked);
  // Another scheduler finds the same.
  const std::string before = Dump(store.get());
  store.reset();
  store = MustOpen(url);
  EXPECT_EQ(Dump(store.get()), before);
}

TEST(PostgresKillTest, TheWriterTellsThatItIsBlockedAndGoesOn) {
  if (!PostgresServer::Installed()) GTEST_SKIP() << kNoPostgres;
  auto server = PostgresServer::Start(/*durable=*/true);
  ASSERT_TRUE(server.ok()) << server.status();
  std::unique_ptr<RecordStore> store = MustOpen((*server)->NewDatabase());
  std::atomic<int> problems{0}, ends{0};
  StoreWriter::Hooks hooks;
  hooks.blocked = [&](const absl::Status& problem) {
    EXPECT_TRUE(problem.ok() || absl::IsUnavailable(problem)) << problem;
    ++(problem.ok() ? ends : problems);
  };
  hooks.fatal = hooks.rejected = [](const std::string& reason) { ADD_FAILURE() << reason; };
  StoreWriter writer(store.get(), hooks, absl::Milliseconds(20));
  writer.Write({PutJob{MakeJob(1)}});
  writer.Flush(absl::Seconds(60));
  (*server)->Kill();
  std::atomic<bool> durable{false};
  writer.Write({PutJob{MakeJob(2)}}, [&] { durable = true; });
  for (int i = 0; i < 500 && problems == 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(problems, 1);
  EXPECT_FALSE(durable);
  EXPECT_TRUE(absl::IsUnavailable(writer.problem()));
  ASSERT_TRUE((*server)->Restart().ok());
  writer.Flush(absl::Seconds(60));
  EXPECT_TRUE(durable);
  EXPECT_EQ(ends, 1);
  EXPECT_THAT(*store->LoadJobs(), SizeIs(2));
}

// Passes bytes between the store and the server. Once armed, it ends all connections when a commit
// passes: before the server gets it, or after the server has carried it out but before its answer.
class CommitThief {
 public:
  CommitThief(std::string folder, const std::string& server_folder)
      : folder_(std::move(folder)), server_(server_folder + "/.s.PGSQL.5432") {
    std::filesystem::create_directories(folder_);
    listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = AddressOf(folder_ + "/.s.PGSQL.5432");
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this] { Loop(); });
  }
  ~CommitThief() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }
  enum Theft { kNone, kRequest, kAnswer };
  void Arm(Theft theft) { theft_ = theft; }
  bool armed() const { return theft_ != kNone; }

 private:
  struct Link {
    int client, server;
  };
  static sockaddr_un AddressOf(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }
  static bool Pass(const std::string& bytes, int to) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t now = send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += static_cast<size_t>(now);
    }
    return true;
  }
  void CloseAll() {
    for (const Link& link : links_) {
      close(link.client);
      close(link.server);
    }
    links_.clear();
  }
  void Loop() {
    while (!stop_) {
      std::vector<pollfd> waiting = {{listener_, POLLIN, 0}};
      for (const Link& link : links_) {
        waiting.push_back({link.client, POLLIN, 0});
        waiting.push_back({link.server, POLLIN, 0});
      }
      if (poll(waiting.data(), waiting.size(), 20) <= 0) continue;
      std::vector<Link> kept;
      bool stolen = false;
      for (size_t i = 0; i < links_.size() && !stolen; ++i) {
        bool open = true;
        for (const bool from_client : {true, false}) {
          if (waiting[1 + 2 * i + (from_client ? 0 : 1)].revents == 0) continue;
          char buffer[65536];
          const int from = from_client ? links_[i].client : links_[i].server;
          const int to = from_client ? links_[i].server : links_[i].client;
          const ssize_t got = recv(from, buffer, sizeof(buffer), 0);
          const std::string bytes(buffer, got > 0 ? static_cast<size_t>(got) : 0);
          if (from_client && absl::StrContains(bytes, "; COMMIT") && theft_ != kNone) {
            if (theft_ == kAnswer) {
              Pass(bytes, to);
              absl::SleepFor(absl::Milliseconds(300));  // the server has long carried it out
            }
            theft_ = kNone;
            stolen = true;
            break;
          }
          open = open && got > 0 && Pass(bytes, to);
        }
        if (open) {
          kept.push_back(links_[i]);
        } else if (!stolen) {
          close(links_[i].client);
          close(links_[i].server);
        }
      }
      if (stolen) {
        CloseAll();
        continue;
      }
      links_ = kept;
      if (waiting[0].revents != 0) {
        const int client = accept(listener_, nullptr, nullptr);
        const int server = socket(AF_UNIX, SOCK_STREAM, 0);
        const sockaddr_un address = AddressOf(server_);
        if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
          links_.push_back({client, server});
        } else {
          close(client);
          close(server);
        }
      }
    }
    CloseAll();
  }

  const std::string folder_, server_;
  int listener_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<Theft> theft_{kNone};
  std::vector<Link> links_;
  std::thread thread_;
};

TEST_F(PostgresStoreTest, ACommitWhoseAnswerIsLostIsRecognised) {
  char folder[] = "/tmp/heddle-thief-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  CommitThief thief(folder, server_->folder());
  std::unique_ptr<RecordStore> store = MustOpen(PostgresServer::Through(folder, url_));
  ASSERT_TRUE(ApplyOne(store.get(), {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)},
                                     InsertCandidate{MakeCandidate(1, 1, 0)},
                                     InsertCandidate{MakeCandidate(1, 2, 0)},
                                     InsertCandidate{MakeCandidate(1, 3, 0)}})
                  .ok());
  int64_t candidate = 0;
  for (const auto theft : {CommitThief::kAnswer, CommitThief::kRequest, CommitThief::kAnswer}) {
    // The second batch is refused, so the call needs parts that can be undone.
    const std::vector<Batch> call = {{MakeRecord(1, ++candidate, 0, 100)},
                                     {PutJob{MakeJob(1)}, MakeRecord(1, candidate, 0, 90)}};
    thief.Arm(theft);
    const auto lost = store->Apply(call);
    EXPECT_TRUE(absl::IsUnavailable(lost.status())) << lost.status();
    EXPECT_FALSE(thief.armed());
    EXPECT_EQ(Sql(absl::StrCat("SELECT count(*) FROM records WHERE candidate=", candidate)),
              theft == CommitThief::kAnswer ? "1" : "0");
    const auto again = store->Apply(call);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE((*again)[0].ok()) << (*again)[0];
    EXPECT_TRUE(absl::IsAlreadyExists((*again)[1])) << (*again)[1];
    EXPECT_EQ(Sql(absl::StrCat("SELECT count(*) FROM records WHERE candidate=", candidate)), "1");
  }
  EXPECT_THAT(*store->Query({}), SizeIs(3));
  store.reset();
  std::filesystem::remove_all(folder);
}

// What others ask for the leadership does not hide whether the last commit was taken.
TEST_F(PostgresStoreTest, AClaimOfAnotherDoesNotHideALostAnswer) {
  char folder[] = "/tmp/heddle-thief-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  CommitThief thief(folder, server_->folder());
  std::unique_ptr<RecordStore> store = MustOpen(PostgresServer::Through(folder, url_));
  const std::unique_ptr<RecordStore> other = MustOpen(url_);
  store->SetEpoch(kDefaultPool, store->Lead(ClaimOf("a", absl::Minutes(1)))->epoch);
  ASSERT_TRUE(ApplyOne(store.get(), {PutJob{MakeJob(1)}, PutTask{MakeTask(1, 0)}}).ok());
  const std::vector<Batch> call = {{InsertCandidate{MakeCandidate(1, 1, 0)}}};
  thief.Arm(CommitThief::kAnswer);
  EXPECT_TRUE(absl::IsUnavailable(store->Apply(call).status()));
  EXPECT_EQ(other->Lead(ClaimOf("b", absl::Minutes(1)))->scheduler, "a");
  const auto again = store->Apply(call);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE((*again)[0].ok()) << (*again)[0];
  store.reset();
  std::filesystem::remove_all(folder);
}

// ---- copies ----

class CopyStoreTest : public PostgresStoreTest {
 protected:
  void SetUp() override {
    PostgresStoreTest::SetUp();
    if (server_ == nullptr) return;
    directory_ = TempDirectory();
    file_ = directory_ + "/a.db";
    auto store = OpenSqliteRecordStore(file_);
    ASSERT_TRUE(store.ok()) << store.status();
    for (const auto& group : FaultWorkload(8, 30'000)) ASSERT_TRUE((*store)->Apply(group).ok());
    contents_ = Dump(store->get());
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  static absl::StatusOr<std::vector<CopiedTable>> Copy(const std::string& from,
                                                       const std::string& to) {
    return CopyStore(from, to, [](const std::string&, int64_t) {});
  }
  static int64_t Copied(const std::vector<CopiedTable>& tables) {
    int64_t rows = 0;
    for (const CopiedTable& table : tables) rows += table.copied;
    return rows;
  }

  std::string directory_, file_, contents_;
};

TEST_F(CopyStoreTest, ThereAndBackAgainIsTheSame) {
  const auto there = Copy(file_, url_);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_GT(Copied(*there), 100);
  {
    const std::unique_ptr<RecordStore> store = MustOpen(url_);
    EXPECT_EQ(Dump(store.get()), contents_);
    EXPECT_TRUE(ApplyOne(store.get(), {PutJob{MakeJob(99)}}).ok()) << "it can be used";
  }
  const std::string other = directory_ + "/b.db";
  const auto back = Copy(url_, other);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(Copied(*back), Copied(*there) + 1);
  const auto store = OpenSqliteRecordStore(other);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(*(*store)->LoadJobs(), SizeIs(9));
}

TEST_F(CopyStoreTest, AnInterruptedCopyGoesOn) {
  const auto whole = Copy(file_, url_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::string rows = Sql("SELECT count(*) FROM records");
  // As a copy that was interrupted among the records leaves it.
  Sql("UPDATE heddle_schema SET version=-version; DELETE FROM kernel_factors; "
      "DELETE FROM others_models; DELETE FROM experience; DELETE FROM fences; DELETE FROM stages; "
      "DELETE FROM retracted_digests; DELETE FROM records WHERE id>3");
  EXPECT_THAT(std::string(OpenPostgresRecordStore(url_).status().message()),
              HasSubstr("run the same `heddle store copy` again"));
  const auto rest = Copy(file_, url_);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_LT(Copied(*rest), Copied(*whole));
  EXPECT_EQ(Sql("SELECT count(*) FROM records"), rows);
  EXPECT_EQ(Dump(MustOpen(url_).get()), contents_);
}

TEST_F(CopyStoreTest, ACopyThatDiffersIsNotTaken) {
  ASSERT_TRUE(Copy(file_, url_).ok());
  Sql("UPDATE heddle_schema SET version=-version; UPDATE records SET median_ns=1 "
      "WHERE id=(SELECT min(id) FROM records)");
  const auto again = Copy(file_, url_);
  EXPECT_TRUE(absl::IsDataLoss(again.status())) << again.status();
  EXPECT_THAT(std::string(again.status().message()), HasSubstr("table records differs"));
  EXPECT_FALSE(OpenPostgresRecordStore(url_).ok());
}

TEST_F(CopyStoreTest, OtherDataAndStoresInUseAreLeftAlone) {
  {
    const std::unique_ptr<RecordStore> store = MustOpen(url_);
    EXPECT_THAT(std::string(Copy(file_, url_).status().message()), HasSubstr("uses it"));
    ASSERT_TRUE(ApplyOne(store.get(), {PutJob{MakeJob(99)}}).ok());
  }
  const auto copied = Copy(file_, url_);
  EXPECT_TRUE(absl::IsFailedPrecondition(copied.status())) << copied.status();
  EXPECT_THAT(std::string(copied.status().message()), HasSubstr("data of its own"));
  EXPECT_THAT(*MustOpen(url_)->LoadJobs(), SizeIs(1));
}

}  // namespace
}  // namespace heddle::scheduler
