// Collecting many finished jobs at once: no step of it grows with their number. Looked at are what
// transactions take, of many jobs and of an eighth of them, the memory, and whether the last jobs
// take as long as the first. Times are those of the CPU and are compared with each other, so a busy
// machine does not matter.
//
// HEDDLE_COLLECT_JOBS sets the number of jobs, such as 10000.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/quantiles.h"
#include "base/vocabulary/workload_key.h"
#include "bench/common/usage.h"
#include "scheduler/service/storage/collector.h"
#include "tests/scheduler/service/gated_store.h"
#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

constexpr int kWorkloads = 20;  // that the jobs share
constexpr int kTasks = 2;       // of a job
constexpr int kTrials = 8;      // of a job
constexpr int kStages = 4;      // of a job
constexpr int64_t kJobsAtATime = 200;
constexpr size_t kMostRows = 1000;  // that one transaction of a collection changes
constexpr double kMostMib = 64;     // of memory, above what was taken before
constexpr int64_t kFewer = 8;       // so many times fewer jobs, to compare with
constexpr double kMostGrowth = 3;   // a step that looks at all jobs would grow kFewer times

int64_t Jobs() {
  const char* asked = std::getenv("HEDDLE_COLLECT_JOBS");
  return asked == nullptr ? 800 : std::atoll(asked);
}

double ThreadCpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What the transactions of a collection did.
struct Steps {
  size_t most_rows = 0;            // that one changed
  std::vector<double> cpu_s = {};  // of each
  // What all but a few take, such as those in which SQLite moves its log.
  double CpuMs() const { return 1e3 * Quantile(cpu_s, 0.9); }
};

// Keeps what the transactions of collections do.
class MeasuredStore : public GatedStore {
 public:
  using GatedStore::GatedStore;

  absl::StatusOr<std::vector<absl::Status>> Apply(absl::Span<const Batch> batches) override {
    size_t rows = 0;
    for (const Batch& batch : batches) {
      for (const StoreChange& change : batch) {
        const auto* collected = std::get_if<CollectRows>(&change);
        const auto* removed = std::get_if<RemoveRecords>(&change);
        if (collected != nullptr)
          rows +=
              collected->candidates.size() + collected->records.size() + collected->attempts.size();
        if (removed != nullptr) rows += static_cast<size_t>(removed->limit);
      }
    }
    const double before = ThreadCpuSeconds();
    auto applied = GatedStore::Apply(batches);
    absl::MutexLock lock(&mutex_);
    steps_.most_rows = std::max(steps_.most_rows, rows);
    steps_.cpu_s.push_back(ThreadCpuSeconds() - before);
    return applied;
  }
  // Those since the last call.
  Steps Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(steps_, {});
  }

 private:
  absl::Mutex mutex_;
  Steps steps_ ABSL_GUARDED_BY(mutex_);
};

class CollectManyTest : public WrappedStoreTest<MeasuredStore> {
 protected:
  void MakeJobs(int64_t jobs) {
    Batch batch;
    for (int64_t id = 1; id <= jobs; ++id) {
      AddJob(id, &batch);
      if (id % kJobsAtATime != 0 && id != jobs) continue;
      const auto applied = store_->Apply({std::exchange(batch, {})});
      ASSERT_TRUE(applied.ok()) << applied.status();
      ASSERT_TRUE(applied->front().ok()) << applied->front();
    }
  }

  // Another service, without data.
  void StartAnew() {
    Stop();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    Start();
  }

 private:
  static void AddJob(int64_t id, Batch* batch) {
    JobRow row;
    row.id = id;
    row.device_key = "key";
    v1::Job& job = row.job;
    job.set_id(JobName(id));
    job.mutable_spec()->set_name("model");
    job.mutable_spec()->set_target("llvm -mcpu=x");
    job.mutable_spec()->set_trials_per_task(kTrials / kTasks);
    job.set_state(v1::JOB_DONE);
    job.set_model_digest(std::string(64, 'a'));
    job.set_module_digest(std::string(64, 'b'));
    job.set_created_unix_ns(1000 + id);
    job.set_finished_unix_ns(2000 + id);
    batch->push_back(PutJob{row});
    const auto workload = [id](int task) {
      return absl::StrCat("workload ", (id + task) % kWorkloads);
    };
    for (int i = 0; i < kTasks; ++i) {
      TaskRow task;
      task.job = id;
      task.index = i;
      task.info.set_workload(workload(i));
      task.info.set_key(WorkloadKey(workload(i)));
      task.info.set_weight(1);
      task.budget = kTrials / kTasks;
      task.done = true;
      batch->push_back(PutTask{task});
      batch->push_back(PutSearchState{id, i, std::string(2000, 's')});
    }
    for (int n = 1; n <= kTrials; ++n) {
      const int task = n % kTasks;
      CandidateRow candidate;
      candidate.job = id;
      candidate.id = n;
      candidate.task = task;
      candidate.trace = absl::StrCat("trace ", id, " ", n);
      candidate.origin = n <= kTasks ? "default" : "random";
      batch->push_back(InsertCandidate{candidate});
      InsertRecord record;
      v1::Record& made = record.record;
      made.set_schema_version(1);
      made.set_workload(workload(task));
      made.set_workload_key(WorkloadKey(workload(task)));
      made.set_target("llvm -mcpu=x");
      made.set_device_key("key");
      made.set_trace(candidate.trace);
      made.set_created_unix_ns(3000 + 100 * id + n);
      made.set_job(JobName(id));
      made.set_candidate(n);
      made.set_attempt(1);
      made.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
      made.mutable_measurement()->mutable_evidence()->set_worker("w1");
      const double ns = 1000 + static_cast<double>((n * 7919 + id * 104729) % 5000);
      for (const double sample : {ns - 1, ns, ns + 1})
        made.mutable_measurement()->add_samples_ns(sample);
      made.set_median_ns(ns);
      batch->push_back(record);
    }
    for (int n = 0; n < kStages; ++n) {
      StageRow stage;
      stage.span.set_attempt_id(kStages * id + n);
      stage.span.set_job(JobName(id));
      stage.span.set_kind(v1::STAGE_PROFILE);
      stage.span.set_worker("w1");
      stage.span.set_slot("profile1");
      stage.span.set_start_unix_ns(2000 + id);
      stage.span.set_end_unix_ns(2001 + id);
      batch->push_back(PutStage{stage});
    }
  }
};

