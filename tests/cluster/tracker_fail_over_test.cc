// Two trackers, of which the scheduler appoints one, and a worker, while jobs run. Again and again the tracker in use is killed,
// stopped, told to end, cut off, or cut off from the scheduler alone, and the other serves instead. At the end no trial may be lost
// or doubled, every job is done, and by the worker's own log no slot was used twice at a time.
//
//   HEDDLE_TRACKER_FAIL_OVERS=200 build/release/tests/cluster/tracker_fail_over_test
//
// From 50 fail-overs on, the run fails if they take longer than docs/operating.md promises.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/quantiles.h"
#include "client/service_client.h"
#include "proto/job_states.h"
#include "proto/tracker.grpc.pb.h"
#include "tests/cluster/history.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/cluster/small_job.h"
#include "tests/cluster/tcp_proxy.h"

namespace heddle {
namespace {

using client::ServiceClient;
using ::testing::IsEmpty;

constexpr absl::Duration kTakeOver = absl::Seconds(15);  // as docs/operating.md promises
constexpr absl::Duration kLimit = absl::Seconds(240);    // of what takes a fraction of it
constexpr size_t kLongRun = 50;  // fail-overs; a single one may be slow on a busy machine
constexpr int kTrialsPerTask = 6;

// What happens to the tracker in use. kDeaf: the scheduler does not reach it, and the worker does.
enum Kind { kKill, kStop, kEnd, kCut, kDeaf };
constexpr const char* kNames[] = {"kill", "stop", "end", "cut", "cut from the scheduler"};

class TrackerFailOvers : public ::testing::Test {
 protected:
  TrackerFailOvers() : cluster_({.links = true, .two_trackers = true}) {
    cluster_.StartTracker();
    cluster_.StartSecondTracker();
    cluster_.StartWorker();
    cluster_.StartScheduler();
    client_ = std::make_unique<ServiceClient>(cluster_.scheduler_address());
  }
  ~TrackerFailOvers() override {
    if (HasFailure()) std::cerr << cluster_.Logs() << "whole logs: " << cluster_.Keep() << "\n";
  }

  std::string Address(bool first) const {
    return first ? cluster_.tracker_address() : cluster_.second_tracker_address();
  }
  Process& TrackerProcess(bool first) { return first ? cluster_.tracker : cluster_.second_tracker; }

