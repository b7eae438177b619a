// What users see of jobs, and how little is read for those who may not see them.
#include "scheduler/service/reads/job_snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/store/memory_record_store.h"
#include "tests/scheduler/service/gated_store.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class LoadCountingStore final : public GatedStore {
 public:
  using GatedStore::GatedStore;
  absl::StatusOr<std::vector<StoredJob>> LoadJobs(const JobSelection& selection) override {
    ++loads;
    return GatedStore::LoadJobs(selection);
  }
  int loads = 0;
};

// Finished jobs of an earlier process. Every hundredth is ada's, the others are bob's.
class JobSnapshotsTest : public ::testing::Test {
 protected:
  static constexpr int kJobs = 1200;

  JobSnapshotsTest() {
    std::vector<Batch> batches(1);
    for (int64_t id = 1; id <= kJobs; ++id) {
      JobRow row;
      row.id = id;
      row.job.set_id(JobName(id));
      row.job.mutable_spec()->set_target("llvm -mcpu=x");
      row.job.mutable_spec()->set_trials_per_task(1);
      row.job.mutable_spec()->set_user(id % 100 == 0 ? "ada" : "bob");
      row.job.set_state(v1::JOB_DONE);
      row.job.set_finished_unix_ns(1000 + id);
      batches[0].push_back(PutJob{row});
    }
    const auto applied = store_.Apply(batches);
    EXPECT_TRUE(applied.ok() && applied->front().ok());
  }
  std::vector<std::string> ListOf(const std::string& user, JobSnapshots::ListOptions options = {}) {
    options.finished_too = true;
    options.shown = [&](const std::string& owner) { return owner == user; };
    const auto page = snapshots_.List(options);
    EXPECT_TRUE(page.ok()) << page.status();
    std::vector<std::string> ids;
    for (const auto& job : page->jobs) ids.push_back(job->id());
    more_ = page->more;
    return ids;
  }

  LoadCountingStore store_{MakeMemoryRecordStore()};
  JobHistory history_{&store_};
  JobSnapshots snapshots_{&history_};
  bool more_ = false;
};

TEST_F(JobSnapshotsTest, ToTellWhoseAJobIsNoneIsLoaded) {
  EXPECT_EQ(*snapshots_.Owner("j100"), "ada");
  EXPECT_EQ(*snapshots_.Owner("j101"), "bob");
  EXPECT_TRUE(absl::IsNotFound(snapshots_.Owner(absl::StrCat("j", kJobs + 1)).status()));
  for (const char* name : {"nonsense", "j0", "j-1", "j9223372036854775807"})
    EXPECT_TRUE(absl::IsNotFound(snapshots_.Owner(name).status())) << name;
  auto here = std::make_shared<v1::Job>();  // of this process
  here->mutable_spec()->set_user("carl");
  snapshots_.Put({{JobId{kJobs + 1}, here}});
  EXPECT_EQ(*snapshots_.Owner(absl::StrCat("j", kJobs + 1)), "carl");
  EXPECT_EQ(store_.loads, 0);
}

TEST_F(JobSnapshotsTest, VersionsAreOfOneJobAndOfOneTask) {
  const auto view = [](int64_t id, int first, int second) {
    auto job = std::make_shared<v1::Job>();
    job->set_id(JobName(id));
    job->add_tasks()->set_trials(first);
    job->add_tasks()->set_trials(second);
    return std::pair<JobId, std::shared_ptr<const v1::Job>>(JobId{id}, job);
  };
  constexpr int64_t kOne = kJobs + 1, kOther = kJobs + 2;
  snapshots_.Put({view(kOne, 0, 0), view(kOther, 0, 0)});
  snapshots_.Put({view(kOne, 0, 1), view(kOther, 0, 0)});
  snapshots_.Put({view(kOne, 0, 2)});
  EXPECT_EQ(snapshots_.VersionOf(JobName(kOne)), 3);
  EXPECT_EQ(snapshots_.VersionOf(JobName(kOne), 1), 1);
  EXPECT_EQ(snapshots_.VersionOf(JobName(kOne), 2), 3);
  EXPECT_EQ(snapshots_.VersionOf(JobName(kOther)), 1);
  for (const int none : {-1, 3}) EXPECT_EQ(snapshots_.VersionOf(JobName(kOne), none), 0);
  for (const char* none : {"j1", "j9999", "nonsense"}) EXPECT_EQ(snapshots_.VersionOf(none), 0);
  EXPECT_EQ(store_.loads, 0);
}

