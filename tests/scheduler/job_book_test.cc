// What the scheduler knows of a job beyond what decisions need, and what users see of it.
#include "scheduler/job_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "scheduler/describe.h"
#include "scheduler/memory_record_store.h"
#include "scheduler/stage_orders.h"
#include "tests/scheduler/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;

class DeadlineWarningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    v1::JobSpec spec;
    spec.set_target("llvm -mcpu=a");
    spec.set_trials_per_task(1);
    spec.set_deadline_unix_ns(absl::ToUnixNanos(now_ + absl::Minutes(10)));
    Payload payload;
    payload.submitted.emplace();
    payload.submitted->id = 1;
    *payload.submitted->job.mutable_spec() = spec;
    Feed(JobSubmitted{id_, *JobBook::ParamsFrom(spec, now_, now_)}, payload);
  }
  void Feed(const Event& event, const Payload& payload = {}) {
    const std::vector<Decision> decisions = dispatcher_.Step(event, now_);
    book_.Absorb(dispatcher_, event, payload, decisions, now_, now_);
  }
  std::string Estimate(bool late, int minutes) {
    return DescribeEstimate(*dispatcher_.FindJob(id_), {id_, late, now_ + absl::Minutes(minutes)},
                            now_, now_);
  }
  std::vector<std::string> Warnings() {
    const v1::Job view = book_.View(dispatcher_, id_, now_);
    return {view.warnings().begin(), view.warnings().end()};
  }

  const JobId id_{1};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  Dispatcher dispatcher_{*MakePolicy("round_robin")};
  JobBook book_;
};

TEST_F(DeadlineWarningTest, IsOneAndTheLatest) {
  book_.AddWarnings(id_, {"a pass was left out"});
  book_.SetDeadlineWarning(id_, Estimate(true, 12));
  const std::string later = Estimate(true, 20);
  EXPECT_THAT(later, ::testing::HasSubstr("10m late"));
  book_.SetDeadlineWarning(id_, later);
  EXPECT_THAT(Warnings(), ElementsAre("a pass was left out", later));
}

TEST_F(DeadlineWarningTest, IsOneAfterARestart) {
  book_.SetDeadlineWarning(id_, Estimate(true, 12));
  StoredJob stored;
  stored.row = book_.data(id_).row;
  book_ = JobBook();
  book_.Load(stored, now_, now_);
  const std::string now = Estimate(true, 15);
  book_.SetDeadlineWarning(id_, now);
  EXPECT_THAT(Warnings(), ElementsAre(now));
}

// What the job's line says about its deadline and what its warning says go by the same estimate.
TEST_F(DeadlineWarningTest, AgreesWithTheTimeThatIsLeft) {
  SlotInfo cpu, device;
  cpu.id = {"w", "c"};
  device.id = {"w", "d"};
  device.device = true;
  device.target = "llvm -mcpu=a";
  device.device_key = "key";
  device.cores = {1};
  Feed(SlotsChanged{{cpu, device}, ""});
  const AttemptId import = dispatcher_.live().begin()->first;
  Payload payload;
  payload.imported.add_tasks()->set_key("a");
  payload.known.resize(1);
  Feed(StageFinished{import, {}, true, Imported{{{0, 0, 0, "a", 1}}, ""}}, payload);
  const absl::Time end = dispatcher_.ExpectedEnd(*dispatcher_.FindJob(id_), now_);
  ASSERT_LT(end, absl::InfiniteFuture());
  EXPECT_EQ(book_.View(dispatcher_, id_, now_).eta_ms(), absl::ToInt64Milliseconds(end - now_));
  // Nor is the view an estimate of its own: that is made at most every so often.
  Feed(SlotsChanged{{cpu}, ""});
  EXPECT_EQ(book_.View(dispatcher_, id_, now_).eta_ms(), absl::ToInt64Milliseconds(end - now_));
  now_ += absl::Seconds(10);
  Feed(Tick{});
  EXPECT_EQ(book_.View(dispatcher_, id_, now_).eta_ms(), 0) << "without a device nobody knows";
}

TEST_F(DeadlineWarningTest, GoesWhenItCanBeMetOrTheJobIsOver) {
  book_.SetDeadlineWarning(id_, Estimate(true, 12));
  book_.SetDeadlineWarning(id_, Estimate(false, 5));
  EXPECT_THAT(Warnings(), ElementsAre());
  book_.SetDeadlineWarning(id_, Estimate(true, 12));
  Feed(CancelRequested{id_, "enough"});
  EXPECT_THAT(Warnings(), ElementsAre());
}