TEST_F(CollectManyTest, NoStepGrowsWithTheNumberOfJobs) {
  const int64_t jobs = Jobs();
  const auto collect = [&](const std::function<void()>& on_job) {
    return collector_->Collect(
        {absl::ZeroDuration(), 0}, /*dry_run=*/false, absl::Now(),
        [&](const v1::CollectProgress::Job&) {
          on_job();
          return true;
        },
        [] { return true; });
  };
  MakeJobs(jobs / kFewer);
  if (HasFatalFailure()) return;
  (void)wrapped_->Take();
  ASSERT_TRUE(collect([] {}).ok());
  const Steps of_few = wrapped_->Take();

  StartAnew();
  MakeJobs(jobs);
  if (HasFatalFailure()) return;
  (void)wrapped_->Take();
  bench::ForgetPeak(getpid());
  const double before = bench::MemoryMib(getpid(), "VmRSS");
  std::vector<double> cpu_s;  // of each job
  double told = bench::CpuSeconds(getpid());
  const auto total = collect([&] {
    const double now = bench::CpuSeconds(getpid());
    cpu_s.push_back(now - std::exchange(told, now));
  });
  ASSERT_TRUE(total.ok()) << total.status();
  const double grown_mib = bench::MemoryMib(getpid(), "VmHWM") - before;
  const Steps steps = wrapped_->Take();
  ASSERT_EQ(static_cast<int64_t>(cpu_s.size()), jobs);
  const auto quarter = static_cast<std::ptrdiff_t>(jobs / 4);
  const double first = Quantile(std::vector(cpu_s.begin(), cpu_s.begin() + quarter), 0.5);
  const double last = Quantile(std::vector(cpu_s.end() - quarter, cpu_s.end()), 0.5);
  std::printf(
      "%lld jobs: %zu transactions of %.2f ms, those of %lld jobs of %.2f ms, with at most %zu "
      "rows; memory grew by %.0f MiB; a job of the first quarter took %.2f ms, of the last %.2f\n",
      static_cast<long long>(jobs), steps.cpu_s.size(), steps.CpuMs(),
      static_cast<long long>(jobs / kFewer), of_few.CpuMs(), steps.most_rows, grown_mib,
      1e3 * first, 1e3 * last);

  EXPECT_EQ(total->jobs(), jobs);
  // All but the latest stage of all, and the raw data of the fastest record of each workload.
  EXPECT_EQ(total->rows(), jobs * (2 * kTrials + kStages) - kWorkloads - 1);
  EXPECT_LE(steps.most_rows, kMostRows);
  EXPECT_LT(steps.CpuMs(), kMostGrowth * of_few.CpuMs());
  EXPECT_LT(grown_mib, kMostMib);
  EXPECT_LT(last, kMostGrowth * first) << "later jobs take longer";
  const auto left = store_->Collectable();
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_THAT(*left, ::testing::IsEmpty());
}

// Old records of many jobs, the next collection's work, go in steps as small.
TEST_F(CollectManyTest, OldRecordsGoInSmallSteps) {
  const auto steps_of = [&](int64_t jobs) {
    MakeJobs(jobs);
    if (HasFatalFailure()) return Steps();
    RetractRecords retract;
    for (int64_t id = 1; id <= jobs * kTrials; id += 3) retract.ids.push_back(id);
    retract.retraction.set_reason("its clock was broken");
    retract.retraction.set_by("ann");
    retract.retraction.set_unix_ns(5000);
    EXPECT_TRUE(store_->Apply({Batch{retract}})->front().ok());
    for (int64_t id = 1; id <= jobs; ++id)
      EXPECT_TRUE(store_->Apply({Batch{CollectJob{id, 6000}}})->front().ok());
    (void)wrapped_->Take();
    const auto total = collector_->Collect(
        {absl::ZeroDuration(), 0}, /*dry_run=*/false, absl::Now(),
        [](const v1::CollectProgress::Job&) { return true; }, [] { return true; });
    EXPECT_TRUE(total.ok()) << total.status();
    const auto retracted = static_cast<int64_t>(retract.ids.size());
    EXPECT_TRUE(!total.ok() || total->records() >= retracted - 1)
        << "the latest record of all stays";
    return wrapped_->Take();
  };
  const int64_t jobs = std::min<int64_t>(Jobs(), 2000);
  const Steps of_few = steps_of(jobs / kFewer);
  if (HasFatalFailure()) return;
  StartAnew();
  const Steps steps = steps_of(jobs);
  std::printf("%zu transactions of %.2f ms, those of %lld times fewer jobs of %.2f ms\n",
              steps.cpu_s.size(), steps.CpuMs(), static_cast<long long>(kFewer), of_few.CpuMs());
  EXPECT_LE(steps.most_rows, kMostRows);
  EXPECT_LT(steps.CpuMs(), kMostGrowth * of_few.CpuMs());
}

}  // namespace
}  // namespace heddle::scheduler
