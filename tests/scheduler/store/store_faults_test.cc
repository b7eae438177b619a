// The store on a disk that fails: an I/O error at every call, a full disk at every write, power
// cuts. An observer keeps what it was told. When the store is opened again, it must have exactly
// that, or that and the one transaction that was under way.
//
// HEDDLE_STORE_FAULTS=all runs every call of the long workload, and 1,000 power cuts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "scheduler/store/sqlite_record_store.h"
#include "scheduler/store/store_writer.h"
#include "tests/scheduler/store/fault_disk.h"
#include "tests/scheduler/store/fault_workload.h"
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

using Groups = std::vector<std::vector<Batch>>;
using ::testing::ElementsAre;

constexpr char kPath[] = "faults.db";
constexpr size_t kSmall = 300;      // bytes of a search state
constexpr size_t kLarge = 200'000;  // the log is moved into the database now and then

bool RunAll() {
  const char* all = std::getenv("HEDDLE_STORE_FAULTS");
  return all != nullptr && std::string_view(all) == "all";
}

// Each batch in a transaction of its own, as the writer applies them to a queue that is never long.
Groups OneByOne(const Groups& groups) {
  Groups single;
  for (const std::vector<Batch>& group : groups) {
    for (const Batch& batch : group) single.push_back({batch});
  }
  return single;
}

// ---- the disk itself ----

// What `sql` wrote, after a power cut that keeps nothing that was not synced.
int64_t RowsAfterACut(const char* synchronous) {
  FaultDisk disk;
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open("own.db", &db), SQLITE_OK);
  const std::string sql =
      absl::StrCat("PRAGMA journal_mode=WAL; PRAGMA synchronous=", synchronous,
                   "; CREATE TABLE t(x); INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)");
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  disk.CutAt(0);
  sqlite3_close(db);
  disk.Reboot(FaultDisk::Survival::kNone);
  EXPECT_EQ(sqlite3_open("own.db", &db), SQLITE_OK);
  int64_t rows = -1;
  sqlite3_exec(
      db, "SELECT count(*) FROM t",
      [](void* out, int, char** values, char**) {
        *static_cast<int64_t*>(out) = std::atoll(values[0]);
        return 0;
      },
      &rows, nullptr);
  sqlite3_close(db);
  return rows;
}

TEST(FaultDiskTest, APowerCutTakesWhatWasNotSynced) {
  EXPECT_EQ(RowsAfterACut("FULL"), 2);
  EXPECT_LT(RowsAfterACut("NORMAL"), 2) << "so the disk finds a store that syncs too little";
  EXPECT_LT(RowsAfterACut("OFF"), 2);
}

TEST(FaultDiskTest, FaultsStrikeWhereTheyShould) {
  FaultDisk disk;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open("own.db", &db), SQLITE_OK);
  sqlite3_extended_result_codes(db, 1);
  const auto run = [&](const char* sql) {
    return sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
  };
  ASSERT_EQ(run("PRAGMA journal_mode=WAL; CREATE TABLE t(x)"), SQLITE_OK);
  disk.SetFault({.calls = FaultDisk::kWrite, .first = 2, .last = 2});
  EXPECT_EQ(run("INSERT INTO t VALUES(1)"), SQLITE_IOERR_WRITE);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(run("INSERT INTO t VALUES(1)"), SQLITE_OK) << "only once";
  disk.SetFault({.calls = FaultDisk::kWrite, .code = SQLITE_FULL});
  EXPECT_EQ(run("INSERT INTO t VALUES(1)"), SQLITE_FULL);
  EXPECT_EQ(run("INSERT INTO t VALUES(1)"), SQLITE_FULL);
  disk.Heal();
  EXPECT_EQ(run("INSERT INTO t VALUES(1)"), SQLITE_OK);
  EXPECT_GT(disk.Calls(FaultDisk::kWrite), 0);
  sqlite3_close(db);
}

// ---- the store ----

// A scheduler's use of the store: the writer applies one batch after another, until the process would
// have to end.
class Session {
 public:
  // What happened when a group was written.
  enum class End { kAcknowledged, kFatal };

  Session(FaultDisk* disk, RecordStore* store)
      : disk_(disk), writer_(store, MakeHooks(), absl::Milliseconds(1)) {}