class ExperienceTest : public DispatcherTest {
 protected:
  void Feed(const Event& event, const Payload& payload = {}) {
    book_.Absorb(dispatcher_, event, payload, Step(event), now_, now_);
  }
  // The live stage of the first task, or of none.
  StartStage First(v1::StageKind kind) {
    for (const StartStage& start : started_) {
      const bool live = dispatcher_.live().count(start.attempt) > 0;
      if (start.kind == kind && live && (!start.task || start.task->value == 0)) return start;
    }
    ADD_FAILURE() << "no live " << v1::StageKind_Name(kind);
    return {};
  }
  void Finish(v1::StageKind kind, const Payload& payload,
              decltype(StageFinished::result) result = {}) {
    Feed(StageFinished{First(kind).attempt, {}, true, std::move(result)}, payload);
  }
  // One candidate of the first of two tasks, "a" and "b", up to its update.
  void TuneOne() {
    Step(SlotsChanged{{CpuSlot("cpu0", {0}), CpuSlot("cpu1", {1}), DeviceSlot("p2", {2})}, ""});
    Payload submitted, imported, proposed;
    submitted.submitted.emplace();
    submitted.submitted->id = 1;
    v1::JobSpec& spec = *submitted.submitted->job.mutable_spec();
    spec.set_target(kTarget);
    spec.set_trials_per_task(8);
    spec.set_batch(1);
    Feed(JobSubmitted{JobId{1}, *JobBook::ParamsFrom(spec, now_, now_)}, submitted);
    imported.imported.add_tasks()->set_key("a");
    imported.imported.add_tasks()->set_key("b");
    imported.known.resize(2);
    Finish(v1::STAGE_IMPORT, imported, Imported{{{0, 0, 0, "a", 1}, {0, 0, 0, "b", 1}}, "key"});
    proposed.proposed.resize(1);
    proposed.search_state = "state";
    Finish(v1::STAGE_PROPOSE, proposed, Proposed{1, false});
    const CandidateId candidate = First(v1::STAGE_BUILD).candidates.at(0);
    const AttemptId build = First(v1::STAGE_BUILD).attempt;
    Feed(CandidateBuilt{build, candidate, v1::OUTCOME_OK, ""});
    Feed(StageFinished{build, {}, true, {}});
    Payload measured;
    measured.measurement.add_samples_ns(100);
    Feed(CandidateProfiled{First(v1::STAGE_PROFILE).attempt, candidate, v1::OUTCOME_OK, "", 100},
         measured);
    Finish(v1::STAGE_PROFILE, {});
  }
  void Learn(const std::string& samples) {
    Payload learned;
    learned.search_state = "state";
    learned.experience = Of(samples, 2);
    Finish(v1::STAGE_UPDATE, learned);
  }
  static v1::Experience Of(const std::string& samples, int measured) {
    v1::Experience experience;
    experience.set_samples(samples);
    experience.set_measured(measured);
    return experience;
  }
  // What a new search of the task is told.
  std::vector<std::string> Others(int task) {
    StartStage start = Live(v1::STAGE_PROPOSE);
    start.task = TaskIndex{task};
    const StageOrder order = MakeOrder(dispatcher_, book_, store_.get(), start, v1::SCHEDULE_BEST);
    std::vector<std::string> told;
    for (const v1::OtherExperience& other : order.start.propose().search().others())
      told.push_back(absl::StrCat(other.samples(), ", ", other.weight()));
    return told;
  }
  JobBook book_;
  std::unique_ptr<RecordStore> store_ = MakeMemoryRecordStore();
};

TEST_F(ExperienceTest, IsToldBeforeTheStoreHasIt) {
  TuneOne();
  EXPECT_THAT(Others(1), ElementsAre());
  Learn("newest of a");
  EXPECT_THAT(Others(1), ElementsAre("newest of a, 1"));
  EXPECT_THAT(Others(0), ElementsAre()) << "nothing of its own";
  Batch stored;
  for (const char* key : {"a", "c"}) {
    TaskRow row;
    row.job = 1;
    row.index = *key;
    row.info.set_key(key);
    stored.push_back(PutJob{book_.data(JobId{1}).row});
    stored.push_back(PutTask{row});
    stored.push_back(
        PutLearned{1, *key, {}, {key, kTarget, "key"}, Of("older of " + row.info.key(), 1), 1});
  }
  ASSERT_TRUE(store_->Apply({stored}).ok());
  EXPECT_THAT(Others(1), ElementsAre("newest of a, 1", "older of c, 1")) << "of each the newest";
  EXPECT_THAT(Others(0), ElementsAre("older of c, 1")) << "should its state be refused";
  const Batch longer = {PutLearned{1, 'a', {}, {"a", kTarget, "key"}, Of("long of a", 3), 1}};
  ASSERT_TRUE(store_->Apply({longer}).ok());
  EXPECT_THAT(Others(1), ElementsAre("long of a, 1", "older of c, 1")) << "unless that was shorter";
  const std::string more_threads = absl::StrCat(kTarget, " -threads=2");
  const auto learned = [&](const std::string& key, const std::string& target,
                           const std::string& device, const std::string& samples) {
    return PutLearned{1, 'c', {}, {key, target, device}, Of(samples, 1), 9};
  };
  const Batch farther = {learned("c", kTarget, "another key", "far"),
                         learned("c", more_threads, "key", "c of two threads"),
                         learned("c", "cuda -arch=sm_90", "key", "of another world")};
  ASSERT_TRUE(store_->Apply({farther}).ok());
  EXPECT_THAT(Others(1),
              ElementsAre("long of a, 1", "older of c, 1", "c of two threads, 0.5", "far, 0.25"))
      << "what is farther counts less";
  ASSERT_TRUE(store_->Apply({{learned("a", more_threads, "key", "two threads")}}).ok());
  EXPECT_THAT(Others(0), ElementsAre("two threads, 0.5", "older of c, 1", "c of two threads, 0.5",
                                     "far, 0.25"))
      << "what it learned itself comes first";
}

}  // namespace
}  // namespace heddle::scheduler
