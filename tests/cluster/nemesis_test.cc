// A nemesis against the whole service: while jobs run, processes are killed, stopped beyond their
// leases, cut off from each other in one or both directions, their clocks jump, and a stranger takes
// their slots. An observer keeps what it is told; at the end nothing of that may be lost, doubled or
// taken back, no record may be stored under an older fencing token than one before it, and every job is done.
//
// The same nemesis plagues schedulers with planted bugs (planted_bugs.py), and must find each that shows with one
// scheduler; fail_over_test has the one that takes two.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/service_client.h"
#include "proto/job_states.h"
#include "proto/tracker.grpc.pb.h"
#include "tests/cluster/history.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/cluster/small_job.h"
#include "tests/places.h"

namespace heddle {
namespace {

using client::ServiceClient;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kLeaseSeconds = 2;
constexpr absl::Duration kTrouble = absl::Seconds(12);    // of one run
constexpr absl::Duration kRecovery = absl::Seconds(150);  // a run needs a fraction of this
constexpr int kTrialsPerTask = 10;
// The clock of a tracker that grants tokens which one with the right clock, and without its state, would not reach soon.
constexpr absl::Duration kTrackerIsAhead = absl::Hours(1);

// The clock that the daemons share; see shifted_clock.cc.
class SharedShift {
 public:
  SharedShift() : path_(absl::StrCat(::testing::TempDir(), "/clock", getpid())) {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    EXPECT_EQ(ftruncate(file, sizeof(int64_t)), 0);
    shift_ = static_cast<int64_t*>(
        mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
  }
  ~SharedShift() {
    munmap(shift_, sizeof(int64_t));
    unlink(path_.c_str());
  }
  void Set(int64_t seconds) { *shift_ = seconds; }
  std::vector<std::string> Environment() const {
    return {"LD_PRELOAD=" HEDDLE_SHIFTED_CLOCK_LIBRARY, "HEDDLE_SHIFTED_CLOCK=" + path_};
  }

 private:
  const std::string path_;
  int64_t* shift_ = nullptr;
};

class NemesisRun {
 public:
  // `scheduler`: another program for it.
  explicit NemesisRun(unsigned seed, const std::string& scheduler = "")
      : random_(seed),
        cluster_({.lease_s = kLeaseSeconds,
                  .expiry_s = kLeaseSeconds,
                  .links = true,
                  .scheduler = scheduler,
                  .environment = shift_.Environment()}),
        model_(SmallModel()) {}

  // Each of these returns what contradicts what was told before: none, one a line.

  // Everything that may go wrong, for a while.
  std::string Go() {
    Start();
    if (::testing::Test::HasFatalFailure()) return "";
    Submit();
    Submit();
    const absl::Time end = absl::Now() + kTrouble;
    while (absl::Now() < end) {
      Trouble();
      Observe();
    }
    return Finish();
  }

  // So many stops of one process after the other, each longer than leases last. A stranger takes the
  // slots that become free meanwhile. Then the tracker loses its tokens for a while.
  std::string Stops(int count) {
    WriteTokens(absl::Now() + kTrackerIsAhead);
    Start();
    for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
      KeepJobs();
      const size_t which = random_() % 3;
      Say(absl::StrCat("stop the ", kNames[which], " beyond the lease"));
      Processes()[which]->Stop();
      absl::SleepFor(absl::Seconds(kLeaseSeconds));
      Pause(0.1, 0.6);
      if (which != 0) Steal();  // a stopped tracker grants nothing
      Processes()[which]->Continue();
      Pause(0, 1);
      CheckProcesses("after a stop");
      Observe();
    }
    LoseTokens();
    const std::string found = Finish();
    std::printf("%d stops, %zu jobs, %zu violations\n", count, jobs_.size(),
                history_.violations().size());
    return found;
  }

  // So many kills of the scheduler, each right after it told of a new trial, until something is found.
  std::string KillsAfterNews(int count) {
    Start();
    for (int i = 0; i < count && history_.violations().empty() && !::testing::Test::HasFailure();
         ++i) {
      KeepJobs();
      AwaitTrials(TrialsToldOf() + 1);
      Say("kill the scheduler, which told of a trial");
      cluster_.scheduler.Kill();
      cluster_.StartScheduler();
      Observe();
    }
    return Finish();
  }

