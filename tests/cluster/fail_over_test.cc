// Two schedulers on one store, a tracker and a worker, while jobs run. Again and again the scheduler that leads is killed,
// stopped for longer than its lease, told to end, or cut off from PostgreSQL, and the other takes over. An observer
// keeps what it is told; at the end nothing of that may be lost, doubled or taken back, no slot may have been used
// twice at a time, and every job is done. A scheduler that writes without looking at the epoch must be found.
//
//   HEDDLE_FAIL_OVERS=1000 build/release/tests/cluster/fail_over_test    # so many on each store; takes hours
//
// From 100 fail-overs on, the run fails if they take longer than docs/operating.md promises; shorter runs only tell it.
// Each fail-over is told when it is over, with the time, so that what went before a failure can be found in the logs.
// A run that fails leaves its folder behind, and says where; with HEDDLE_KEEP_LOGS=1 every run does.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/quantiles.h"
#include "client/service_client.h"
#include "proto/job_states.h"
#include "proto/jobs.grpc.pb.h"
#include "tests/cluster/history.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/cluster/small_job.h"
#include "tests/cluster/tcp_proxy.h"
#include "tests/places.h"
#include "tests/scheduler/store/postgres_server.h"

namespace heddle {
namespace {

using client::ServiceClient;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kLeaseSeconds = 4;                         // of slots
constexpr absl::Duration kTakeOver = absl::Seconds(15);  // at most, as docs/operating.md promises
constexpr absl::Duration kUsual = absl::Seconds(5);      // half of them
constexpr char kNotSoon[] = "gaps should have a p50 of 5s and a p99 of 15s at most";
constexpr absl::Duration kRecovery =
    absl::Seconds(240);           // of the last jobs; they need a fraction of it
constexpr size_t kLongRun = 100;  // fail-overs; a single one may be slow on a busy machine
constexpr size_t kLiveJobs = 2;
constexpr int kTrialsPerTask = 3;

// What happens to the scheduler that leads. kHold: it is stopped within a write to SQLite's file.
enum Kind { kKill, kStop, kEnd, kCut, kHold };
constexpr const char* kNames[] = {"kill", "stop", "end", "cut", "hold"};

// Whether the process has SQLite's lock for writes on the database.
bool Writes(pid_t process, const std::string& database) {
  constexpr int64_t kWriteLock = 120;  // this byte of the index of the log
  struct stat index {};
  if (stat((database + "-shm").c_str(), &index) != 0) return false;
  std::ifstream locks("/proc/locks");
  std::string number, kind, mode, access, file;
  int64_t pid = 0, begin = 0;
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    if (!(words >> number >> kind >> mode >> access >> pid >> file >> begin)) continue;
    if (kind == "POSIX" && access == "WRITE" && pid == process && begin == kWriteLock &&
        absl::EndsWith(file, absl::StrCat(":", index.st_ino)))
      return true;
  }
  return false;
}

// Whether the signal has reached each thread: until then one may be about to give the lock back.
bool EachThreadStopped(pid_t process) {
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/task"), error)) {
    std::ifstream file(thread.path() / "stat");
    std::string line;
    std::getline(file, line);
    const size_t name_end = line.rfind(") ");
    if (name_end == std::string::npos || line.substr(name_end + 2, 1) != "T") return false;
  }
  return !error;
}

class FailOverRun {
 public:
  // `server`: with the store; null: SQLite. `scheduler`: another program for it; empty: the real one.
  FailOverRun(PostgresServer* server, std::vector<Kind> kinds, const std::string& scheduler = "")
      : random_(static_cast<unsigned>(FromEnvironment("HEDDLE_FAIL_OVER_SEED", 1))),
        kinds_(std::move(kinds)),
        keeps_(scheduler.empty()),
        model_(SmallModel()) {
    MiniCluster::Options options;
    options.lease_s = kLeaseSeconds;
    options.standby = true;
    options.scheduler = scheduler;
    if (server != nullptr) {
      const std::string url = server->NewDatabase();
      for (auto& link : links_) link = std::make_unique<TcpProxy>(server->socket());
      options.store = PostgresServer::ThroughPort(links_[0]->port(), url);
      options.second_store = PostgresServer::ThroughPort(links_[1]->port(), url);
    }
    cluster_ = std::make_unique<MiniCluster>(options);
  }

