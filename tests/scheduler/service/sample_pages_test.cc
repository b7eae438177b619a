// The pages of all tasks' transfer samples, as blobs.
#include "scheduler/service/stages/sample_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/mapped_file.h"
#include "base/splitmix.h"
#include "scheduler/store/sqlite_record_store.h"
#include "tests/scheduler/service/service_fixture.h"
#include "tests/scheduler/store/record_store_fixture.h"

namespace heddle::scheduler {
namespace {

class SamplePagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = TempDirectory();
    store_ = *OpenSqliteRecordStore(absl::StrCat(directory_, "/db"));
    blobs_ = *BlobStore::Open(absl::StrCat(directory_, "/blobs"));
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(directory_);
  }

  static std::string KeyOf(int task) {
    return absl::StrFormat("%016x", SplitMix64(static_cast<uint64_t>(task)));
  }
  // Each of the tasks learns on each target and device key.
  void Learn(int from, int to) {
    Batch batch = {PutJob{MakeJob(1)}};
    for (int task = from; task < to; ++task) {
      TaskRow row = MakeTask(1, task);
      row.info.set_key(KeyOf(task));
      batch.push_back(PutTask{row});
      for (const auto& [target, device] :
           {std::pair<std::string, std::string>{"llvm -mcpu=x", "dev"},
            {"llvm -mcpu=x -threads=2", "dev"},
            {"llvm -mcpu=y", "another"},
            {"cuda -arch=sm_90", "gpu"}}) {
        PutLearned put{1, task, {}, {KeyOf(task), target, device}, {}, task};
        put.transfer_samples.set_samples(absl::StrCat(task, " ", target, " ", device));
        put.transfer_samples.set_measured(10);
        batch.push_back(put);
      }
    }
    const auto applied = store_->Apply({batch});
    ASSERT_TRUE(applied.ok() && applied->front().ok());
  }
  SamplePages Make(int most = kMostPagedTasks) {
    const auto made =
        MakeSamplePages(store_.get(), {"the search's", "llvm -mcpu=x", "dev"}, most, blobs_.get());
    EXPECT_TRUE(made.ok()) << made.status();
    return *made;
  }
  v1::SamplePage Read(const SamplePages::Page& page) const {
    v1::SamplePage read;
    const auto bytes = MapFile(blobs_->PathOf(page.ref.sha256()));
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (!bytes.ok()) return read;
    EXPECT_EQ(static_cast<int64_t>((*bytes)->size()), page.bytes);
    EXPECT_TRUE(read.ParseFromArray((*bytes)->data(), static_cast<int>((*bytes)->size())));
    return read;
  }
  static std::set<std::string> Digests(const SamplePages& pages) {
    std::set<std::string> digests;
    for (const SamplePages::Page& page : pages.pages) digests.insert(page.ref.sha256());
    return digests;
  }

  std::string directory_;
  std::unique_ptr<RecordStore> store_;
  std::unique_ptr<BlobStore> blobs_;
};

TEST_F(SamplePagesTest, HoldEachTaskOnceWithItsWeight) {
  Learn(0, 300);
  const SamplePages made = Make();
  EXPECT_EQ(made.tasks, 900) << "three targets of the kind";
  EXPECT_EQ(made.measured, 9000);
  std::map<std::string, double> weights;
  for (const SamplePages::Page& page : made.pages) {
    const v1::SamplePage read = Read(page);
    EXPECT_LE(read.samples_size(), 64);
    for (const std::string& samples : read.samples())
      EXPECT_TRUE(weights.emplace(samples, page.ref.weight()).second) << samples;
  }
  EXPECT_EQ(weights.size(), 900u);
  EXPECT_EQ(weights.at("7 llvm -mcpu=x dev"), 1);
  EXPECT_EQ(weights.at("7 llvm -mcpu=x -threads=2 dev"), 0.5);
  EXPECT_EQ(weights.at("7 llvm -mcpu=y another"), 0.25);

  const SamplePages few = Make(100);
  EXPECT_EQ(few.tasks, 100);
  const SamplePages none = *MakeSamplePages(store_.get(), {"k", "none", "dev"}, 9, blobs_.get());
  EXPECT_EQ(none.tasks, 0);
  EXPECT_TRUE(none.pages.empty());
}

