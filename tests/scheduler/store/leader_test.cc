// Who leads, in each store, and that nobody writes in an epoch that is over.
#include "scheduler/store/leader.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "scheduler/store/sqlite_schema.h"
#include "scheduler/store/sqlite_session.h"
#include "tests/eventually.h"
#include "tests/scheduler/store/all_stores.h"

namespace heddle::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Minutes(10);

LeaderClaim Claim(const std::string& scheduler, absl::Duration lease = kLong) {
  return {.scheduler = scheduler, .address = scheduler + ":1", .lease = lease};
}

class LeaderTest : public RecordStoreTest {
 protected:
  Leader Lead(const LeaderClaim& claim) {
    const absl::StatusOr<Leader> leader = store_->Lead(claim);
    EXPECT_TRUE(leader.ok()) << leader.status();
    return leader.value_or(Leader());
  }
  Leader Now(const std::string& pool = kDefaultPool) {
    const absl::StatusOr<Leader> leader = store_->LeaderOf(pool);
    EXPECT_TRUE(leader.ok()) << leader.status();
    return leader.value_or(Leader());
  }
};

TEST_P(LeaderTest, OneLeadsUntilItsLeaseIsOver) {
  EXPECT_EQ(Now().epoch, 0);
  EXPECT_EQ(Now().remaining, absl::ZeroDuration());
  Leader leader = Lead(Claim("a"));
  EXPECT_EQ(leader.scheduler, "a");
  EXPECT_EQ(leader.epoch, 1);
  EXPECT_EQ(leader.remaining, kLong);
  leader = Lead(Claim("b"));
  EXPECT_EQ(leader.scheduler, "a") << "b has to wait";
  EXPECT_EQ(leader.address, "a:1");
  EXPECT_LE(Now().remaining, kLong);
  EXPECT_GT(Now().remaining, kLong / 2);

  EXPECT_EQ(Lead(Claim("a", absl::Milliseconds(30))).epoch, 1) << "a renewal";
  absl::SleepFor(absl::Milliseconds(60));
  EXPECT_EQ(Now().remaining, absl::ZeroDuration());
  EXPECT_EQ(Now().scheduler, "a") << "nobody has taken over yet";
  leader = Lead(Claim("b"));
  EXPECT_EQ(leader.scheduler, "b");
  EXPECT_EQ(leader.epoch, 2);
  EXPECT_EQ(Lead(Claim("a")).scheduler, "b");
}

TEST_P(LeaderTest, WhoLeadsStillRenewsAfterItsLeaseHasRunOut) {
  Lead(Claim("a", absl::Milliseconds(1)));
  absl::SleepFor(absl::Milliseconds(20));
  const Leader leader = Lead(Claim("a"));
  EXPECT_EQ(leader.epoch, 1) << "nobody has written in between";
  EXPECT_EQ(leader.remaining, kLong);
}

TEST_P(LeaderTest, LettingGoAndAnEndThatIsKnownNeedNoWaiting) {
  Lead(Claim("a"));
  ASSERT_TRUE(store_->EndLead(kDefaultPool, 7).ok());
  EXPECT_EQ(Now().address, "a:1") << "that was another epoch";
  ASSERT_TRUE(store_->EndLead(kDefaultPool, 1).ok());
  EXPECT_EQ(Now().address, "");
  EXPECT_EQ(Now().epoch, 1);
  EXPECT_EQ(Lead(Claim("b")).epoch, 2);
  LeaderClaim sure = Claim("c");
  sure.leader_has_ended = true;
  EXPECT_EQ(Lead(sure).scheduler, "c");
  EXPECT_EQ(Now().epoch, 3);
}

TEST_P(LeaderTest, PoolsHaveLeadersOfTheirOwn) {
  Lead(Claim("a"));
  LeaderClaim other = Claim("b");
  other.pool = "gpus";
  EXPECT_EQ(Lead(other).scheduler, "b");
  EXPECT_EQ(Now().scheduler, "a");
  EXPECT_EQ(Now("gpus").epoch, 1);
}