  // What was found to be wrong. Ends early if there is something.
  std::vector<std::string> Go(int fail_overs) {
    cluster_->StartTracker();
    cluster_->StartWorker();
    Start(/*first=*/true);
    Start(/*first=*/false);
    client_ = std::make_unique<ServiceClient>(
        absl::StrCat(cluster_->scheduler_address(), ",", cluster_->second_address()));
    Must(client_->WaitUntilServing(absl::Seconds(60)), "start");
    for (int i = 0; i < fail_overs && Fine(); ++i) {
      FillUp();
      if (i % kinds_.size() == 0) std::shuffle(kinds_.begin(), kinds_.end(), random_);
      FailOver(kinds_[i % kinds_.size()]);
      Observe();
      absl::SleepFor(absl::Milliseconds(random_() % 3000));
      Observe();
    }
    const absl::Time limit = absl::Now() + kRecovery;
    while (!live_.empty() && absl::Now() < limit && Fine()) {
      Observe();
      absl::SleepFor(absl::Milliseconds(100));
    }
    if (Fine()) {
      if (!live_.empty()) Found(absl::StrCat(live_.size(), " jobs do not end"));
      CheckSlots();
      if (!cluster_->tracker.Running() || !cluster_->worker.Running())
        Found("the tracker or the worker has ended");
      if (cluster_->second.Terminate() != 0 || cluster_->scheduler.Terminate() != 0)
        Found("a scheduler does not end in order");
      // A planted bug must be found by what it does.
      if (keeps_ && Gaps().size() >= kLongRun && !Soon()) Found(kNotSoon);
    }
    std::vector<std::string> all = found_;
    all.insert(all.end(), history_.violations().begin(), history_.violations().end());
    if (!all.empty()) std::cerr << absl::StrJoin(all, "\n") << "\n" << cluster_->Logs();
    if (keeps_ && (!all.empty() || FromEnvironment("HEDDLE_KEEP_LOGS", 0) != 0))
      std::cerr << "whole logs, and the data: " << cluster_->Keep() << "\n";
    Report();
    return all;
  }

 private:
  bool Fine() const { return found_.empty() && history_.violations().empty(); }
  void Found(const std::string& what) {
    found_.push_back(story_.empty() ? what : absl::StrCat(what, " after: ", story_.back()));
  }
  void Must(const absl::Status& status, const std::string& what) {
    if (!status.ok()) Found(absl::StrCat(what, ": ", status.message()));
  }

  void FillUp() {
    while (live_.size() < kLiveJobs) {
      v1::JobSpec spec = SmallJob(kTrialsPerTask, random_(), /*min_repeat_us=*/500);
      spec.set_no_comparison(true);
      const auto job = client_->Submit(spec, model_);
      if (!job.ok()) return Must(job.status(), "submit");
      history_.Submitted(*job);
      jobs_.push_back(*job);
      live_.push_back(*job);
    }
  }

  void Start(bool first) {
    if (first) {
      cluster_->StartScheduler();
    } else {
      cluster_->StartSecond();
    }
    if (Address(first).empty())
      Found(absl::StrCat("the ", first ? "first" : "second", " scheduler does not start"));
  }

  std::string Address(bool first) const {
    return first ? cluster_->scheduler_address() : cluster_->second_address();
  }

  void FailOver(Kind kind) {
    Process& leader = first_leads_ ? cluster_->scheduler : cluster_->second;
    TcpProxy* const link = links_[first_leads_ ? 0 : 1].get();
    if (!leader.Running() || !Leads(Address(first_leads_)))
      return Found("a scheduler lost the leadership without need");
    if (kind == kHold && !StopWithinWrite(&leader)) return Found("it was never seen to write");
    const absl::Time begun = absl::Now();
    story_.push_back(absl::StrCat(absl::FormatTime("%H:%M:%E3S ", begun, absl::LocalTimeZone()),
                                  kNames[kind], first_leads_ ? " the first" : " the second"));
    std::thread ending;
    int end_status = 0;
    if (kind == kKill) leader.Kill();
    if (kind == kStop) leader.Stop();
    if (kind == kCut) link->SetMode(random_() % 2 ? TcpProxy::Mode::kCut : TcpProxy::Mode::kHeld);
    if (kind == kEnd) ending = std::thread([&] { end_status = leader.Terminate(); });
    bool over = AwaitOther(kind, begun);
    if (over && kind == kCut && Leads(Address(first_leads_)))
      Found("a scheduler that was cut off still answers as the one that leads");
    if (kind == kEnd) {
      ending.join();
      if (end_status != 0) Found("a scheduler that was told to end does not do so in order");
    }
    const bool stopped = kind == kStop || kind == kHold;
    if (over && kind == kHold) Found("another took over SQLite's file within a write");
    if (stopped) leader.Continue();
    if (kind == kCut) link->SetMode(TcpProxy::Mode::kOpen);
    if (!over && stopped && link == nullptr) {
      // A process that is stopped within a write keeps SQLite's file locked, so nobody can take over before it goes on.
      // Then whoever is faster leads: another, or the same one as before, in the same epoch.
      ++held_up_;
      if (GoesOn(leader)) {
        absl::StrAppend(&story_.back(), ": goes on, since nobody could take over");
        std::cerr << story_.back() << "\n";
        return;
      }
      over = AwaitOther(kind, absl::Now());
    }
    // It finds that its time is over, writes nothing, and ends.
    if ((stopped || kind == kCut) && leader.WaitForEnd() != 1)
      Found("a scheduler goes on though another leads");
    if (!over) Found("nobody took over");
    std::cerr << story_.back() << "\n";
    first_leads_ = !first_leads_;
    Start(!first_leads_);
  }

