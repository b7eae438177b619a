// What the stores read for the page: samples of many trials, the latest stages of all jobs, tasks by a
// part of their name.
#include "tests/scheduler/store/all_stores.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PageReadsTest : public RecordStoreTest {
 protected:
  static WorkloadId Id(int task) { return {Key(task), "llvm -mcpu=x", "dev"}; }
  TrialSample Sample(int task, int64_t most) {
    auto sample = store_->SampleTrials(Id(task), most);
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.ok() ? *sample : TrialSample();
  }
  static std::vector<int64_t> Numbers(const TrialSample& sample, bool fastest_only = false) {
    std::vector<int64_t> numbers;
    for (const TrialPoint& point : sample.points) {
      if (point.fastest_so_far || !fastest_only) numbers.push_back(point.number);
    }
    return numbers;
  }
  std::vector<std::string> Keys(const std::string& text, const std::string& after = "",
                                int64_t limit = 100) {
    auto found = store_->FindWorkloads(text, after, limit);
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> keys;
    for (const WorkloadName& name : *found) keys.push_back(name.key);
    return keys;
  }
};

TEST_P(PageReadsTest, TrialsComeInTheirOrder) {
  EXPECT_EQ(Sample(0, 10).all, 0);
  AddJob(1, 1, 8);
  const std::vector<double> medians = {50, 0, 40, 45, 30, 35, 30, 60};
  for (size_t i = 0; i < medians.size(); ++i)
    ASSERT_TRUE(Apply({MakeRecord(1, static_cast<int64_t>(i) + 1, 0, medians[i])}).ok());
  const TrialSample all = Sample(0, 100);
  EXPECT_EQ(all.all, 8);
  EXPECT_THAT(Numbers(all), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(Numbers(all, true), ElementsAre(1, 3, 5));
  EXPECT_EQ(all.points[0].origin, "default");
  EXPECT_EQ(all.points[1].origin, "random");
  EXPECT_EQ(all.points[1].median_ns, 0) << "it failed";
  EXPECT_EQ(all.points[2].median_ns, 40);
  EXPECT_EQ(all.points[2].job, "j1");
  EXPECT_EQ(all.points[2].created_unix_ns, 5003);
  const TrialSample few = Sample(0, 2);
  EXPECT_EQ(few.all, 8);
  EXPECT_THAT(Numbers(few), ElementsAre(1, 3, 5)) << "the fifth is also the second of two";
  EXPECT_EQ(Sample(1, 10).all, 0) << "another task";
  // The id leads to the whole record.
  v1::RecordQuery query;
  query.set_id(all.points[4].id);
  EXPECT_EQ(Query(query).front().trace(), "trace 5");
}

TEST_P(PageReadsTest, RetractedAndLostTrialsAreLeftOut) {
  AddJob(1, 1, 5);
  for (int i = 1; i <= 5; ++i) ASSERT_TRUE(Apply({MakeRecord(1, i, 0, 100 - i)}).ok());
  InsertRecord lost = MakeRecord(1, 6, 0, 0);
  lost.record.mutable_measurement()->set_outcome(v1::OUTCOME_LOST);
  ASSERT_TRUE(Apply({InsertCandidate{MakeCandidate(1, 6, 0)}, lost}).ok());
  EXPECT_THAT(Numbers(Sample(0, 100), true), ElementsAre(1, 2, 3, 4, 5));
  const auto retract = [&](const std::vector<int64_t>& ids) {
    RetractRecords change{ids, {}};
    change.retraction.set_reason("the clock was wrong");
    change.retraction.set_unix_ns(9000);
    ASSERT_TRUE(Apply({change}).ok());
  };
  const TrialSample before = Sample(0, 100);
  // The fastest ones do not hold.
  retract({before.points[3].id, before.points[4].id});
  const TrialSample sample = Sample(0, 100);
  EXPECT_EQ(sample.all, 3);
  EXPECT_THAT(Numbers(sample, true), ElementsAre(1, 2, 3));
  retract({sample.points[0].id, sample.points[1].id, sample.points[2].id});
  EXPECT_THAT(Sample(0, 100).points, IsEmpty());
}

TEST_P(PageReadsTest, ImportedRecordsAreTrialsWithoutAnOriginAndAJobOfHere) {
  AddJob(1);
  InsertRecord imported = MakeRecord(77, 1, 0, 20);
  imported.imported = true;
  imported.record.set_imported_by("user/ann of vision");
  ASSERT_TRUE(Apply({imported}).ok());
  const TrialSample sample = Sample(0, 10);
  ASSERT_THAT(sample.points, SizeIs(1));
  EXPECT_EQ(sample.points[0].origin, "");
  EXPECT_EQ(sample.points[0].job, "") << "the one that made it is of another service";
}

TEST_P(PageReadsTest, LatestStagesOfAllJobs) {
  AddJob(1);
  AddJob(2);
  const auto stage = [](int64_t attempt, const std::string& job, int64_t start, int64_t end) {
    StageRow row;
    row.span.set_job(job);
    row.span.set_kind(v1::STAGE_BUILD);
    row.span.set_attempt_id(attempt);
    row.span.set_start_unix_ns(start);
    row.span.set_end_unix_ns(end);
    return PutStage{row};
  };
  ASSERT_TRUE(Apply({stage(1, "j1", 10, 20), stage(2, "j2", 15, 40), stage(3, "j1", 5, 0),
                     stage(4, "j2", 50, 60)})
                  .ok());
  const auto attempts = [&](int64_t first, int64_t limit) {
    auto spans = store_->LatestStages(first, limit);
    EXPECT_TRUE(spans.ok()) << spans.status();
    std::vector<int64_t> ids;
    for (const v1::StageSpan& span : *spans) ids.push_back(span.attempt_id());
    return ids;
  };
  EXPECT_THAT(attempts(0, 10), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(attempts(2, 10), ElementsAre(2, 3, 4));
  EXPECT_THAT(attempts(0, 2), ElementsAre(3, 4));
  EXPECT_THAT(attempts(4, 2), ElementsAre(4));
  EXPECT_THAT(attempts(5, 2), ElementsAre());
}

TEST_P(PageReadsTest, DevicesAreComparedByTheirFastestRecords) {
  AddJob(1, 4, 12);
  int64_t candidate = 0;
  const auto add = [&](int task, const std::string& device, const std::string& target, double ns) {
    InsertRecord insert = MakeRecord(1, ++candidate, task, ns);
    insert.record.set_device_key(device);
    insert.record.set_target(target);
    ASSERT_TRUE(Apply({insert}).ok());
  };
  add(0, "old", "llvm -mcpu=x", 90);
  add(0, "old", "llvm -mcpu=x -threads=2", 40);
  add(0, "old", "llvm -mcpu=x", 60);
  add(0, "new", "llvm -mcpu=y", 30);
  add(0, "new", "llvm -mcpu=y", 0);  // it failed
  add(1, "old", "llvm -mcpu=x", 10);
  add(1, "third", "llvm -mcpu=x", 10);  // of the new one there is none
  add(2, "old", "llvm -mcpu=x", 0);     // only a failed one
  add(2, "new", "llvm -mcpu=y", 7);
  add(3, "old", "llvm -mcpu=x", 20);
  add(3, "new", "llvm -mcpu=y", 25);
  const auto compare = [&](const std::string& a, const std::string& b, int64_t limit = 100) {
    const auto found = store_->CompareDevices(a, b, limit);
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> lines;
    for (const DevicePair& pair : *found) {
      lines.push_back(absl::StrCat(pair.name.key, " ", pair.name.label, ": ", pair.a.median_ns, " ",
                                   pair.a.target, ", ", pair.b.median_ns, " ", pair.b.target));
    }
    return lines;
  };
  const std::string third = Key(3) + " conv: 20 llvm -mcpu=x, 25 llvm -mcpu=y";
  EXPECT_THAT(compare("old", "new"),
              ElementsAre(Key(0) + " conv: 40 llvm -mcpu=x -threads=2, 30 llvm -mcpu=y", third));
  EXPECT_THAT(compare("new", "old"),
              ElementsAre(Key(0) + " conv: 30 llvm -mcpu=y, 40 llvm -mcpu=x -threads=2",
                          Key(3) + " conv: 25 llvm -mcpu=y, 20 llvm -mcpu=x"));
  EXPECT_THAT(compare("old", "new", 1), SizeIs(1)) << "only one workload is looked at";
  EXPECT_THAT(compare("old", "nowhere"), IsEmpty());
  // What was retracted does not count.
  v1::RecordQuery query;
  query.set_workload_key(Key(0));
  query.set_target("llvm -mcpu=x -threads=2");
  RetractRecords change{{Query(query).front().id()}, {}};
  change.retraction.set_reason("the clock was wrong");
  change.retraction.set_unix_ns(9000);
  ASSERT_TRUE(Apply({change}).ok());
  EXPECT_THAT(compare("old", "new"),
              ElementsAre(Key(0) + " conv: 60 llvm -mcpu=x, 30 llvm -mcpu=y", third));
}

TEST_P(PageReadsTest, WorkloadsAreFoundByLabelAndKey) {
  AddJob(1, 3, 3);
  for (int task = 0; task < 2; ++task) {
    InsertRecord insert = MakeRecord(1, task + 1, task, 10);
    ASSERT_TRUE(Apply({insert}).ok());
  }
  EXPECT_THAT(Keys(""), ElementsAre(Key(0), Key(1))) << "the third has no records";
  EXPECT_THAT(Keys("CONV"), ElementsAre(Key(0), Key(1)));
  EXPECT_THAT(Keys("on"), ElementsAre(Key(0), Key(1))) << "inside of a label";
  EXPECT_THAT(Keys("%"), IsEmpty()) << "no pattern";
  EXPECT_THAT(Keys("conv_"), IsEmpty());
  EXPECT_THAT(Keys(Key(1)), ElementsAre(Key(1)));
  EXPECT_THAT(Keys("00000000"), ElementsAre(Key(0), Key(1)));
  EXPECT_THAT(Keys("", Key(0)), ElementsAre(Key(1)));
  EXPECT_THAT(Keys("", "", 1), ElementsAre(Key(0)));
}

INSTANTIATE_TEST_SUITE_P(Stores, PageReadsTest, kStores, StoreName);

}  // namespace
}  // namespace heddle::scheduler