TEST_P(LeaderTest, NobodyWritesInAnEpochThatIsOver) {
  store_->SetEpoch(kDefaultPool, Lead(Claim("a", absl::Milliseconds(1))).epoch);
  AddJob(1);
  absl::SleepFor(absl::Milliseconds(20));
  AddJob(2);  // its lease is over, but nobody has taken over
  Lead(Claim("b"));
  const auto refused = store_->Apply({Batch{PutJob{MakeJob(3)}}, Batch{MakeRecord(1, 1, 0, 5)}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("at b:1"));
  EXPECT_THAT(store_->LoadJobs().value(), SizeIs(2)) << "nothing of it is there";
  EXPECT_THAT(Query({}), SizeIs(0));
  store_->SetEpoch(kDefaultPool, 2);
  EXPECT_TRUE(Apply({PutJob{MakeJob(3)}}).ok());
}

INSTANTIATE_TEST_SUITE_P(All, LeaderTest, kStores, StoreName);

TEST(LeaderRuleTest, ARenewalOfAnEarlierClockIsOver) {
  const absl::Time now = absl::UnixEpoch() + absl::Minutes(5);
  const LeaderRow row{"a", "a:1", 4, now + absl::Hours(3), kLong};
  EXPECT_EQ(LeaderAt(row, now).remaining, absl::ZeroDuration());
  EXPECT_EQ(AfterClaim(row, Claim("b"), now).epoch, 5);
}

// ---- what is not in memory, several processes may have open ----

class SharedStoreTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = TempDirectory();
    if (GetParam() == "Sqlite") return;
    if (PostgresServer::Shared() == nullptr) GTEST_SKIP() << kNoPostgres;
    for (std::string& url : urls_) url = PostgresServer::Shared()->NewDatabase();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::unique_ptr<RecordStore> Open(int which = 0) const {
    auto store = GetParam() == "Sqlite"
                     ? OpenSqliteRecordStore(absl::StrCat(directory_, "/", which, ".db"))
                     : OpenPostgresRecordStore(urls_[which]);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
  // As a migration to the next version that leaves the tables as they are.
  void RaiseVersion() const {
    if (GetParam() == "Postgres") {
      const auto raised = PostgresServer::Shared()->Sql(
          urls_[0],
          absl::StrCat(kEndEpochs, "UPDATE heddle_schema SET version=", kSchemaVersion + 1));
      ASSERT_TRUE(raised.ok()) << raised.status();
      return;
    }
    auto db = Connect(directory_ + "/0.db", SQLITE_OPEN_READWRITE);
    ASSERT_TRUE(db.ok()) << db.status();
    const std::string sql = absl::StrCat(kEndEpochs, "PRAGMA user_version=", kSchemaVersion + 1);
    ASSERT_TRUE(Execute(db->get(), sql.c_str()).ok());
  }
  std::string directory_, urls_[2];
};
INSTANTIATE_TEST_SUITE_P(All, SharedStoreTest, ::testing::Values("Sqlite", "Postgres"),
                         [](const auto& info) { return info.param; });

TEST_P(SharedStoreTest, TheLeaderOfOneObjectIsThatOfTheOther) {
  auto a = Open();
  auto b = Open();
  EXPECT_THAT(a->Identity().value(), SizeIs(32));
  EXPECT_EQ(a->Identity().value(), b->Identity().value());
  a->SetEpoch(kDefaultPool, a->Lead(Claim("a", absl::Milliseconds(1)))->epoch);
  ASSERT_TRUE(a->Apply({Batch{PutJob{MakeJob(1)}}}).ok());
  EXPECT_EQ(b->LeaderOf(kDefaultPool)->scheduler, "a");
  absl::SleepFor(absl::Milliseconds(20));
  b->SetEpoch(kDefaultPool, b->Lead(Claim("b"))->epoch);
  EXPECT_TRUE(absl::IsAborted(a->Apply({Batch{PutJob{MakeJob(2)}}}).status()));
  EXPECT_TRUE(b->Apply({Batch{PutJob{MakeJob(2)}}}).ok());
  EXPECT_THAT(a->LoadJobs().value(), SizeIs(2));
  ASSERT_TRUE(b->EndLead(kDefaultPool, 2).ok());
  EXPECT_EQ(a->Lead(Claim("a2"))->epoch, 3);
}

// However many ask at the same time, one gets it, and the others are told who, or to ask again.
TEST_P(SharedStoreTest, OneOfManyClaimsIsTaken) {
  constexpr int kClaims = 6;
  std::vector<std::unique_ptr<RecordStore>> stores;
  for (int i = 0; i < kClaims; ++i) stores.push_back(Open());
  std::vector<std::thread> threads;
  std::vector<absl::StatusOr<Leader>> leaders(kClaims, absl::UnknownError(""));
  for (int i = 0; i < kClaims; ++i) {
    threads.emplace_back([&, i] { leaders[i] = stores[i]->Lead(Claim(absl::StrCat("s", i))); });
  }
  for (std::thread& thread : threads) thread.join();
  const Leader leader = *stores[0]->LeaderOf(kDefaultPool);
  EXPECT_EQ(leader.epoch, 1);
  int told = 0;
  for (const auto& one : leaders) {
    EXPECT_FALSE(absl::IsInternal(one.status()) || absl::IsAlreadyExists(one.status()))
        << one.status();
    if (one.ok()) {
      EXPECT_EQ(one->scheduler, leader.scheduler);
    }
    told += one.ok() ? 1 : 0;
  }
  EXPECT_GE(told, 1);
}

// Otherwise a claim that waits for longer than its lease would end before it is known.
TEST(PostgresLeaderTest, ALeaseBeginsAfterTheWaitForTheRow) {
  if (PostgresServer::Shared() == nullptr) GTEST_SKIP() << kNoPostgres;
  const std::string url = PostgresServer::Shared()->NewDatabase();
  const auto store = OpenPostgresRecordStore(url);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)->Lead(Claim("a", absl::Milliseconds(1))).ok());
  const absl::Time begun = MonotonicNow();
  std::thread holder([&url] {
    EXPECT_TRUE(PostgresServer::Shared()
                    ->Sql(url, "UPDATE leaders SET epoch=epoch; SELECT pg_sleep(1)")
                    .ok());
  });
  EXPECT_TRUE(heddle::testing::Eventually([&url] {
    const auto locks = PostgresServer::Shared()->Sql(
        url,
        "SELECT 1 FROM pg_locks WHERE relation='leaders'::regclass AND mode='RowExclusiveLock' AND "
        "granted");
    return locks.ok() && !locks->empty();
  }));
  const auto claimed = (*store)->Lead(Claim("b"));
  holder.join();
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  const Leader now = *(*store)->LeaderOf(kDefaultPool);
  EXPECT_EQ(now.scheduler, "b");
  EXPECT_GE(MonotonicNow() + now.remaining - kLong, begun + absl::Seconds(1));
}

