// Collections and kill -9: a real scheduler is killed while it collects old jobs, at a random point. An
// observer compares what the data directory has then with what it had before: nothing that somebody still
// refers to is lost. The next scheduler finishes the collection, and leaves what one that nobody disturbs
// leaves.
//
// HEDDLE_GC_KILLS=N asks for N kills instead of 20; "all" for one in each of ten moments after each job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files/blob_store.h"
#include "base/vocabulary/limits.h"
#include "base/vocabulary/workload_key.h"
#include "client/service_client.h"
#include "scheduler/store/sqlite_record_store.h"
#include "tests/adversary/store_checks.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/scheduler/store/fault_workload.h"

namespace heddle {
namespace {

using client::ServiceClient;
using scheduler::Batch;
using scheduler::CandidateRow;
using scheduler::CollectJob;
using scheduler::InsertCandidate;
using scheduler::InsertRecord;
using scheduler::JobBlobs;
using scheduler::JobName;
using scheduler::JobRow;
using scheduler::PutJob;
using scheduler::PutStage;
using scheduler::PutTask;
using scheduler::RecordStore;
using scheduler::RetractRecords;
using scheduler::StageRow;
using scheduler::StoredJob;
using scheduler::TaskRow;

constexpr int kOldJobs = 12;
constexpr int kCollectedBefore = 4;  // of these, by an earlier collection
constexpr int kRecentJobs = 3;       // ended just now
constexpr int64_t kPausedJob = kOldJobs + kRecentJobs + 1;
constexpr int kTrials = 300;  // of each job
constexpr int kJobTasks =
    3;  // of all jobs, the same ones; the paused job has the first of them only
constexpr int kRetracted = 400;
constexpr int kImported = 50;

std::string Workload(int task) { return absl::StrCat("workload ", task); }

v1::Record RecordOf(int task, const std::string& trace, double ns, int64_t created_unix_ns) {
  v1::Record record;
  record.set_schema_version(1);
  record.set_workload(Workload(task));
  record.set_workload_key(WorkloadKey(Workload(task)));
  record.set_target("llvm -mcpu=x");
  record.set_device_key("key");
  record.set_trace(trace);
  record.set_created_unix_ns(created_unix_ns);
  v1::Measurement& measured = *record.mutable_measurement();
  measured.set_outcome(v1::OUTCOME_OK);
  for (const double sample : {ns - 1, ns, ns + 1}) measured.add_samples_ns(sample);
  measured.mutable_evidence()->set_worker("w1");
  record.set_median_ns(ns);
  return record;
}

// A data directory as a scheduler leaves it.
class OldData {
 public:
  explicit OldData(const std::string& directory) {
    std::filesystem::create_directories(directory);
    store_ = scheduler::OpenSqliteRecordStore(directory + "/heddle.db").value();
    blobs_ = BlobStore::Open(directory + "/blobs").value();
    for (int64_t job = 1; job <= kPausedJob; ++job) AddJob(job);
    Batch imports;
    for (int i = 0; i < kImported; ++i) {
      InsertRecord import{RecordOf(1, absl::StrCat("imported ", i), 5000 + i, 7000 + i)};
      import.record.set_imported_by("bob");
      import.imported = true;
      imports.push_back(import);
    }
    Apply(imports);
    // Every ninth one, from the first on. The latest record of all is not among them.
    RetractRecords retract;
    for (int64_t i = 0; i < kRetracted; ++i) retract.ids.push_back(1 + 9 * i);
    retract.retraction.set_reason("its clock was broken");
    retract.retraction.set_by("ann");
    retract.retraction.set_unix_ns(9000);
    Apply({retract});
    for (int64_t job = 1; job <= kCollectedBefore; ++job) Apply({CollectJob{job, 9500}});
    // Nobody has used the blobs for two days.
    for (const BlobStore::Entry& entry : blobs_->List())
      std::filesystem::last_write_time(
          blobs_->PathOf(entry.digest),
          std::filesystem::file_time_type::clock::now() - std::chrono::hours(48));
  }