  // Stops it at a time when it has the lock of SQLite's file. False: there was no such time.
  bool StopWithinWrite(Process* leader) {
    const std::string database = cluster_->File("data/heddle.db");
    for (const absl::Time limit = absl::Now() + kRecovery; absl::Now() < limit;) {
      leader->Stop();
      do absl::SleepFor(absl::Milliseconds(1));
      while (!EachThreadStopped(leader->pid()) && absl::Now() < limit);
      if (Writes(leader->pid(), database)) return true;
      leader->Continue();
      absl::SleepFor(absl::Microseconds(random_() % 10'000));
    }
    return false;
  }

  // Whether the scheduler that led, and goes on now, leads again.
  bool GoesOn(const Process& leader) {
    for (const absl::Time limit = absl::Now() + kTakeOver; absl::Now() < limit;) {
      if (Leads(Address(first_leads_))) return true;
      if (!Alive(leader.pid()) || Leads(Address(!first_leads_))) return false;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }

  // Waits until clients are served by the other scheduler, and notes how long that took.
  bool AwaitOther(Kind kind, absl::Time begun) {
    const std::string job = jobs_.back();
    const std::string other = Address(!first_leads_);
    // The clients' own way to it: they know both.
    const absl::Duration limit = kind == kHold ? kTakeOver : 2 * kTakeOver;
    while (absl::Now() < begun + limit) {
      const auto now = client_->GetJob(job);
      if (absl::IsNotFound(now.status())) history_.Missing(job);
      if (now.ok() && Leads(other)) {
        const absl::Duration gap = absl::Now() - begun;
        gaps_[kind].push_back(gap);
        absl::StrAppend(&story_.back(), ": ", absl::FormatDuration(gap));
        return true;
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }
  // Whether the scheduler at the address answers as the one that leads.
  static bool Leads(const std::string& address) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    v1::ListJobsResponse response;
    return v1::JobService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))
        ->ListJobs(&context, {}, &response)
        .ok();
  }

  void Observe() {
    std::vector<std::string> live;
    for (const std::string& job : live_) {
      const auto now = client_->GetJob(job);
      if (absl::IsNotFound(now.status())) history_.Missing(job);
      Must(now.status(), "a job cannot be read");
      const auto records = RecordsOf(*client_, job);
      if (!now.ok() || !records.ok()) {
        live.push_back(job);
        continue;
      }
      if (IsFinal(now->state())) {
        history_.Ended(*now, *records);
      } else {
        history_.Saw(*now);
        history_.SawRecords(job, *records);
        live.push_back(job);
      }
    }
    live_ = live;
  }

  // No two stages were on one slot at a time, by the times that the leaders gave them.
  void CheckSlots() {
    std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> spans;
    for (const std::string& job : jobs_) {
      const auto timeline = client_->GetTimeline(job);
      if (!timeline.ok()) return Must(timeline.status(), "timeline");
      for (const v1::StageSpan& span : timeline->spans()) {
        if (span.end_unix_ns() <= 0) Found(absl::StrCat("a stage of ", job, " has no end"));
        spans[absl::StrCat(span.worker(), "/", span.slot())].emplace_back(span.start_unix_ns(),
                                                                          span.end_unix_ns());
      }
    }
    for (auto& [slot, times] : spans) {
      std::sort(times.begin(), times.end());
      for (size_t i = 1; i < times.size(); ++i) {
        stages_ += 1;
        if (times[i].first < times[i - 1].second) {
          ++double_grants_;
          Found(absl::StrCat("slot ", slot, " was used twice at a time"));
        }
      }
    }
  }

  // From each end of a leader until clients are served by the other.
  std::vector<absl::Duration> Gaps() const {
    std::vector<absl::Duration> all;
    for (const auto& [kind, gaps] : gaps_) all.insert(all.end(), gaps.begin(), gaps.end());
    return all;
  }
  bool Soon() const {
    const std::vector<absl::Duration> all = Gaps();
    return all.empty() || (Quantile(all, 0.5) <= kUsual && Quantile(all, 0.99) <= kTakeOver);
  }

  void Report() const {
    const auto text = [](const std::vector<absl::Duration>& gaps, double share) {
      return absl::FormatDuration(absl::Trunc(Quantile(gaps, share), absl::Milliseconds(10)));
    };
    const std::vector<absl::Duration> all = Gaps();
    std::vector<std::string> lines;
    for (const auto& [kind, gaps] : gaps_) {
      lines.push_back(absl::StrCat(gaps.size(), " ", kNames[kind], " p50 ", text(gaps, 0.5),
                                   " p99 ", text(gaps, 0.99)));
    }
    std::cerr << absl::StrCat(all.size(), " fail-overs (", absl::StrJoin(lines, ", "), "; ",
                              held_up_, " waited for a process stopped within a write), gap p50 ",
                              text(all, 0.5), ", p99 ", text(all, 0.99), ", longest ", text(all, 1),
                              Soon() ? "" : absl::StrCat(" (", kNotSoon, ")"), "; ", jobs_.size(),
                              " jobs, ", stages_, " stages, ", history_.violations().size(),
                              " lost, doubled or taken back, ", double_grants_, " double grants\n");
  }

  std::mt19937 random_;
  std::vector<Kind> kinds_;
  const bool keeps_;  // what a run that fails leaves behind
  const std::string model_;
  std::unique_ptr<TcpProxy> links_[2];  // of the schedulers to PostgreSQL; null with SQLite
  std::unique_ptr<MiniCluster> cluster_;
  std::unique_ptr<ServiceClient> client_;
  bool first_leads_ = true;
  std::vector<std::string> jobs_, live_;
  History history_;
  std::map<Kind, std::vector<absl::Duration>> gaps_;
  int held_up_ = 0;
  int64_t stages_ = 0, double_grants_ = 0;
  std::vector<std::string> story_;
  std::vector<std::string> found_;
};

class FailOver : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) return;
    if (!PostgresServer::Installed()) GTEST_SKIP() << kNoPostgres;
    auto server = PostgresServer::Start(/*durable=*/true);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<PostgresServer> server_;  // null: SQLite
};

