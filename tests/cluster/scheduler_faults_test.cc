// A real scheduler between a tracker and a worker that answer at once (tests/scheduler/service/fake_cluster.h), so
// that thousands of faults and of short jobs fit into minutes. The scheduler is killed at random moments,
// its disk is filled, answers of tracker and worker are lost, and the tracker forgets its state. An
// observer submits jobs and asks for them all the time. Nothing that it was told may be lost, doubled or
// taken back, and no record may be stored under an older fencing token than one before it.
//
// The same observer watches schedulers with planted bugs (planted_bugs.py), and must find each.
//
// HEDDLE_SCHEDULER_KILLS and HEDDLE_DISK_FILLS set how many faults there are, HEDDLE_FAULTS_SEED the seed.
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/service_client.h"
#include "proto/job_states.h"
#include "tests/adversary/store_checks.h"
#include "tests/cluster/history.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/cluster/small_job.h"
#include "tests/places.h"
#include "tests/scheduler/service/fake_cluster.h"

namespace heddle {
namespace {

using client::ServiceClient;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr size_t kOpenJobs = 3;  // that the observer keeps going
// Waits are counted in answers of the scheduler, since a busy machine slows these as it slows
// everything else. A scheduler that does not answer at all is found by the time limit of this test.
constexpr int64_t kStill = 100'000;                  // while no job comes further; a minute or two
constexpr int kMostAsked = 500;                      // until a full disk is met
constexpr int64_t kForgotten = 2000;                 // until a measurement under an old token
constexpr absl::Duration kHangs = absl::Minutes(2);  // without any answer
constexpr int kLeaseSeconds = 1;
constexpr int kTrials = 6;  // of a task
// Of a task, where the disk is filled. SQLite writes into space that its log has already, so that a short
// job may end on a full disk.
constexpr int kTrialsOfLongJobs = 300;
constexpr int kLogRounds = 100;                    // whose logs are kept
constexpr uint64_t kTokensOfATracker = 1'000'000;  // more than one grants here
constexpr char kDiskSize[] = "size=128m";  // the scheduler keeps 64 MiB of it free for its database
constexpr size_t kDiskBytes = size_t{128} << 20;

// Submits jobs and asks for them on a thread of its own, and keeps the history of what it is told.
class Observer {
 public:
  Observer(const std::string& address, int trials_per_task)
      : client_(address), trials_per_task_(trials_per_task), thread_([this] { Loop(); }) {}
  ~Observer() {
    ended_ = true;
    Join();
  }

  bool Violated() {
    absl::MutexLock lock(&mutex_);
    return !history_.violations().empty();
  }
  // Stops submitting. Waits for the unfinished jobs while they make progress and the scheduler runs.
  // Returns what contradicts what was told before.
  std::vector<std::string> Finish(const std::function<bool()>& scheduler_runs) {
    draining_ = true;
    while (!ended_ && answers_ - answers_at_change_ < kStill && scheduler_runs())
      absl::SleepFor(absl::Milliseconds(5));
    ended_ = true;
    Join();
    LookAtTokens();
    absl::MutexLock lock(&mutex_);
    std::vector<std::string> violations = history_.violations();
    for (const std::string& job : open_) violations.push_back(absl::StrCat(job, " never ended"));
    return violations;
  }
  // How often the scheduler has answered, refusals included.
  int64_t answers() const { return answers_; }
  int jobs() const { return jobs_; }
  int64_t trials() const { return trials_; }