 private:
  void Apply(const Batch& batch) {
    const auto applied = store_->Apply({batch});
    ASSERT_TRUE(applied.ok()) << applied.status();
    ASSERT_TRUE(applied->front().ok()) << applied->front();
  }
  std::string Blob(const std::string& content) {
    const auto writer = blobs_->NewWriter().value();
    EXPECT_TRUE(writer->Append(content).ok());
    return writer->Commit("").value();
  }
  void AddJob(int64_t id) {
    const bool paused = id == kPausedJob;
    JobRow row;
    row.id = id;
    row.paused = paused;
    row.device_key = "key";
    v1::Job& job = row.job;
    job.set_id(JobName(id));
    job.mutable_spec()->set_name("model");
    job.mutable_spec()->set_target("llvm -mcpu=x");
    job.mutable_spec()->set_trials_per_task(kTrials);
    job.mutable_spec()->set_plan_search("off");
    job.set_state(paused ? v1::JOB_TUNING : v1::JOB_DONE);
    job.set_created_unix_ns(1000 + id);
    // Old and recent jobs share their models.
    job.set_model_digest(Blob(absl::StrCat("model ", id % 4)));
    if (!paused) job.set_module_digest(Blob(absl::StrCat("module ", id)));
    if (!paused)
      job.set_finished_unix_ns(id <= kOldJobs ? 2000 + id
                                              : absl::GetCurrentTimeNanos() - 1'000'000 + id);
    Batch batch = {PutJob{row}};
    const int tasks = paused ? 1 : kJobTasks;
    for (int i = 0; i < tasks; ++i) {
      TaskRow task;
      task.job = id;
      task.index = i;
      task.info.set_key(WorkloadKey(Workload(i)));
      task.info.set_workload(Workload(i));
      task.info.set_label("conv");
      task.info.set_weight(1);
      task.estimated_weight = 1;
      task.budget = kTrials;
      batch.push_back(PutTask{task});
    }
    for (int64_t n = 1; n <= kTrials; ++n) {
      const int task = static_cast<int>(n) % tasks;
      CandidateRow candidate;
      candidate.job = id;
      candidate.id = n;
      candidate.task = task;
      candidate.trace = absl::StrCat("trace ", id, " ", n);
      candidate.origin = n <= kJobTasks ? "default" : "random";
      batch.push_back(InsertCandidate{candidate});
      const double ns = 1000 + static_cast<double>((n * 7919 + id * 104729) % 5000);
      InsertRecord record{RecordOf(task, candidate.trace, ns, 3000 + 1000 * id + n)};
      record.record.set_job(JobName(id));
      record.record.set_candidate(n);
      record.record.set_attempt(1);
      batch.push_back(record);
    }
    for (int n = 1; n <= 10; ++n) {
      StageRow stage;
      stage.span.set_attempt_id(100 * id + n);
      stage.span.set_job(JobName(id));
      stage.span.set_kind(v1::STAGE_PROFILE);
      stage.span.set_worker("w1");
      stage.span.set_slot("profile0");
      stage.span.set_start_unix_ns(100 * id + n);
      stage.span.set_end_unix_ns(100 * id + n + 1);
      batch.push_back(PutStage{stage});
    }
    Apply(batch);
  }

  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<BlobStore> blobs_;
};

// What somebody refers to and a collection must leave alone, as text: jobs that are not collected with
// their trials and raw measurements, the records that stand with their times, the fastest of each task
// with its raw measurement, and which blobs these jobs need.
std::string Referenced(const std::string& directory) {
  const auto store = scheduler::OpenSqliteRecordStore(directory + "/heddle.db");
  if (!store.ok()) return store.status().ToString();
  std::string text;
  const auto add = [&text](const auto&... parts) { absl::StrAppend(&text, parts..., "\n"); };
  std::set<std::string> kept_jobs;
  const std::vector<StoredJob> jobs = (*store)->LoadJobs().value();
  for (const StoredJob& job : jobs) {
    add("job ", job.row.id, " ", static_cast<int>(job.row.job.state()), " ", job.tasks.size());
    for (const auto& trial : job.candidates)
      add("trial ", trial.id, " ",
          static_cast<int>(trial.outcome.value_or(v1::OUTCOME_UNSPECIFIED)), " ", trial.median_ns);
    if (job.row.id <= kOldJobs) continue;
    kept_jobs.insert(job.row.job.id());
    add(job.row.job.model_digest(), " ", job.row.job.module_digest());
    const std::vector<v1::StageSpan> spans = (*store)->Timeline(job.row.id, 0, 1000).value();
    for (const v1::StageSpan& span : spans) add("stage ", span.ShortDebugString());
  }
  v1::RecordQuery query;
  query.set_limit(kMaxQueryLimit);
  const std::vector<v1::Record> records = (*store)->Query(query).value();
  for (const v1::Record& record : records) {
    const bool kept = kept_jobs.contains(record.job());
    add("record ", record.id(), " ", record.trace(), " ", record.median_ns(), " ",
        kept ? record.measurement().ShortDebugString() : "");
  }
  query.set_best_only(true);
  const std::vector<v1::Record> fastest = (*store)->Query(query).value();
  for (const v1::Record& record : fastest) add("best ", record.ShortDebugString());
  return text;
}

// The blobs that jobs refer to and that are not there.
std::vector<std::string> MissingBlobs(const std::string& directory) {
  std::vector<std::string> missing;
  const auto store = scheduler::OpenSqliteRecordStore(directory + "/heddle.db");
  if (!store.ok()) return {store.status().ToString()};
  const std::vector<JobBlobs> jobs = (*store)->BlobsOfJobs().value();
  for (const JobBlobs& job : jobs) {
    for (const std::string& blob : job.blobs) {
      if (!std::filesystem::exists(BlobPath(directory + "/blobs", blob)))
        missing.push_back(absl::StrCat(JobName(job.job), " needs ", blob));
    }
  }
  return missing;
}

// All that is there, without the times at which jobs were collected.
std::string Everything(const std::string& directory) {
  const auto store = scheduler::OpenSqliteRecordStore(directory + "/heddle.db");
  if (!store.ok()) return store.status().ToString();
  std::string text = scheduler::Dump(store->get());
  text = std::regex_replace(text, std::regex("collected_unix_ns: [0-9]+"), "collected");
  text = std::regex_replace(text, std::regex("collected on [0-9-]+"), "collected on a day");
  const auto blobs = BlobStore::Open(directory + "/blobs");
  std::set<std::string> digests;
  for (const BlobStore::Entry& entry : (*blobs)->List()) digests.insert(entry.digest);
  for (const std::string& digest : digests) absl::StrAppend(&text, "blob ", digest, "\n");
  return text;
}

// A moment to kill at: once so many jobs are told as collected, and a while later.
struct Moment {
  int jobs = 0;
  absl::Duration later;
};

class GcKillTest : public ::testing::Test {
 protected:
  // Starts a scheduler over a copy of the data.
  void StartOver(const std::string& data) {
    std::filesystem::remove_all(cluster_.File("data"));
    std::filesystem::copy(data, cluster_.File("data"), std::filesystem::copy_options::recursive);
    // A copy would be new.
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data + "/blobs"))
      std::filesystem::last_write_time(std::filesystem::path(cluster_.File("data/blobs")) /
                                           std::filesystem::relative(entry.path(), data + "/blobs"),
                                       entry.last_write_time());
    Start();
  }
  void Start() {
    cluster_.StartScheduler();
    const absl::Status serving =
        ServiceClient(cluster_.scheduler_address()).WaitUntilServing(absl::Seconds(60));
    ASSERT_TRUE(serving.ok()) << serving << cluster_.Logs();
  }
  absl::StatusOr<v1::CollectProgress::Total> Collect(std::atomic<int>* jobs) {
    v1::CollectRequest request;
    request.set_older_than_s(3600);
    return ServiceClient(cluster_.scheduler_address()).Collect(request, [&](const auto&) {
      ++*jobs;
      return true;
    });
  }
  std::string Data() const { return cluster_.File("data"); }