TEST_P(FailOver, NothingToldIsLostOrDoubledOrTakenBack) {
  std::vector<Kind> kinds = {kKill, kStop, kEnd};
  if (server_ != nullptr) kinds.push_back(kCut);
  const int fail_overs = FromEnvironment("HEDDLE_FAIL_OVERS", static_cast<int>(kinds.size()));
  EXPECT_THAT(FailOverRun(server_.get(), kinds).Go(fail_overs), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Stores, FailOver, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Postgres" : "Sqlite"; });

// Nothing tells when a process is within a write, so kStop is that by chance only.
TEST(StoppedWithinAWrite, NothingToldIsLostOrDoubledOrTakenBack) {
  FailOverRun run(nullptr, {kHold});
  EXPECT_THAT(run.Go(1), IsEmpty());
}

// What a leader that was cut off still has to write goes past the new leader then.
using PlantedFailOver = FailOver;
TEST_P(PlantedFailOver, ASchedulerThatWritesWhateverTheEpochIsFound) {
  FailOverRun run(server_.get(), {kCut}, HEDDLE_BIN_DIR "/heddle-scheduler-without-epoch");
  EXPECT_THAT(run.Go(FromEnvironment("HEDDLE_PLANTED_FAIL_OVERS", 40)), Not(IsEmpty()));
}
INSTANTIATE_TEST_SUITE_P(Stores, PlantedFailOver, ::testing::Values(true),
                         [](const auto&) { return "Postgres"; });

}  // namespace
}  // namespace heddle