// What new tasks add is sent to workers, and what there was before is not sent again.
TEST_F(SamplePagesTest, StayAsTheyAreWhenTasksAreAdded) {
  Learn(0, 300);
  const std::set<std::string> before = Digests(Make());
  EXPECT_EQ(Digests(Make()), before);
  Learn(300, 310);
  const std::set<std::string> after = Digests(Make());
  size_t kept = 0;
  for (const std::string& digest : before) kept += after.count(digest);
  EXPECT_GE(kept + 3, before.size()) << "at most one page of each target changes";
  EXPECT_GT(after.size(), kept);
}

TEST_F(SamplePagesTest, DamagedPagesAreMadeAnew) {
  Learn(0, 100);
  const SamplePages made = Make();
  ASSERT_GE(made.pages.size(), 3u);
  std::filesystem::resize_file(blobs_->PathOf(made.pages[0].ref.sha256()), 5);
  std::filesystem::remove(blobs_->PathOf(made.pages[1].ref.sha256()));
  {
    std::ofstream third(blobs_->PathOf(made.pages[2].ref.sha256()), std::ios::binary);
    third << std::string(static_cast<size_t>(made.pages[2].bytes), 'x');
  }
  const SamplePages again = Make();
  EXPECT_EQ(Digests(again), Digests(made));
  int tasks = 0;
  for (const SamplePages::Page& page : again.pages) tasks += Read(page).samples_size();
  EXPECT_EQ(tasks, 300);
}

// A service whose store has transfer samples of forty tasks.
class ManyTasksTest : public ServiceTest {
 protected:
  std::unique_ptr<RecordStore> Wrap(std::unique_ptr<RecordStore> store) override {
    Batch batch = {PutJob{MakeJob(1, v1::JOB_DONE)}};
    for (int task = 0; task < 40; ++task) {
      batch.push_back(PutTask{MakeTask(1, task)});
      PutLearned put{1, task, {}, {Key(task), "llvm -mcpu=x", "another device"}, {}, task};
      put.transfer_samples.set_samples(absl::StrCat("of ", task));
      put.transfer_samples.set_measured(10);
      batch.push_back(put);
    }
    const auto applied = store->Apply({batch});
    EXPECT_TRUE(applied.ok() && applied->front().ok());
    return store;
  }
};

TEST_F(ManyTasksTest, OneSearchLearnsFromAllForTheOthers) {
  EXPECT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  EXPECT_EQ(cluster_.worker.fits_to_all, 1) << "the job's other task begins with that, or without";
  const auto models = store_->AllTransferModels();
  ASSERT_TRUE(models.ok() && models->size() == 1);
  const v1::TransferModel& model = models->begin()->second;
  EXPECT_EQ(model.model(), "of all");
  EXPECT_EQ(model.tasks(), 40);
  EXPECT_EQ(model.measured(), 400);
  EXPECT_EQ(model.teachers_size(), 0);
  EXPECT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  EXPECT_EQ(cluster_.worker.fits_to_all, 1) << "that is fresh";
}

TEST(FitsToAllTest, RunOneAtATimeAndPauseAfterAFailure) {
  FitsToAll fits;
  const TransferModelId id{"t", "dev", "annealing"};
  auto first = fits.Take(id);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(fits.Take(id), nullptr);
  EXPECT_NE(fits.Take({"t", "dev", "evolutionary"}), nullptr) << "another kind";
  first->Succeed();
  first.reset();
  auto second = fits.Take(id);
  ASSERT_NE(second, nullptr);
  second.reset();
  EXPECT_EQ(fits.Take(id), nullptr) << "it failed";
}

}  // namespace
}  // namespace heddle::scheduler