  MiniCluster cluster_;
};

std::vector<Moment> Moments() {
  const char* asked = std::getenv("HEDDLE_GC_KILLS");
  std::vector<Moment> moments;
  if (asked != nullptr && std::string(asked) == "all") {
    for (int jobs = 0; jobs < kOldJobs - kCollectedBefore; ++jobs) {
      for (int i = 0; i < 10; ++i) moments.push_back({jobs, absl::Milliseconds(1) * i});
    }
    return moments;
  }
  const int count = asked == nullptr ? 20 : std::atoi(asked);
  std::mt19937 random(7);
  for (int i = 0; i < count; ++i)
    moments.push_back({static_cast<int>(random() % (kOldJobs - kCollectedBefore)),
                       absl::Microseconds(random() % 10'000)});
  return moments;
}

TEST_F(GcKillTest, NothingReferencedIsLostAndTheNextCollectionFinishes) {
  const std::string before = cluster_.File("before");
  { const OldData data(before); }
  ASSERT_FALSE(HasFatalFailure());
  const std::string referenced = Referenced(before);
  ASSERT_THAT(MissingBlobs(before), ::testing::IsEmpty());

  // What collections leave that nobody disturbs. The second one removes the old records of the jobs
  // that the first one collects.
  cluster_.StartTracker();
  StartOver(before);
  if (HasFatalFailure()) return;
  std::atomic<int> told{0};
  const auto first = Collect(&told);
  ASSERT_TRUE(first.ok()) << first.status() << cluster_.Logs();
  EXPECT_EQ(first->jobs(), kOldJobs - kCollectedBefore);
  EXPECT_GT(first->records(), 0);
  const auto second = Collect(&told);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->records() + second->records(), kRetracted);
  EXPECT_EQ(cluster_.scheduler.Terminate(), 0);
  const std::string after = Everything(Data());
  EXPECT_EQ(Referenced(Data()), referenced);

  int cut = 0, rounds = 0;
  for (const Moment& moment : Moments()) {
    SCOPED_TRACE(absl::StrCat(absl::FormatDuration(moment.later), " after job ", moment.jobs));
    StartOver(before);
    if (HasFatalFailure()) return;
    told = 0;
    std::atomic<bool> ended{false};
    std::thread killer([&] {
      while (told < moment.jobs && !ended) absl::SleepFor(absl::Microseconds(50));
      absl::SleepFor(moment.later);
      cluster_.scheduler.Kill();
    });
    const auto collected = Collect(&told);
    ended = true;
    killer.join();
    cut += !collected.ok();
    ++rounds;
    scheduler::ExpectWholeStore(Data() + "/heddle.db");
    ASSERT_EQ(Referenced(Data()), referenced);
    ASSERT_THAT(MissingBlobs(Data()), ::testing::IsEmpty());

    Start();
    if (HasFatalFailure()) return;
    for (int i = 0; i < 2; ++i) {
      const auto finished = Collect(&told);
      ASSERT_TRUE(finished.ok()) << finished.status() << cluster_.Logs();
    }
    EXPECT_EQ(cluster_.scheduler.Terminate(), 0);
    ASSERT_EQ(Everything(Data()), after);
    ASSERT_EQ(Referenced(Data()), referenced);
  }
  std::printf("%d kills, %d of them in the midst of a collection\n", rounds, cut);
  EXPECT_GE(cut, rounds / 2);
}

}  // namespace
}  // namespace heddle