  // `while_full` runs once if the store is blocked by a full disk; then there is space again.
  End Write(const Batch& batch, const std::function<void()>& while_full = nullptr) {
    auto answer = std::make_shared<absl::Status>();
    auto answered = std::make_shared<absl::Notification>();
    writer_.WriteAnswered(batch, [answer, answered](const absl::Status& status) {
      *answer = status;
      answered->Notify();
    });
    while (!answered->WaitForNotificationWithTimeout(absl::Milliseconds(2))) {
      if (!full_ || while_full == nullptr) continue;
      EXPECT_TRUE(absl::IsResourceExhausted(writer_.problem())) << writer_.problem();
      while_full();
      full_ = false;
      disk_->Heal();
    }
    // A batch may be refused, for instance as a duplicate; an ending process answers Unavailable.
    return absl::IsUnavailable(*answer) ? End::kFatal : End::kAcknowledged;
  }
  bool fatal() const { return fatal_; }
  int blocked() const { return blocked_; }
  int resumed() const { return resumed_; }

 private:
  StoreWriter::Hooks MakeHooks() {
    StoreWriter::Hooks hooks;
    hooks.blocked = [this](const absl::Status& problem) {
      ++(problem.ok() ? resumed_ : blocked_);
      full_ = absl::IsResourceExhausted(problem);
    };
    hooks.rejected = [](const std::string&) {};
    hooks.fatal = [this](const std::string&) { fatal_ = true; };
    return hooks;
  }

  FaultDisk* const disk_;
  std::atomic<bool> fatal_{false}, full_{false};
  std::atomic<int> blocked_{0}, resumed_{0};
  StoreWriter writer_;
};

class StoreFaultsTest : public ::testing::Test {
 protected:
  // Opens the store on a healthy disk and compares it with what the observer was told. Returns how
  // many groups it has.
  static size_t Check(const std::vector<std::string>& states, size_t acknowledged) {
    auto store = OpenSqliteRecordStore(kPath);
    EXPECT_TRUE(store.ok()) << store.status();
    if (!store.ok()) return acknowledged;
    const std::string found = Dump(store->get());
    if (found == states[acknowledged]) return acknowledged;
    if (acknowledged + 1 < states.size() && found == states[acknowledged + 1])
      return acknowledged + 1;
    ADD_FAILURE() << "acknowledged are " << acknowledged << " groups:\n"
                  << states[acknowledged] << "\nbut the store has:\n"
                  << found;
    return acknowledged;
  }
  // Writes what is missing, and compares the end.
  static void Finish(const Groups& groups, const std::vector<std::string>& states, size_t done) {
    auto store = OpenSqliteRecordStore(kPath);
    ASSERT_TRUE(store.ok()) << store.status();
    for (; done < groups.size(); ++done) ASSERT_TRUE((*store)->Apply(groups[done]).ok());
    ASSERT_EQ(Dump(store->get()), states.back());
  }
  // Runs the workload with this fault, and then without.
  static void RunWithFault(const FaultDisk::Fault& fault, const Groups& groups,
                           const std::vector<std::string>& states, bool finish) {
    FaultDisk disk;
    size_t acknowledged = 0;
    disk.SetFault(fault);
    {
      auto store = OpenSqliteRecordStore(kPath);
      if (store.ok()) {
        Session session(&disk, store->get());
        while (acknowledged < groups.size() &&
               session.Write(groups[acknowledged].front()) == Session::End::kAcknowledged)
          ++acknowledged;
        EXPECT_EQ(session.fatal(), acknowledged < groups.size());
        EXPECT_EQ(session.blocked(), 0);
      } else {
        EXPECT_TRUE(absl::IsInternal(store.status())) << store.status();
      }
    }
    disk.Heal();
    acknowledged = Check(states, acknowledged);
    if (finish && !HasFailure()) Finish(groups, states, acknowledged);
  }
  // How many calls of the kinds the workload makes, opening and closing the store included.
  static int64_t CountCalls(unsigned kinds, const Groups& groups) {
    FaultDisk disk;
    disk.Heal();
    {
      auto store = OpenSqliteRecordStore(kPath);
      EXPECT_TRUE(store.ok()) << store.status();
      for (const std::vector<Batch>& group : groups) EXPECT_TRUE((*store)->Apply(group).ok());
    }
    return disk.Calls(kinds);
  }
};