// As after a leader without the lock on the data folder was stopped: it took over from one that was stopped with the lock,
// that one has ended since, and a scheduler of a newer version has found the lock free and has migrated the tables.
TEST_P(SharedStoreTest, NobodyWritesToTablesThatANewerProgramHasMigrated) {
  const auto leader = Open();
  const auto standby = Open();
  leader->SetEpoch(kDefaultPool, leader->Lead(Claim("old"))->epoch);
  ASSERT_TRUE(leader->Apply({Batch{PutJob{MakeJob(1)}}}).ok());
  RaiseVersion();
  for (int i = 0; i < 2; ++i) {
    const auto refused =
        leader->Apply({Batch{PutJob{MakeJob(2)}}, Batch{MakeRecord(1, 1, 0, 5)}}).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("use the newer program"));
  }
  LeaderClaim sure = Claim("another old one");
  sure.leader_has_ended = true;
  EXPECT_TRUE(absl::IsFailedPrecondition(standby->Lead(sure).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(leader->Lead(Claim("old")).status()));
  EXPECT_EQ(leader->LeaderOf(kDefaultPool)->epoch, 2) << "nothing of a claim stays";
  EXPECT_THAT(leader->LoadJobs().value(), SizeIs(1));
}

// A leader that took over from one that was stopped has no lock on the data folder, so a newer program may find that free.
TEST(SqliteLeaderTest, ANewerProgramMigratesNothingUnderALeader) {
  const std::string path = TempDirectory() + "/old.db";
  auto db = Connect(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  ASSERT_TRUE(db.ok()) << db.status();
  ASSERT_TRUE(Migrate(db->get(), kSchemaVersion - 1).ok());
  SqliteSession session(db->get());
  Statement lead(&session, "INSERT INTO leaders VALUES('default', 'old', 'old:1', 4, ?, ?)");
  lead.Bind(*session.ClockNs(), absl::ToInt64Nanoseconds(kLong));
  ASSERT_TRUE(lead.Run().ok()) << lead.status();
  const absl::Status refused = OpenSqliteRecordStore(path).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("leads on it, at old:1"), HasSubstr("then start again")));

  ASSERT_TRUE(session.Execute("UPDATE leaders SET lease_ns=1").ok());
  const auto store = OpenSqliteRecordStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->LeaderOf(kDefaultPool)->epoch, 5);
  (*store)->SetEpoch(kDefaultPool, 4);
  EXPECT_TRUE(absl::IsAborted((*store)->Apply({Batch{PutJob{MakeJob(1)}}}).status()))
      << "the old leader writes nothing after the migration";
}

