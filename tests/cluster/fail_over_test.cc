// Two schedulers, a tracker and a worker, while jobs run. Again and again the scheduler that leads is killed,
// stopped for longer than its lease, or told to end, and the other takes over. An observer keeps what it is
// told; at the end nothing of that may be lost, doubled or taken back, no slot may have been used twice at a
// time, and every job is done.
//
//   HEDDLE_FAIL_OVERS=1000 build/release/tests/cluster/fail_over_test    # takes about three hours
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/service_client.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "proto/job_states.h"
#include "proto/jobs.grpc.pb.h"
#include "tests/cluster/history.h"
#include "tests/cluster/mini_cluster.h"

namespace heddle {
namespace {

using client::ServiceClient;
using ::testing::IsEmpty;

constexpr int kLeaseSeconds = 4;                         // of slots
constexpr absl::Duration kTakeOver = absl::Seconds(15);  // at most, as docs/operating.md promises
constexpr absl::Duration kRecovery =
    absl::Seconds(240);  // of the last jobs; they need a fraction of it
constexpr size_t kLiveJobs = 2;
constexpr int kTrialsPerTask = 3;

int FromEnvironment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

absl::Duration Percentile(std::vector<absl::Duration> values, double share) {
  if (values.empty()) return absl::ZeroDuration();
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(values.size() - 1, place)];
}

class FailOverRun {
 public:
  explicit FailOverRun(unsigned seed)
      : random_(seed),
        cluster_({.lease_s = kLeaseSeconds, .standby = true}),
        model_(zoo::MakeZooModel("mlp", 1).value()) {}

  void Go(int fail_overs) {
    cluster_.StartTracker();
    cluster_.StartWorker();
    cluster_.StartScheduler();
    cluster_.StartSecond();
    client_ = std::make_unique<ServiceClient>(
        absl::StrCat(cluster_.scheduler_address(), ",", cluster_.second_address()));
    const absl::Status serving = client_->WaitUntilServing(absl::Seconds(60));
    ASSERT_TRUE(serving.ok()) << serving << cluster_.Logs();
    for (int i = 0; i < fail_overs && !::testing::Test::HasFailure(); ++i) {
      FillUp();
      FailOver();
      Observe();
      absl::SleepFor(absl::Milliseconds(random_() % 3000));
      Observe();
    }
    const absl::Time limit = absl::Now() + kRecovery;
    while (!live_.empty() && absl::Now() < limit) {
      Observe();
      absl::SleepFor(absl::Milliseconds(100));
    }
    EXPECT_THAT(live_, IsEmpty()) << "these jobs do not end";
    CheckSlots();
    EXPECT_TRUE(cluster_.tracker.Running() && cluster_.worker.Running());
    EXPECT_EQ(cluster_.second.Terminate(), 0);
    EXPECT_EQ(cluster_.scheduler.Terminate(), 0);
    EXPECT_THAT(history_.violations(), IsEmpty());
    std::cerr << absl::StrJoin(story_, "\n") << "\n";
    if (::testing::Test::HasFailure()) std::cerr << cluster_.Logs();
    Report();
  }

 private:
  enum Kind { kKill, kStop, kEnd };

  void FillUp() {
    while (live_.size() < kLiveJobs) {
      v1::JobSpec spec;
      spec.set_plan_search("off");
      spec.set_name("mlp");
      spec.set_target(ToText(codegen::ResolveTarget(Target{}).value()));
      spec.set_trials_per_task(kTrialsPerTask);
      spec.set_allocation("uniform");
      spec.set_batch(3);
      spec.set_strategy("random");
      spec.set_seed(random_());
      spec.set_force(true);
      spec.set_no_comparison(true);
      spec.set_repeats(2);
      spec.set_min_repeat_us(500);
      const auto job = client_->Submit(spec, model_);
      ASSERT_TRUE(job.ok()) << job.status();
      history_.Submitted(*job);
      jobs_.push_back(*job);
      live_.push_back(*job);
    }
  }