TEST_F(StoreFaultsTest, WithoutFaultsTheStoreHasWhatItWasGiven) {
  for (const size_t bytes : {kSmall, kLarge}) {
    FaultDisk disk;
    const Groups groups = FaultWorkload(6, bytes);
    const std::vector<std::string> states = StatesOf(groups);
    {
      auto store = *OpenSqliteRecordStore(kPath);
      for (size_t i = 0; i < groups.size(); ++i) {
        ASSERT_TRUE(store->Apply(groups[i]).ok());
        ASSERT_EQ(Dump(store.get()), states[i + 1]) << i;
      }
    }
    EXPECT_FALSE(disk.Exists(absl::StrCat(kPath, "-wal"))) << "closed as it should be";
    Finish(groups, states, groups.size());
  }
}

TEST_F(StoreFaultsTest, AnIoErrorAtAnyCallLosesNothing) {
  const Groups groups = OneByOne(FaultWorkload(1, kSmall));
  const std::vector<std::string> states = StatesOf(groups);
  int64_t runs = 0;
  for (const FaultDisk::Call call : FaultDisk::kEach) {
    const int64_t calls = CountCalls(call, groups);
    for (int64_t n = 1; n <= calls + 1 && !HasFailure(); ++n, ++runs) {
      SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls, " of kind ", call));
      RunWithFault({.calls = call, .first = n, .last = n}, groups, states, n % 8 == 0);
      RunWithFault({.calls = call, .first = n}, groups, states, n % 8 == 4);
    }
  }
  std::printf("%lld calls, each failing once and from then on\n", static_cast<long long>(runs));
  EXPECT_GT(runs, 300);
}

// The log is moved into the database while these run.
TEST_F(StoreFaultsTest, AnIoErrorInALongRunLosesNothing) {
  const Groups groups = OneByOne(FaultWorkload(14, kLarge));
  const std::vector<std::string> states = StatesOf(groups);
  int64_t runs = 0;
  for (const FaultDisk::Call call : FaultDisk::kEach) {
    const int64_t calls = CountCalls(call, groups);
    const int64_t step = RunAll() ? 1 : std::max<int64_t>(1, calls / 6);
    for (int64_t n = step / 2 + 1; n <= calls && !HasFailure(); n += step, ++runs) {
      SCOPED_TRACE(absl::StrCat("call ", n, " of ", calls, " of kind ", call));
      RunWithFault({.calls = call, .first = n, .last = n}, groups, states, false);
    }
  }
  std::printf("%lld calls failed\n", static_cast<long long>(runs));
}

// The writer waits, nothing is acknowledged, reads go on; when there is space again, so does it.
TEST_F(StoreFaultsTest, AFullDiskAtAnyWriteHoldsTheStoreUpAndNoMore) {
  const Groups groups = OneByOne(FaultWorkload(1, kSmall));
  const std::vector<std::string> states = StatesOf(groups);
  const int64_t writes = CountCalls(FaultDisk::kWrite, groups);
  int held_up = 0;
  const FaultDisk::Fault full{
      .calls = FaultDisk::kWrite, .code = SQLITE_FULL, .error_number = ENOSPC};
  const FaultDisk::Fault quota{.calls = FaultDisk::kWrite, .error_number = EDQUOT};
  for (FaultDisk::Fault fault : {full, quota}) {
    for (int64_t n = 1; n <= writes && !HasFailure(); ++n) {
      SCOPED_TRACE(absl::StrCat("write ", n, " of ", writes, ", code ", fault.code));
      FaultDisk disk;
      fault.first = n;
      disk.SetFault(fault);
      auto store = OpenSqliteRecordStore(kPath);
      if (!store.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(store.status())) << store.status();
        disk.Heal();
        store = OpenSqliteRecordStore(kPath);
        ASSERT_TRUE(store.ok()) << store.status();
      }
      Session session(&disk, store->get());
      for (size_t i = 0; i < groups.size(); ++i) {
        ASSERT_EQ(
            session.Write(groups[i].front(), [&] { EXPECT_EQ(Dump(store->get()), states[i]); }),
            Session::End::kAcknowledged);
      }
      EXPECT_EQ(session.blocked(), session.resumed());
      held_up += session.blocked();
      EXPECT_EQ(Dump(store->get()), states.back());
    }
  }
  EXPECT_GT(held_up, writes / 2) << "the others come from opening the store";
}