  // Whether the tracker serves, and the worker is there.
  static bool Serves(const std::string& address) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    v1::ListWorkersResponse response;
    return v1::TrackerService::NewStub(
               grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))
               ->ListWorkers(&context, {}, &response)
               .ok() &&
           response.workers_size() == 1;
  }
  bool Await(const std::function<bool()>& done) {
    for (const absl::Time limit = absl::Now() + kLimit; absl::Now() < limit;) {
      if (done()) return true;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }

  void FillUp() {
    while (live_.size() < 2) {
      v1::JobSpec spec = SmallJob(kTrialsPerTask, random_(), /*min_repeat_us=*/500);
      spec.set_no_comparison(true);
      const auto job = client_->Submit(spec, model_);
      ASSERT_TRUE(job.ok()) << job.status();
      history_.Submitted(*job);
      live_.push_back(*job);
    }
  }

  // Looks at all live jobs. Returns how many trials were seen so far.
  int64_t Observe() {
    std::vector<std::string> live;
    for (const std::string& job : live_) {
      const auto now = client_->GetJob(job);
      const auto records = RecordsOf(*client_, job);
      EXPECT_TRUE(now.ok() && records.ok()) << now.status() << records.status();
      if (!now.ok() || !records.ok()) continue;
      if (IsFinal(now->state())) {
        history_.Ended(*now, *records);
        ended_trials_ += now->trials();
      } else {
        history_.Saw(*now);
        history_.SawRecords(job, *records);
        live.push_back(job);
      }
    }
    live_ = live;
    int64_t trials = ended_trials_;
    for (const std::string& job : live_) {
      if (const auto now = client_->GetJob(job); now.ok()) trials += now->trials();
    }
    return trials;
  }

  void FailOver(Kind kind) {
    Process& process = TrackerProcess(first_serves_);
    Links& links = *cluster_.links();
    TcpProxy& to_worker = first_serves_ ? links.worker_to_tracker : links.worker_to_second_tracker;
    TcpProxy& to_scheduler =
        first_serves_ ? links.scheduler_to_tracker : links.scheduler_to_second_tracker;
    ASSERT_TRUE(Serves(Address(first_serves_))) << "another tracker serves without need";
    const int64_t trials = Observe();
    const absl::Time begun = absl::Now();
    const TcpProxy::Mode mode = random_() % 2 ? TcpProxy::Mode::kCut : TcpProxy::Mode::kHeld;
    if (kind == kKill) process.Kill();
    if (kind == kStop) process.Stop();
    if (kind == kEnd) ASSERT_EQ(process.Terminate(), 0);
    if (kind == kCut) to_worker.SetMode(mode);
    if (kind == kCut || kind == kDeaf) to_scheduler.SetMode(mode);
    ASSERT_TRUE(Await([&] { return Serves(Address(!first_serves_)); })) << "nobody takes over";
    const absl::Duration gap = absl::Now() - begun;
    gaps_[kind].push_back(gap);
    std::cerr << absl::StrCat(kNames[kind], first_serves_ ? " the first" : " the second", ": ",
                              absl::FormatDuration(gap), "\n");
    if (kind == kStop) process.Continue();
    if (kind == kCut || kind == kDeaf || kind == kStop) {
      EXPECT_FALSE(Serves(Address(first_serves_))) << "two trackers serve";
    }
    to_worker.SetMode(TcpProxy::Mode::kOpen);
    to_scheduler.SetMode(TcpProxy::Mode::kOpen);
    if (kind == kKill || kind == kEnd)
      first_serves_ ? cluster_.StartTracker() : cluster_.StartSecondTracker();
    first_serves_ = !first_serves_;
    ASSERT_TRUE(Await([&] {
      FillUp();
      return Observe() > trials;
    })) << "no trials after the fail-over";
  }

  // By the worker's log.
  void CheckSlots() {
    std::ifstream log(cluster_.File("worker.log"));
    std::map<std::string, std::string> running;  // by slot
    int begun = 0;
    for (std::string line; std::getline(log, line);) {
      const size_t at = line.find("slot=");
      if (at == std::string::npos) continue;
      const std::string slot = line.substr(at, line.find(' ', at) - at);
      if (line.find("stage begins") != std::string::npos) {
        ++begun;
        EXPECT_EQ(running[slot], "") << "is not over when this begins: " << line;
        running[slot] = line;
      } else if (line.find("stage ended") != std::string::npos ||
                 line.find("stage failed") != std::string::npos) {
        running[slot].clear();
      }
    }
    EXPECT_GT(begun, 10) << "the log has no stages";
  }

  const std::string model_ = SmallModel();
  std::mt19937 random_{static_cast<unsigned>(FromEnvironment("HEDDLE_TRACKER_FAIL_OVER_SEED", 1))};
  MiniCluster cluster_;
  std::unique_ptr<ServiceClient> client_;
  bool first_serves_ = true;
  std::vector<std::string> live_;
  int64_t ended_trials_ = 0;
  History history_;
  std::map<Kind, std::vector<absl::Duration>> gaps_;
};

TEST_F(TrackerFailOvers, NoTrialIsLostOrDoubled) {
  ASSERT_TRUE(client_->WaitUntilServing(absl::Seconds(60)).ok());
  ASSERT_TRUE(Await([&] { return Serves(Address(true)); })) << "no tracker is appointed";
  std::vector<Kind> kinds = {kKill, kStop, kEnd, kCut, kDeaf};
  const int fail_overs =
      FromEnvironment("HEDDLE_TRACKER_FAIL_OVERS", static_cast<int>(kinds.size()));
  for (int i = 0; i < fail_overs && !HasFailure(); ++i) {
    FillUp();
    if (i % kinds.size() == 0) std::shuffle(kinds.begin(), kinds.end(), random_);
    FailOver(kinds[i % kinds.size()]);
  }
  ASSERT_FALSE(HasFailure());
  ASSERT_TRUE(Await([&] {
    Observe();
    return live_.empty();
  })) << "the jobs do not end";
  EXPECT_THAT(history_.violations(), IsEmpty());
  CheckSlots();
  std::vector<absl::Duration> all;
  std::vector<std::string> lines;
  for (const auto& [kind, gaps] : gaps_) {
    all.insert(all.end(), gaps.begin(), gaps.end());
    lines.push_back(absl::StrCat(gaps.size(), " ", kNames[kind], " p50 ",
                                 absl::FormatDuration(Quantile(gaps, 0.5))));
  }
  std::cerr << absl::StrCat(all.size(), " fail-overs (", absl::StrJoin(lines, ", "), "), gap p50 ",
                            absl::FormatDuration(Quantile(all, 0.5)), ", p99 ",
                            absl::FormatDuration(Quantile(all, 0.99)), "\n");
  if (all.size() >= kLongRun) EXPECT_LE(Quantile(all, 0.99), kTakeOver);
  EXPECT_EQ(cluster_.scheduler.Terminate(), 0);
  EXPECT_EQ(cluster_.worker.Terminate(), 0);
}

}  // namespace
}  // namespace heddle
