// What the scheduler knows of a job beyond what decisions need, and what users see of it.
#include "scheduler/job_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/describe.h"

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

}  // namespace
}  // namespace heddle::scheduler