TEST_F(StoreFaultsTest, TheEndOfTheProcessDoesNotWaitForSpace) {
  FaultDisk disk;
  auto store = *OpenSqliteRecordStore(kPath);
  std::atomic<int> durable{0}, blocked{0};
  {
    StoreWriter::Hooks hooks;
    hooks.blocked = [&](const absl::Status&) { ++blocked; };
    hooks.fatal = hooks.rejected = [](const std::string& reason) { ADD_FAILURE() << reason; };
    StoreWriter writer(store.get(), hooks);
    disk.SetFault({.calls = FaultDisk::kWrite, .code = SQLITE_FULL});
    writer.Write({PutJob{MakeJob(1)}}, [&] { ++durable; });
    while (blocked == 0) absl::SleepFor(absl::Milliseconds(1));
    writer.StopWaiting();
    for (int i = 0; i < 5000; ++i) writer.Write({SetAttempts{1, 1, i}});  // more than the queue
  }
  EXPECT_EQ(durable, 0);
  EXPECT_TRUE(store->LoadJobs()->empty());
}

// The index of the log has to grow.
TEST_F(StoreFaultsTest, AFullDiskUnderTheIndexOfTheLogIsAFullDisk) {
  const Groups groups = OneByOne(FaultWorkload(1, kSmall));
  const int64_t maps = CountCalls(FaultDisk::kShmMap, groups);
  for (int64_t n = 1; n <= maps; ++n) {
    FaultDisk disk;
    disk.SetFault({.calls = FaultDisk::kShmMap,
                   .first = n,
                   .last = n,
                   .code = SQLITE_IOERR_SHMSIZE,
                   .error_number = ENOSPC});
    auto store = OpenSqliteRecordStore(kPath);
    if (!store.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(store.status())) << store.status();
      continue;
    }
    Session session(&disk, store->get());
    for (const std::vector<Batch>& group : groups) {
      ASSERT_EQ(session.Write(group.front(), [] {}), Session::End::kAcknowledged);
    }
  }
}

// Each seed: a workload that is cut off by up to three power cuts, at random moments. What was not
// synced survives wholly, not at all, or in random sectors.
TEST_F(StoreFaultsTest, PowerCutsLoseNothingThatWasAcknowledged) {
  struct Case {
    Groups groups;
    std::vector<std::string> states;
    int64_t changes = 0;
  };
  std::vector<Case> cases;
  for (const auto& [jobs, bytes] :
       {std::pair<int, size_t>(2, kSmall), std::pair<int, size_t>(14, kLarge)}) {
    Case& one = cases.emplace_back();
    one.groups = FaultWorkload(jobs, bytes);
    one.states = StatesOf(one.groups);
    one.changes = CountCalls(FaultDisk::kChanges, one.groups);
  }
  const int seeds = RunAll() ? 1000 : 60;
  int cuts = 0, in_flight_kept = 0, in_flight_lost = 0;
  // Few cuts hit a transaction between its last write and its end, so there are more if none did.
  const auto goes_on = [&](int seed) {
    return seed <= seeds || (in_flight_kept == 0 && seed <= 20 * seeds);
  };
  for (int seed = 1; goes_on(seed) && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    const Case& one = cases[seed % 5 == 0 ? 1 : 0];
    FaultDisk disk(static_cast<uint64_t>(seed));
    size_t done = 0;
    for (int cut = 0; cut < 3 && done < one.groups.size(); ++cut, ++cuts) {
      disk.CutAt(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(one.changes + 10)));
      {
        auto store = OpenSqliteRecordStore(kPath);
        while (store.ok() && done < one.groups.size() && (*store)->Apply(one.groups[done]).ok())
          ++done;
        // All went well: the power fails while nothing is written.
        if (!disk.dead()) disk.CutAt(0);
      }
      constexpr FaultDisk::Survival kSurvivals[] = {
          FaultDisk::Survival::kAll, FaultDisk::Survival::kNone, FaultDisk::Survival::kSome,
          FaultDisk::Survival::kSome};
      disk.Reboot(kSurvivals[random() % 4]);
      const size_t found = Check(one.states, done);
      ++(found > done ? in_flight_kept : in_flight_lost);
      done = found;
    }
    if (!HasFailure()) Finish(one.groups, one.states, done);
  }
  std::printf("%d power cuts; the transaction under way was kept %d times, lost %d times\n", cuts,
              in_flight_kept, in_flight_lost);
  EXPECT_GT(in_flight_kept, 0);
  EXPECT_GT(in_flight_lost, 0);
}