TEST_F(JobSnapshotsTest, AJobThatIsDroppedIsReadFromTheHistory) {
  auto here = std::make_shared<v1::Job>();
  here->set_id("j5");
  snapshots_.Put({{JobId{5}, here}});
  EXPECT_FALSE(snapshots_.IsOver(JobId{5}));
  EXPECT_FALSE(snapshots_.IsOver(JobId{4})) << "it has no snapshot";
  here = std::make_shared<v1::Job>(*here);
  here->set_finished_unix_ns(7);
  snapshots_.Put({{JobId{5}, here}});
  EXPECT_TRUE(snapshots_.IsOver(JobId{5}));
  EXPECT_EQ(snapshots_.Get("j5")->job->finished_unix_ns(), 7);
  EXPECT_EQ(store_.loads, 0);
  snapshots_.Drop(JobId{5});
  EXPECT_FALSE(snapshots_.Has(JobId{5}));
  EXPECT_EQ(snapshots_.Get("j5")->job->finished_unix_ns(), 1005);
  EXPECT_EQ(snapshots_.Get("j5")->version, 0);
}

TEST_F(JobSnapshotsTest, AListLoadsOnlyWhatItShows) {
  EXPECT_THAT(ListOf("nobody"), SizeIs(0));
  EXPECT_EQ(store_.loads, 0);
  EXPECT_THAT(ListOf("ada"), SizeIs(kJobs / 100));
  EXPECT_FALSE(more_);
  EXPECT_EQ(store_.loads, kJobs / 100);
}

TEST_F(JobSnapshotsTest, APageIsCutAndGoesOnWhereItEnded) {
  JobSnapshots::ListOptions options;
  options.max_jobs = 5;
  EXPECT_THAT(ListOf("ada", options), ElementsAre("j1200", "j1100", "j1000", "j900", "j800"));
  EXPECT_TRUE(more_);
  options.before = JobId{800};
  EXPECT_THAT(ListOf("ada", options), ElementsAre("j700", "j600", "j500", "j400", "j300"));
  EXPECT_TRUE(more_);
  options.before = JobId{300};
  EXPECT_THAT(ListOf("ada", options), ElementsAre("j200", "j100"));
  EXPECT_FALSE(more_);
  // A job of this process lies among them by its id, and takes the place of what the store has.
  auto here = std::make_shared<v1::Job>();
  here->set_id("j150");
  here->mutable_spec()->set_user("ada");
  snapshots_.Put({{JobId{150}, here}});
  EXPECT_THAT(ListOf("ada", options), ElementsAre("j200", "j150", "j100"));
}

// It is kept for a while, but not beyond what changes it.
TEST_F(JobSnapshotsTest, ACollectedJobIsReadAnew) {
  constexpr int kMany = 5000;
  Batch many;
  TaskRow task;
  task.job = 7;
  task.info.set_key("a");
  many.push_back(PutTask{task});
  for (int i = 1; i <= kMany; ++i) many.push_back(InsertCandidate{{7, i, 0, "trace", ""}});
  ASSERT_TRUE(store_.Apply({many})->front().ok());
  ASSERT_EQ((*history_.Get(JobId{7}))->collected_unix_ns(), 0);
  ASSERT_TRUE(history_.Get(JobId{7}).ok());
  ASSERT_EQ(store_.loads, 1) << "the second time it is kept";
  ASSERT_TRUE(store_.Apply({Batch{CollectJob{7, 1000}}})->front().ok());
  history_.Forget(JobId{7});
  EXPECT_EQ((*history_.Get(JobId{7}))->collected_unix_ns(), 1000);
}

}  // namespace
}  // namespace heddle::scheduler