// A renewal would come too late if it waited for all queued writes. A write that comes after the claim of another scheduler
// is refused, so the answer to the queued write tells which of the two was first.
TEST(SqliteLeaderTest, AClaimGoesBeforeWhatWaitsToBeWritten) {
  constexpr int kTries =
      5;  // whether the calls wait in the order in which they are made is up to the system
  constexpr absl::Duration kStep = absl::Milliseconds(100);
  bool overtaken = false;
  for (int i = 0; i < kTries && !overtaken; ++i) {
    const std::string path = absl::StrCat(TempDirectory(), "/claim", i, ".db");
    const auto store = OpenSqliteRecordStore(path);
    ASSERT_TRUE(store.ok()) << store.status();
    (*store)->SetEpoch(kDefaultPool, (*store)->Lead(Claim("a"))->epoch);
    auto other = Connect(path, SQLITE_OPEN_READWRITE);
    ASSERT_TRUE(other.ok()) << other.status();
    SqliteSession locks(other->get());
    ASSERT_TRUE(locks.Begin(SqlSession::Running::kAtOnce).ok());
    absl::Status first, second;
    const auto write = [&store](int64_t job, absl::Status* status) {
      return std::thread([&store, job, status] {
        *status = (*store)->Apply({Batch{PutJob{MakeJob(job)}}}).status();
      });
    };
    std::thread writes = write(1, &first);
    absl::SleepFor(kStep);
    std::thread waits = write(2, &second);
    absl::SleepFor(kStep);
    std::thread claims([&store] {
      LeaderClaim sure = Claim("b");
      sure.leader_has_ended = true;
      (void)(*store)->Lead(sure);
    });
    absl::SleepFor(kStep);
    locks.Rollback();
    for (std::thread* thread : {&writes, &waits, &claims}) thread->join();
    EXPECT_TRUE(first.ok()) << first;
    overtaken = absl::IsAborted(second);
  }
  EXPECT_TRUE(overtaken);
}

TEST_P(SharedStoreTest, AnotherStoreHasAnotherName) {
  EXPECT_NE(Open(0)->Identity().value(), Open(1)->Identity().value());
}

}  // namespace
}  // namespace heddle::scheduler