// ---- the time of a start ----

// Reads of pages when a scheduler starts, with so many finished jobs in the store.
int64_t ReadsAtStart(int finished) {
  FaultDisk disk;
  {
    auto store = *OpenSqliteRecordStore(kPath);
    for (int64_t job = 1; job <= finished; ++job) {
      JobRow row = MakeJob(job, v1::JOB_DONE);
      row.submit_key = absl::StrCat("key ", job);
      row.job.set_finished_unix_ns(5);
      Batch batch = {PutJob{row}, PutTask{MakeTask(job, 0)}};
      for (int64_t id = 1; id <= 10; ++id) {
        batch.push_back(InsertCandidate{MakeCandidate(job, id, 0)});
        batch.push_back(MakeRecord(job, id, 0, 100 + static_cast<double>(id)));
      }
      EXPECT_TRUE(store->Apply({batch})->front().ok());
    }
    Batch live = {PutJob{MakeJob(finished + 1)}, PutTask{MakeTask(finished + 1, 0)},
                  InsertCandidate{MakeCandidate(finished + 1, 1, 0)}};
    EXPECT_TRUE(store->Apply({live})->front().ok());
  }
  auto store = *OpenSqliteRecordStore(kPath);
  disk.Heal();
  const auto jobs = store->LoadJobs({.which = JobSelection::kUnfinished});
  EXPECT_EQ(jobs->size(), 1u);
  EXPECT_EQ(*store->LastJob(), finished + 1);
  EXPECT_TRUE(store->AllTransferModels().ok());
  EXPECT_TRUE(store->Machines().ok());
  EXPECT_TRUE(store->LastAttempt().ok());
  EXPECT_TRUE(store->Fences().ok());
  EXPECT_TRUE(store->UnfinishedStages().ok());
  return disk.Calls(FaultDisk::kRead);
}

TEST(StoreStartTest, AStartReadsNoMoreWithTenTimesTheHistory) {
  const int64_t few = ReadsAtStart(100), many = ReadsAtStart(1000);
  std::printf("%lld reads with 100 finished jobs, %lld with 1,000\n", static_cast<long long>(few),
              static_cast<long long>(many));
  EXPECT_LE(many, few + 8) << "the trees are a level or two higher, no more";
}

// A page of history reads that page only.
TEST(StoreStartTest, FinishedJobsAreReadInPages) {
  FaultDisk disk;
  auto store = *OpenSqliteRecordStore(kPath);
  for (int64_t job = 1; job <= 9; ++job) {
    const v1::JobState state = job % 3 == 0 ? v1::JOB_TUNING : v1::JOB_CANCELLED;
    ASSERT_TRUE(store->Apply({Batch{PutJob{MakeJob(job, state)}}})->front().ok());
  }
  const auto ids = [&](const JobSelection& selection) {
    std::vector<int64_t> found;
    const auto jobs = store->LoadJobs(selection);
    for (const StoredJob& job : *jobs) found.push_back(job.row.id);
    return found;
  };
  EXPECT_THAT(ids({.which = JobSelection::kUnfinished}), ElementsAre(3, 6, 9));
  EXPECT_THAT(ids({.which = JobSelection::kFinished, .limit = 2}), ElementsAre(7, 8));
  EXPECT_THAT(ids({.which = JobSelection::kFinished, .before = 7, .limit = 2}), ElementsAre(4, 5));
  EXPECT_THAT(ids({.before = 3}), ElementsAre(1, 2));
}

}  // namespace
}  // namespace heddle::scheduler