 private:
  static constexpr const char* kNames[] = {"tracker", "worker", "scheduler"};
  std::array<Process*, 3> Processes() {
    return {&cluster_.tracker, &cluster_.worker, &cluster_.scheduler};
  }

  void Start() {
    cluster_.StartTracker();
    cluster_.StartWorker();
    cluster_.StartScheduler();
    client_ = std::make_unique<ServiceClient>(cluster_.scheduler_address());
    const absl::Status serving = client_->WaitUntilServing(absl::Seconds(60));
    ASSERT_TRUE(serving.ok()) << serving << cluster_.Logs();
  }

  // Ends all faults and waits for all jobs.
  std::string Finish() {
    Heal();
    const absl::Time limit = absl::Now() + kRecovery;
    for (const std::string& job : jobs_) {
      v1::Job last;
      while (absl::Now() < limit) {
        const auto now = client_->GetJob(job);
        if (now.ok()) {
          history_.Saw(*now);
          last = *now;
          if (IsFinal(last.state())) break;
        }
        absl::SleepFor(absl::Milliseconds(50));
      }
      const auto records = RecordsOf(*client_, job);
      EXPECT_TRUE(records.ok()) << records.status();
      if (records.ok()) history_.Ended(last, *records);
    }
    CheckProcesses("at the end");
    EXPECT_EQ(cluster_.scheduler.Terminate(), 0);
    EXPECT_EQ(cluster_.worker.Terminate(), 0);
    EXPECT_EQ(cluster_.tracker.Terminate(), 0);
    LookAtTokens();
    if (history_.violations().empty()) return "";
    return absl::StrCat(absl::StrJoin(history_.violations(), "\n"), "\n---- the story\n",
                        absl::StrJoin(story_, "\n"), "\n", cluster_.Logs());
  }