  void FailOver() {
    Process& leader = first_leads_ ? cluster_.scheduler : cluster_.second;
    EXPECT_TRUE(leader.Running() &&
                Leads(first_leads_ ? cluster_.scheduler_address() : cluster_.second_address()))
        << "a scheduler lost the leadership without need";
    const Kind kind = std::array{kKill, kStop, kEnd}[random_() % 3];
    ++counts_[kind];
    story_.push_back(absl::StrCat(std::array{"kill ", "stop ", "end "}[kind],
                                  first_leads_ ? "the first" : "the second"));
    const absl::Time begun = absl::Now();
    std::thread ending;
    int end_status = 0;
    if (kind == kKill) leader.Kill();
    if (kind == kStop) leader.Stop();
    if (kind == kEnd) ending = std::thread([&] { end_status = leader.Terminate(); });
    const bool over = AwaitOther(begun);
    if (kind == kEnd) {
      ending.join();
      EXPECT_EQ(end_status, 0) << "a scheduler that was told to end";
    }
    if (kind == kStop) {
      // It finds that its time is over, writes nothing, and ends.
      leader.Continue();
      EXPECT_EQ(leader.WaitForEnd(), 1) << "a scheduler that was stopped for too long";
      // A process that is stopped within a write keeps the database locked, so nobody can take over before.
      if (!over) {
        ++held_up_;
        EXPECT_TRUE(AwaitOther(absl::Now()));
      }
    } else {
      EXPECT_TRUE(over) << "nobody took over";
    }
    first_leads_ = !first_leads_;
    if (first_leads_) {
      cluster_.StartSecond();
    } else {
      cluster_.StartScheduler();
    }
  }

  // Waits until clients are served by the other scheduler, and notes how long that took.
  bool AwaitOther(absl::Time begun) {
    const std::string job = jobs_.back();
    const std::string other =
        first_leads_ ? cluster_.second_address() : cluster_.scheduler_address();
    // The clients' own way to it: they know both.
    while (absl::Now() < begun + 2 * kTakeOver) {
      const auto now = client_->GetJob(job);
      if (absl::IsNotFound(now.status())) history_.Missing(job);
      if (now.ok() && Leads(other)) {
        gaps_.push_back(absl::Now() - begun);
        absl::StrAppend(&story_.back(), ": ", absl::FormatDuration(gaps_.back()));
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
      EXPECT_TRUE(now.ok()) << now.status();
      v1::RecordQuery query;
      query.set_job(job);
      query.set_limit(client::kAllRecords);
      std::vector<v1::Record> records;
      const absl::Status read = client_->QueryRecords(query, [&](const v1::Record& record) {
        records.push_back(record);
        return true;
      });
      if (!now.ok() || !read.ok()) {
        live.push_back(job);
        continue;
      }
      if (IsFinal(now->state())) {
        history_.Ended(*now, records);
      } else {
        history_.Saw(*now);
        history_.SawRecords(job, records);
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
      ASSERT_TRUE(timeline.ok()) << timeline.status();
      for (const v1::StageSpan& span : timeline->spans()) {
        EXPECT_GT(span.end_unix_ns(), 0) << "a stage without an end";
        spans[absl::StrCat(span.worker(), "/", span.slot())].emplace_back(span.start_unix_ns(),
                                                                          span.end_unix_ns());
      }
    }
    for (auto& [slot, times] : spans) {
      std::sort(times.begin(), times.end());
      for (size_t i = 1; i < times.size(); ++i) {
        stages_ += 1;
        if (times[i].first < times[i - 1].second)
          ADD_FAILURE() << "slot " << slot << " was used twice at a time";
      }
    }
  }

  void Report() const {
    const auto text = [](absl::Duration time) {
      return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(10)));
    };
    std::cerr << absl::StrCat(gaps_.size(), " fail-overs (", counts_[kKill], " kills, ",
                              counts_[kStop], " stops, ", counts_[kEnd], " ends; ", held_up_,
                              " waited for a process stopped within a write), gap p50 ",
                              text(Percentile(gaps_, 0.5)), ", p99 ", text(Percentile(gaps_, 0.99)),
                              ", longest ", text(Percentile(gaps_, 1)), "; ", jobs_.size(),
                              " jobs, ", stages_, " stages, ", history_.violations().size(),
                              " violations\n");
  }

  std::mt19937 random_;
  MiniCluster cluster_;
  const std::string model_;
  std::unique_ptr<ServiceClient> client_;
  bool first_leads_ = true;
  std::vector<std::string> jobs_, live_;
  History history_;
  std::vector<absl::Duration> gaps_;
  int counts_[3] = {};
  int held_up_ = 0;
  int64_t stages_ = 0;
  std::vector<std::string> story_;
};

TEST(FailOver, NothingToldIsLostOrDoubledOrTakenBack) {
  FailOverRun(static_cast<unsigned>(FromEnvironment("HEDDLE_FAIL_OVER_SEED", 1)))
      .Go(FromEnvironment("HEDDLE_FAIL_OVERS", 5));
}

}  // namespace
}  // namespace heddle