 private:
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  void Loop() {
    while (!ended_) {
      if (!draining_ && open_.size() < kOpenJobs) Submit();
      for (size_t i = 0; i < open_.size() && !ended_;) {
        if (Look(open_[i])) {
          open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      if (draining_ && open_.empty()) ended_ = true;
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  void Submit() {
    v1::JobSpec spec;
    spec.set_name("model");
    spec.set_target("llvm -mcpu=x");
    spec.set_trials_per_task(trials_per_task_);
    spec.set_batch(3);
    spec.set_allocation("uniform");
    spec.set_plan_search("off");
    spec.set_no_comparison(true);
    spec.set_force(true);
    const auto job = client_.Submit(spec, "a model");
    CountAnswer(job.status());
    if (!job.ok()) return;  // not told: it may be there or not
    ++jobs_;
    answers_at_change_ = answers_.load();
    open_.push_back(*job);
    absl::MutexLock lock(&mutex_);
    history_.Submitted(*job);
  }

  void CountAnswer(const absl::Status& status) {
    answers_ += !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status);
  }

  // Whether the job has ended, and all of it was seen.
  bool Look(const std::string& job) {
    const auto now = client_.GetJob(job);
    CountAnswer(now.status());
    if (absl::IsNotFound(now.status())) {
      absl::MutexLock lock(&mutex_);
      history_.Missing(job);
      return true;
    }
    if (!now.ok()) return false;
    const bool final = IsFinal(now->state());
    const std::pair place(now->state(), now->trials());
    if (std::exchange(places_[job], place) != place) answers_at_change_ = answers_.load();
    absl::StatusOr<std::vector<v1::Record>> records = absl::UnavailableError("not asked");
    if (final || ++looks_ % 4 == 0) records = RecordsOf(client_, job);
    absl::MutexLock lock(&mutex_);
    history_.Saw(*now);
    if (!records.ok()) return false;
    if (!final) {
      history_.SawRecords(job, *records);
      return false;
    }
    history_.Ended(*now, *records);
    trials_ += static_cast<int64_t>(records->size());
    return true;
  }

  // The fake worker names the token of each measurement.
  void LookAtTokens() {
    auto records = RecordsOf(client_, "");
    EXPECT_TRUE(records.ok()) << records.status();
    if (!records.ok()) return;
    std::sort(records->begin(), records->end(),
              [](const v1::Record& a, const v1::Record& b) { return a.id() < b.id(); });
    absl::MutexLock lock(&mutex_);
    for (const v1::Record& record : *records) {
      const v1::Evidence& evidence = record.measurement().evidence();
      absl::string_view text = evidence.toolchain();
      uint64_t token = 0;
      if (absl::ConsumePrefix(&text, "token ") && absl::SimpleAtoi(text, &token))
        history_.Stored(evidence.slot(), token);
    }
  }

  ServiceClient client_;
  const int trials_per_task_;
  absl::Mutex mutex_;
  History history_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> open_;                               // of the thread, until it has ended
  std::map<std::string, std::pair<v1::JobState, int>> places_;  // how far each job has come
  int looks_ = 0;
  std::atomic<int> jobs_{0};
  std::atomic<int64_t> answers_{0};
  std::atomic<int64_t> answers_at_change_{0};  // when a job came further
  std::atomic<int64_t> trials_{0};             // of ended jobs
  std::atomic<bool> draining_{false}, ended_{false};
  std::thread thread_;
};

// A disk of its own for the scheduler, which a test can fill. Only the thread that makes it, and the
// processes that this thread starts, see it, so that nothing of it is left.
class SmallDisk {
 public:
  ~SmallDisk() {
    if (!path_.empty()) umount2(path_.c_str(), MNT_DETACH);
  }
  // False: this host does not let the test have one; errno says why.
  bool Mount(const std::string& path) {
    std::filesystem::create_directories(path);
    if (unshare(CLONE_NEWNS) != 0) return false;
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    if (mount("heddle-test", path.c_str(), "tmpfs", 0, kDiskSize) != 0) return false;
    path_ = path;
    return true;
  }
  // Until not one byte fits.
  void Fill() {
    const int file =
        open((path_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ASSERT_GE(file, 0) << strerror(errno);
    const std::string block(1 << 20, 'x');
    size_t written = 0;
    for (size_t size = block.size(); size > 0 && written <= kDiskBytes; size /= 2) {
      for (ssize_t got = 1; got > 0 && written <= kDiskBytes; written += std::max<ssize_t>(0, got))
        got = write(file, block.data(), size);
    }
    EXPECT_EQ(errno, ENOSPC);
    close(file);
  }
  void MakeRoom() { std::filesystem::remove(path_ + "/filler"); }

 private:
  std::string path_;
};

class SchedulerFaults {
 public:
  explicit SchedulerFaults(const std::string& scheduler = "")
      : random_(static_cast<unsigned>(FromEnvironment("HEDDLE_FAULTS_SEED", 1))),
        cluster_({.lease_s = kLeaseSeconds,
                  .tracker_address = fake_.tracker_address(),
                  .scheduler = scheduler}) {
    fake_.behaviour.candidate_ms = 1;
    fake_.tracker.real_leases = true;  // those of killed schedulers must end
  }

  // Errno of what keeps the test from having a disk of its own; 0: it has one.
  int UseSmallDisk() {
    disk_.emplace();
    return disk_->Mount(Data()) ? 0 : errno;
  }

  // Makes so many faults, fewer if the observer finds something wrong.
  void Run(int rounds) {
    Start();
    observer_.emplace(cluster_.scheduler_address(), disk_ ? kTrialsOfLongJobs : kTrials);
    for (int i = 0; i < rounds && !observer_->Violated() && !::testing::Test::HasFailure(); ++i) {
      if (i % kLogRounds == kLogRounds - 1)
        std::filesystem::resize_file(cluster_.File("scheduler.log"), 0);
      TroubleAround();
      // In every other round, some answers besides, so that a scheduler that gets little of the time
      // does something. In the others it may be killed while it starts.
      const int64_t answers =
          observer_->answers() + (i % 2 == 0 ? static_cast<int64_t>(random_() % 30) : 0);
      absl::SleepFor(absl::Milliseconds(random_() % 300));
      WaitUntil([&] { return observer_->answers() >= answers; });
      const bool killed = disk_ ? FillDisk() : true;
      ASSERT_TRUE(cluster_.scheduler.Running()) << "it ended by itself" << cluster_.Logs();
      if (killed) {
        cluster_.scheduler.Kill();
        ++kills_;
        if (disk_) disk_->MakeRoom();
        Start();
      }
    }
  }

  // Ends all faults and waits for all jobs. What the observer found.
  std::vector<std::string> Finish() {
    fake_.tracker.SetNextToken(tokens_ += kTokensOfATracker);
    std::vector<std::string> found =
        observer_->Finish([this] { return cluster_.scheduler.Running(); });
    EXPECT_EQ(cluster_.scheduler.Terminate(), 0) << cluster_.Logs();
    std::printf("%d kills, %d fills of the disk, %d jobs, %lld trials, %zu violations\n", kills_,
                fills_, observer_->jobs(), static_cast<long long>(observer_->trials()),
                found.size());
    return found;
  }
  std::string Data() const { return cluster_.File("data"); }
  std::string Logs() const { return cluster_.Logs(); }
  bool told_of_a_full_disk() const { return told_of_a_full_disk_; }

 private:
  void Start() {
    cluster_.StartScheduler();
    ASSERT_NE(cluster_.scheduler_address(), "") << cluster_.Logs();
  }

  template <typename Condition>
  void WaitUntil(const Condition& condition) {
    int64_t answers = observer_->answers();
    absl::Time answered = absl::Now();
    while (!condition() && cluster_.scheduler.Running()) {
      absl::SleepFor(absl::Milliseconds(1));
      if (observer_->answers() != answers) {
        answers = observer_->answers();
        answered = absl::Now();
      }
      ASSERT_LT(absl::Now() - answered, kHangs) << "it runs and does not answer" << cluster_.Logs();
    }
  }

  // Something that others do to the scheduler.
  void TroubleAround() {
    if (tokens_are_old_) fake_.tracker.SetNextToken(tokens_ += kTokensOfATracker);
    tokens_are_old_ = false;
    switch (random_() % 8) {
      case 0:
        fake_.tracker.lose_grants = 1;
        break;
      case 1:
        fake_.tracker.lose_releases = 1;
        break;
      case 2:
        fake_.behaviour.break_profiles = 1;
        break;
      case 3:
        fake_.behaviour.refuse_stages = 1;
        break;
      case 4:
        fake_.tracker.SetNextToken(1);  // it has forgotten its state
        tokens_are_old_ = true;
        WaitUntil([&, grants = fake_.tracker.grants(), trials = fake_.worker.trials.load(),
                   answers = observer_->answers()] {
          return (fake_.tracker.grants() > grants && fake_.worker.trials > trials) ||
                 observer_->answers() > answers + kForgotten;
        });
        break;
      default:
        break;
    }
  }

  // Whether the scheduler is to be killed while the disk is full. Otherwise there is room again.
  bool FillDisk() {
    disk_->Fill();
    ++fills_;
    absl::SleepFor(absl::Milliseconds(20 + random_() % 100));
    // At least once, the disk stays full until a write has met it. Where all jobs end before,
    // another time.
    for (int asked = 0; !told_of_a_full_disk_ && asked < kMostAsked; ++asked) {
      if (!AskForAFullDisk()) break;
    }
    if (random_() % 2 == 0) return true;
    disk_->MakeRoom();
    return false;
  }

  // Whether there are jobs that may still meet it.
  bool AskForAFullDisk() {
    const auto jobs = ServiceClient(cluster_.scheduler_address()).ListJobs(/*all=*/false);
    if (!jobs.ok()) return cluster_.scheduler.Running();
    for (const v1::Job& job : *jobs) {
      if (job.reason().find("disk of the database is full") != std::string::npos)
        told_of_a_full_disk_ = true;
    }
    absl::SleepFor(absl::Milliseconds(20));
    return !jobs->empty();
  }

  std::mt19937 random_;
  scheduler::FakeCluster fake_;
  MiniCluster cluster_;
  std::optional<SmallDisk> disk_;  // goes before the folder in which it is
  std::optional<Observer> observer_;
  uint64_t tokens_ = kTokensOfATracker;
  bool tokens_are_old_ = false, told_of_a_full_disk_ = false;
  int kills_ = 0, fills_ = 0;
};

TEST(SchedulerFaultsTest, KillsLoseNothing) {
  SchedulerFaults faults;
  faults.Run(FromEnvironment("HEDDLE_SCHEDULER_KILLS", 25));
  if (::testing::Test::HasFatalFailure()) return;
  EXPECT_THAT(faults.Finish(), IsEmpty()) << faults.Logs();
  scheduler::ExpectWholeStore(faults.Data() + "/heddle.db");
}

TEST(SchedulerFaultsTest, AFullDiskLosesNothing) {
  SchedulerFaults faults;
  if (const int why = faults.UseSmallDisk(); why != 0)
    GTEST_SKIP() << "this test needs a tmpfs of its own, so it has to run as root: "
                 << strerror(why);
  faults.Run(FromEnvironment("HEDDLE_DISK_FILLS", 10));
  if (::testing::Test::HasFatalFailure()) return;
  EXPECT_THAT(faults.Finish(), IsEmpty()) << faults.Logs();
  EXPECT_TRUE(faults.told_of_a_full_disk()) << "no write met the full disk";
  scheduler::ExpectWholeStore(faults.Data() + "/heddle.db");
}

// ---- the observer itself ----

std::string FoundIn(const std::string& scheduler, int rounds) {
  SchedulerFaults faults(scheduler);
  faults.Run(rounds);
  return absl::StrJoin(faults.Finish(), "\n");
}

TEST(PlantedBugs, AFenceThatIsNotCheckedIsFound) {
  // The tracker forgets its state in one of eight rounds. Records are looked at when all are over.
  EXPECT_THAT(FoundIn(HEDDLE_BIN_DIR "/heddle-scheduler-without-fence", 40),
              ::testing::HasSubstr("a stale record"));
}

TEST(PlantedBugs, ATrialThatIsShownBeforeItIsDurableIsFound) {
  EXPECT_THAT(FoundIn(HEDDLE_BIN_DIR "/heddle-scheduler-shows-too-early", 300), Not(IsEmpty()));
}

}  // namespace
}  // namespace heddle
