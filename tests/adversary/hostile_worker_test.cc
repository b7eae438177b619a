// A worker that sends what no worker may, against a whole scheduler over its database.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "tests/adversary/hostile_service_test.h"
#include "tests/adversary/mutate.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

class HostileWorkerTest : public HostileServiceTest {
 protected:
  // The faults of a job's stages, as the timeline shows them.
  std::vector<v1::Fault> Faults(const std::string& job) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job(job);
    v1::Timeline timeline;
    EXPECT_TRUE(jobs_->GetTimeline(&context, request, &timeline).ok());
    std::vector<v1::Fault> faults;
    for (const v1::StageSpan& span : timeline.spans()) {
      if (span.has_fault()) faults.push_back(span.fault());
    }
    return faults;
  }
};

TEST_F(HostileWorkerTest, ATimeThatIsNoNumberCostsAnAttemptAndEndsNothing) {
  std::atomic<int> left{1};
  cluster_.worker.SetMutator([&](v1::StageEvent* event) {
    if (event->has_profiled() && left-- > 0)
      event->mutable_profiled()->mutable_measurement()->set_samples_ns(0, std::nan(""));
  });
  const std::string job = MustSubmit(Spec());
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_EQ(done.trials(), 12);
  ExpectEachTrialOnce(done);
  const std::vector<v1::Fault> faults = Faults(job);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_EQ(
      faults[0].message(),
      "worker w1 sent what it must not: profiled.measurement.samples_ns[0] is nan; it must be "
      "a finite number");
}

TEST_F(HostileWorkerTest, TimesThatAreNeverNumbersDoNotEndTheNextSchedulerEither) {
  cluster_.worker.SetMutator([](v1::StageEvent* event) {
    if (event->has_profiled())
      event->mutable_profiled()->mutable_measurement()->set_samples_ns(0, std::nan(""));
  });
  const std::string job = MustSubmit(Spec());
  Wait(job, [&](const v1::Job&) { return Faults(job).size() >= 2; });
  Stop();
  Start();
  const size_t before = Faults(job).size();
  Wait(job, [&](const v1::Job&) { return Faults(job).size() > before; });
  cluster_.worker.SetMutator(nullptr);
  EXPECT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
}

TEST_F(HostileWorkerTest, AnswersAboutForeignCandidatesAreRefused) {
  std::atomic<int> left{1};
  cluster_.worker.SetMutator([&](v1::StageEvent* event) {
    if (event->has_built() && left-- > 0) event->mutable_built()->set_candidate(999);
  });
  const std::string job = MustSubmit(Spec());
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  ASSERT_EQ(Faults(job).size(), 1u);
  EXPECT_THAT(Faults(job)[0].message(), HasSubstr("candidate 999, which it was not given"));
}

// A build stage that answers with a plan, and so on: each stage sends once what is for another one.
TEST_F(HostileWorkerTest, EventsOfOtherStagesAreRefused) {
  std::atomic<int> left{6};
  std::atomic<int> number{0};
  cluster_.worker.SetMutator([&](v1::StageEvent* event) {
    if (event->has_finished() || number++ % 5 != 0 || left-- <= 0) return;
    switch (number % 4) {
      case 0:
        event->mutable_planned()->set_plan("a plan");
        break;
      case 1:
        event->mutable_compared()->set_ns(1);
        break;
      case 2:
        event->mutable_report();
        break;
      default:
        event->mutable_wanted();
    }
  });
  const v1::Job done = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_LE(left.load(), 0);
}

// Jobs come and go while every thirtieth event is mutated. Whatever is in the store afterwards is what a record may be, and once the worker
// behaves, a job is tuned as ever.
TEST_F(HostileWorkerTest, MutatedEventsLeaveTheStoreWhole) {
  const int wanted = Mutations(60);
  Mutator mutator(7);
  int mutated = 0;  // the worker holds a lock while it mutates
  std::atomic<int> so_far{0};
  cluster_.worker.SetMutator([&](v1::StageEvent* event) {
    if (mutator.Below(30) != 0) return;
    mutator.Mutate(event);
    so_far = ++mutated;
  });
  const absl::Time limit = absl::Now() + kServiceLimit + absl::Milliseconds(200) * wanted;
  std::vector<std::string> jobs;
  int number = 0;
  while (so_far < wanted && absl::Now() < limit) {
    v1::JobSpec spec = Spec(4);
    spec.set_force(true);
    if (number++ % 2 == 0) spec.set_plan_search("joint");
    jobs.push_back(MustSubmit(spec));
    if (jobs.size() < 8) continue;
    // The oldest one has had its time.
    Cancel(jobs.front());
    jobs.erase(jobs.begin());
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_GE(so_far.load(), wanted) << "not all mutations were made in time";
  cluster_.worker.SetMutator(nullptr);
  for (const std::string& job : jobs) Cancel(job);
  ExpectAllIsWell();
}

}  // namespace
}  // namespace heddle::scheduler