  // The database keeps the lease of each stage, whose name is its token. A record was made by the latest stage of its job that
  // measured and had begun by then, so this sees stages under old tokens, and not an answer that came after the next
  // stage of the same job had begun. Where clocks have jumped, times tell nothing.
  void LookAtTokens() {
    if (clocks_jumped_) return;
    constexpr char kSql[] =
        "SELECT s.worker || '/' || s.slot, substr(s.lease, 2) FROM records r JOIN stages s ON "
        "s.attempt = (SELECT attempt FROM stages WHERE job = r.job AND kind = ?1 AND lease <> '' "
        "AND start_ns > 0 AND start_ns <= r.created_ns ORDER BY start_ns DESC LIMIT 1) ORDER BY "
        "r.id";
    sqlite3* db = nullptr;
    sqlite3_stmt* rows = nullptr;
    ASSERT_EQ(sqlite3_open(cluster_.File("data/heddle.db").c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_prepare_v2(db, kSql, -1, &rows, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_bind_int(rows, 1, v1::STAGE_PROFILE);
    int records = 0;
    for (; sqlite3_step(rows) == SQLITE_ROW; ++records) {
      const auto text = [rows](int column) {
        return reinterpret_cast<const char*>(sqlite3_column_text(rows, column));
      };
      uint64_t token = 0;
      EXPECT_TRUE(absl::SimpleAtoi(text(1), &token)) << text(1);
      history_.Stored(text(0), token);
    }
    sqlite3_finalize(rows);
    sqlite3_close(db);
    EXPECT_GT(records, 0) << "no record has a stage with a lease";
  }

  // What the tracker reads when it starts: the next token is this time in microseconds.
  void WriteTokens(absl::Time next) {
    std::ofstream(cluster_.File("tracker.state"))
        << "heddle-tracker 1 next-token " << absl::ToUnixMicros(next) << "\n";
  }

  // The tracker starts without its state, so that its tokens are older than those before, and so does the worker, which would
  // not take them. A scheduler takes no lease with such a token. In the end the state is back.
  void LoseTokens() {
    KeepJobs();
    AwaitTrials(1);
    Say("the tracker loses its tokens");
    const int refusals = RefusalsOfOldTokens();
    cluster_.worker.Kill();
    cluster_.tracker.Kill();
    std::filesystem::remove(cluster_.File("tracker.state"));
    cluster_.StartTracker();
    cluster_.StartWorker();
    // Of trials from before, some may be told of late.
    constexpr int kLate = 6;
    const int before = TrialsToldOf();
    const absl::Time limit = absl::Now() + kRecovery;
    while (RefusalsOfOldTokens() == refusals && TrialsToldOf() <= before + kLate &&
           absl::Now() < limit) {
      KeepJobs();
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_LT(absl::Now(), limit) << "no lease with an old token was refused or taken";
    Say("the tracker has its tokens again");
    cluster_.tracker.Kill();
    WriteTokens(absl::Now() + 2 * kTrackerIsAhead);
    cluster_.StartTracker();
    KeepJobs();
    AwaitTrials(TrialsToldOf() + 1);
  }

  // How often the scheduler wrote into its log that it refused a lease.
  int RefusalsOfOldTokens() const {
    std::ifstream log(cluster_.File("scheduler.log"));
    int refusals = 0;
    for (std::string line; std::getline(log, line);)
      refusals += absl::StrContains(line, "fencing token");
    return refusals;
  }

  // At least two unfinished ones.
  void KeepJobs() {
    for (int tries = 0; tries < 4 && Unfinished() < 2; ++tries) Submit();
  }

  // Of all jobs, as the scheduler tells now; a job that it cannot tell of counts nothing.
  int TrialsToldOf() {
    int trials = 0;
    for (const std::string& job : jobs_) {
      const auto now = client_->GetJob(job);
      if (!now.ok()) continue;
      history_.Saw(*now);
      trials += now->trials();
    }
    return trials;
  }
  void AwaitTrials(int trials) {
    const absl::Time limit = absl::Now() + kRecovery;
    while (TrialsToldOf() < trials) {
      ASSERT_LT(absl::Now(), limit) << "no job comes further" << cluster_.Logs();
      KeepJobs();  // those that there are may measure nothing more
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  // Jobs that were not seen to end.
  size_t Unfinished() {
    std::erase_if(open_, [&](const std::string& job) {
      const auto now = client_->GetJob(job);
      if (!now.ok()) return false;
      history_.Saw(*now);
      return IsFinal(now->state());
    });
    return open_.size();
  }

  void Submit() {
    const auto job =
        client_->Submit(SmallJob(kTrialsPerTask, random_(), /*min_repeat_us=*/5000), model_);
    if (!job.ok()) return;  // not told: it may be there or not
    history_.Submitted(*job);
    jobs_.push_back(*job);
    open_.push_back(*job);
  }

  // Only while clients can reach the scheduler, since a call to one that does not answer takes long.
  void Observe() {
    if (client_cut_ || scheduler_stopped_) return;
    std::vector<std::string> looked_at = open_;
    if (!jobs_.empty()) looked_at.push_back(jobs_[random_() % jobs_.size()]);
    for (const std::string& job : looked_at) {
      const auto now = client_->GetJob(job);
      if (now.ok()) history_.Saw(*now);
      if (absl::IsNotFound(now.status())) history_.Missing(job);
      const auto records = RecordsOf(*client_, job);
      if (records.ok()) history_.SawRecords(job, *records);
    }
  }

  void Say(const std::string& what) { story_.push_back(what); }
  void Pause(double low_s, double high_s) {
    absl::SleepFor(absl::Seconds(std::uniform_real_distribution<double>(low_s, high_s)(random_)));
  }
  void CheckProcesses(const std::string& when) {
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(Processes()[i]->Running()) << kNames[i] << " ended by itself " << when << "\n"
                                             << absl::StrJoin(story_, "\n") << cluster_.Logs();
    }
  }

  void Trouble() {
    CheckProcesses("in mid-run");
    const size_t which = random_() % 3;
    switch (random_() % 6) {
      case 0:
        Say(absl::StrCat("kill the ", kNames[which]));
        Processes()[which]->Kill();
        Pause(0, 1);
        if (which == 0) cluster_.StartTracker();
        if (which == 1) cluster_.StartWorker();
        if (which == 2) cluster_.StartScheduler();
        break;
      case 1: {
        // Half of the times beyond the lease.
        Say(absl::StrCat("stop the ", kNames[which]));
        Processes()[which]->Stop();
        scheduler_stopped_ = which == 2;
        Pause(0.2, 2.0 * kLeaseSeconds);
        if (random_() % 2) Steal();
        Processes()[which]->Continue();
        scheduler_stopped_ = false;
        break;
      }
      case 2: {
        const std::vector<TcpProxy*> links = cluster_.links()->all();
        const size_t link = random_() % links.size();
        const TcpProxy::Mode mode = std::array{TcpProxy::Mode::kHeld, TcpProxy::Mode::kDeaf,
                                               TcpProxy::Mode::kCut}[random_() % 3];
        Say(absl::StrCat("link ", link, " in mode ", static_cast<int>(mode)));
        links[link]->SetMode(mode);
        client_cut_ = link + 1 == links.size();
        Pause(0.2, 2.0 * kLeaseSeconds);
        links[link]->SetMode(TcpProxy::Mode::kOpen);
        client_cut_ = false;
        break;
      }
      case 3: {
        const auto shift = static_cast<int64_t>(random_() % 7200) - 3600;
        Say(absl::StrCat("the clocks jump to ", shift, " s"));
        shift_.Set(shift);
        clocks_jumped_ = true;
        Pause(0, 1);
        break;
      }
      case 4: {
        const std::vector<pid_t> children = cluster_.worker.Children();
        if (children.empty()) break;
        Say("kill a stage");
        kill(children[random_() % children.size()], SIGKILL);
        Pause(0, 0.5);
        break;
      }
      default:
        Say("a stranger takes a slot");
        Steal();
        Pause(0, 1);
    }
  }

  // Takes a slot if it is free, as a person may, and lets its lease run out.
  void Steal() {
    const auto stub = v1::TrackerService::NewStub(
        grpc::CreateChannel(cluster_.tracker_address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext listing;
    listing.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    v1::ListWorkersResponse workers;
    if (!stub->ListWorkers(&listing, {}, &workers).ok()) return;
    for (const v1::WorkerStatus& worker : workers.workers()) {
      for (const v1::SlotStatus& slot : worker.slots()) {
        if (slot.state() != v1::SLOT_FREE) continue;
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
        v1::AcquireRequest request;
        request.set_worker(worker.worker());
        request.set_slot(slot.slot().name());
        request.set_holder("user:stranger");
        request.set_duration_ms(1000);
        v1::Lease lease;
        if (stub->Acquire(&context, request, &lease).ok())
          history_.Granted(slot.slot().name(), lease.fencing_token());
        return;
      }
    }
  }

  void Heal() {
    for (TcpProxy* link : cluster_.links()->all()) link->SetMode(TcpProxy::Mode::kOpen);
    Say("all is well again");
  }

  std::mt19937 random_;
  SharedShift shift_;
  MiniCluster cluster_;
  const std::string model_;
  std::unique_ptr<ServiceClient> client_;
  std::vector<std::string> jobs_;  // all that were told
  std::vector<std::string> open_;  // that were not seen to end
  History history_;
  bool client_cut_ = false;
  bool scheduler_stopped_ = false;
  bool clocks_jumped_ = false;
  std::vector<std::string> story_;
};

TEST(Nemesis, NothingToldIsLostOrDoubledOrTakenBack) {
  const int runs = FromEnvironment("HEDDLE_NEMESIS_RUNS", 1);
  const int first = FromEnvironment("HEDDLE_NEMESIS_SEED", 1);
  for (int i = 0; i < runs && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", first + i));
    const absl::Time begin = absl::Now();
    EXPECT_EQ(NemesisRun(static_cast<unsigned>(first + i)).Go(), "");
    std::cerr << "seed " << first + i << ": "
              << absl::FormatDuration(absl::Trunc(absl::Now() - begin, absl::Seconds(1))) << "\n";
  }
}

// A process that comes back after its leases ended must not go on as if it still had them.
TEST(Nemesis, StopsBeyondTheLeaseLeaveNothingStale) {
  NemesisRun run(static_cast<unsigned>(FromEnvironment("HEDDLE_NEMESIS_SEED", 1)));
  EXPECT_EQ(run.Stops(FromEnvironment("HEDDLE_NEMESIS_STOPS", 3)), "");
}

TEST(Nemesis, AKillAfterATrialWasToldLosesNothing) {
  NemesisRun run(static_cast<unsigned>(FromEnvironment("HEDDLE_NEMESIS_SEED", 1)));
  EXPECT_EQ(run.KillsAfterNews(4), "");
}

TEST(PlantedBugs, AFenceThatIsNotCheckedIsFound) {
  EXPECT_THAT(NemesisRun(1, HEDDLE_BIN_DIR "/heddle-scheduler-without-fence").Stops(1),
              HasSubstr("a stale record"));
}

TEST(PlantedBugs, ATrialThatIsShownBeforeItIsDurableIsFound) {
  EXPECT_THAT(NemesisRun(1, HEDDLE_BIN_DIR "/heddle-scheduler-shows-too-early").KillsAfterNews(40),
              HasSubstr("back to"));
}

// The checker itself: each kind of lie is found.
TEST(HistoryTest, EveryKindOfLieIsFound) {
  v1::Job job;
  job.set_id("j1");
  job.set_state(v1::JOB_DONE);
  job.set_trials(2);
  job.add_tasks()->set_trials(2);
  job.mutable_tasks(0)->set_best_ns(5);
  std::vector<v1::Record> records(2);
  for (int i = 0; i < 2; ++i) {
    records[i].set_candidate(i + 1);
    records[i].set_trace(absl::StrCat("trace ", i));
    records[i].mutable_measurement()->set_outcome(v1::OUTCOME_OK);
  }
  const auto told = [&](const std::function<void(History*)>& lie) {
    History history;
    history.Submitted("j1");
    history.Saw(job);
    history.SawRecords("j1", records);
    history.Granted("s", 7);
    history.Ended(job, records);
    EXPECT_THAT(history.violations(), IsEmpty());
    lie(&history);
    return history.violations().size();
  };
  EXPECT_EQ(told([](History* history) { history->Missing("j1"); }), 1u);
  EXPECT_EQ(told([](History* history) { history->Submitted("j1"); }), 1u);
  EXPECT_EQ(told([](History* history) { history->Granted("s", 7); }), 1u);
  EXPECT_EQ(told([](History* history) {
              history->Stored("s", 8);
              history->Stored("another", 7);
              history->Stored("s", 7);
            }),
            1u);
  EXPECT_GE(told([&](History* history) {
              v1::Job other = job;
              other.set_trials(1);
              history->Saw(other);
            }),
            1u);
  EXPECT_GE(told([&](History* history) {
              v1::Job other = job;
              other.set_state(v1::JOB_TUNING);
              history->Saw(other);
            }),
            1u);
  EXPECT_GE(told([&](History* history) {
              v1::Job other = job;
              other.mutable_tasks(0)->set_best_ns(6);
              history->Saw(other);
            }),
            1u);
  EXPECT_GE(told([&](History* history) { history->SawRecords("j1", {records[0]}); }), 1u);
  EXPECT_GE(told([&](History* history) {
              history->SawRecords("j1", {records[0], records[1], records[1]});
            }),
            1u);
  EXPECT_GE(told([&](History* history) {
              std::vector<v1::Record> other = records;
              other[0].set_median_ns(9);
              history->SawRecords("j1", other);
            }),
            1u);
  EXPECT_GE(told([&](History* history) {
              v1::Job other = job;
              other.set_trials(3);
              history->Ended(other, records);
            }),
            1u);
}

}  // namespace
}  // namespace heddle
