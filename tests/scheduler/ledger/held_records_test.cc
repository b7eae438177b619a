// A job for GPUs builds its first candidates before there is a device. What fails then is no record
// until there is one: records without a device key are of no use to anybody.
#include "scheduler/ledger/job_ledger.h"
#include "scheduler/store/memory_record_store.h"
#include "tests/scheduler/core/dispatcher_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kGpu[] = "cuda -arch=sm_90";

class HeldRecordsTest : public DispatcherTest {
 protected:
  void Feed(const Event& event) {
    const Batch batch = ledger_.Absorb(dispatcher_, event, Step(event).changes, now_, now_);
    const auto applied = store_->Apply({batch});
    ASSERT_TRUE(applied.ok() && applied->front().ok()) << applied->front();
  }
  void Finish(v1::StageKind kind, decltype(StageFinished::result) result) {
    Feed(StageFinished{Live(kind).attempt, {}, true, std::move(result)});
  }
  // Up to an update, with two candidates that did not build, on a machine without a GPU.
  void FailTwo() {
    Feed(SlotsChanged{{CpuSlot("cpu0", {0})}, ""});
    JobSubmitted submitted{JobId{1}, {}};
    v1::JobSpec& spec = *submitted.description.mutable_spec();
    spec.set_target(kGpu);
    spec.set_trials_per_task(8);
    spec.set_batch(2);
    submitted.params = *JobLedger::ParamsFrom(spec, now_, now_);
    Feed(submitted);
    Finish(v1::STAGE_IMPORT, ImportOf({{"0123456789abcdef"}}, ""));
    Finish(v1::STAGE_PROPOSE, Proposed{2, false, std::vector<v1::Candidate>(2), "state"});
    auto failed = std::make_shared<Measured>();
    failed->measurement.mutable_evidence()->set_worker("w");
    failed->measurement.mutable_evidence()->set_slot("cpu0");
    failed->fencing_token = 5;
    const StartStage build = Live(v1::STAGE_BUILD);
    for (CandidateId id : build.candidates)
      Feed(CandidateBuilt{build.attempt, id, v1::OUTCOME_BUILD_ERROR, "no", nullptr, 0, failed});
    Feed(StageFinished{build.attempt, {}, true, {}});
  }
  std::vector<v1::Record> Records() { return *store_->Query({}); }

  JobLedger ledger_;
  std::unique_ptr<RecordStore> store_ = MakeMemoryRecordStore();
};

TEST_F(HeldRecordsTest, AreWrittenOnceTheJobHasADevice) {
  FailTwo();
  EXPECT_THAT(Records(), IsEmpty());
  EXPECT_THAT(*store_->DeviceKeys(kGpu), IsEmpty()) << "what a job without a device looks up";
  EXPECT_EQ(job().tasks[0].trials, 2);
  // Another job's record of the slot, under a later lease: that fences off no failed build.
  InsertRecord other;
  other.record.set_schema_version(1);
  other.record.set_workload_key("fedcba9876543210");
  other.record.set_target("llvm");
  other.record.set_device_key("cpu");
  other.record.mutable_measurement()->set_outcome(v1::OUTCOME_BUILD_ERROR);
  other.record.mutable_measurement()->mutable_evidence()->set_worker("w");
  other.record.mutable_measurement()->mutable_evidence()->set_slot("cpu0");
  other.record.set_job("j1");
  other.record.set_candidate(99);
  other.fencing_token = 9;
  CandidateRow candidate;
  candidate.job = 1;
  candidate.id = 99;
  const Batch row = {InsertCandidate{candidate}, other};
  ASSERT_TRUE(store_->Apply({row})->front().ok());
  Feed(SlotsChanged{{CpuSlot("cpu0", {0}), DeviceSlot("gpu", {}, "w", kGpu)}, ""});
  ASSERT_EQ(job().params.device_key, "key");
  ASSERT_THAT(Records(), SizeIs(3));
  for (const v1::Record& record : Records()) {
    EXPECT_FALSE(record.device_key().empty());
    EXPECT_TRUE(CheckRecord(record).ok()) << "an import would refuse " << CheckRecord(record);
  }
  EXPECT_EQ(store_->Known({"0123456789abcdef", kGpu, "key"})->total, 2);
}

TEST_F(HeldRecordsTest, AreMadeAgainAfterARestart) {
  FailTwo();
  const std::vector<StoredJob> stored = *store_->LoadJobs();
  ASSERT_THAT(stored, SizeIs(1));
  JobLedger book;
  const Job restored = book.Load(stored[0], now_, now_);
  EXPECT_EQ(restored.tasks[0].trials, 0);
  EXPECT_THAT(restored.tasks[0].open, SizeIs(2));
}

TEST_F(HeldRecordsTest, NeitherAreTransferSamplesOfNoDeviceKept) {
  FailTwo();
  Updated learned{"state"};
  learned.transfer_samples.set_samples("of two that do not build");
  Finish(v1::STAGE_UPDATE, learned);
  EXPECT_TRUE(store_->Report(1, 0)->has_value());
  EXPECT_THAT(*store_->FindRelatedSamples({"another", kGpu, ""}, 9), IsEmpty());
}

}  // namespace
}  // namespace heddle::scheduler
