// The scheduler's services over real gRPC, with a tracker and a worker that only pretend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/service/service_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ServiceTest, AJobFromSubmitToModule) {
  const std::string job = MustSubmit(Spec(), "a model");
  grpc::ClientContext context;
  v1::WatchJobRequest watched;
  watched.set_job(job);
  auto watch = jobs_->WatchJob(&context, watched);
  v1::Job now, last;
  while (watch->Read(&now)) last = now;
  EXPECT_TRUE(watch->Finish().ok());
  EXPECT_EQ(last.state(), v1::JOB_DONE) << last.ShortDebugString();
  EXPECT_EQ(last.trials(), 12);
  EXPECT_EQ(last.tasks_size(), 2);
  EXPECT_GT(last.tasks(0).best_ns(), 0);
  EXPECT_GT(last.tasks(0).untuned_ns(), 0);
  ExpectEachTrialOnce(last);
  std::string module;
  EXPECT_TRUE(Fetch(job, v1::SCHEDULE_BEST, &module).ok());
  EXPECT_EQ(module, "module of a model, choice 0, best 2");
  EXPECT_TRUE(Fetch(job, v1::SCHEDULE_NAIVE, &module).ok());
  EXPECT_EQ(module, "module of a model, choice 2, best 0");
  EXPECT_EQ(cluster_.worker.overlapping, 0);

  grpc::ClientContext timeline_context;
  v1::GetJobRequest request;
  request.set_job(job);
  v1::Timeline timeline;
  ASSERT_TRUE(jobs_->GetTimeline(&timeline_context, request, &timeline).ok());
  std::map<v1::StageKind, int> kinds;
  for (const v1::StageSpan& span : timeline.spans()) {
    ++kinds[span.kind()];
    EXPECT_GE(span.end_unix_ns(), span.start_unix_ns());
    EXPECT_GT(span.start_unix_ns(), 0);
  }
  EXPECT_EQ(kinds[v1::STAGE_IMPORT], 1);
  EXPECT_EQ(kinds[v1::STAGE_PROPOSE], 4);
  EXPECT_EQ(kinds[v1::STAGE_UPDATE], 2);
  EXPECT_EQ(kinds[v1::STAGE_COMPARE], 1);
  EXPECT_EQ(last.comparison().result().gain().ratio(), 1.5);
  EXPECT_EQ(last.tasks(1).compared().gain().ratio(), 1.2);
  EXPECT_EQ(last.default_digest(), "");
}

// From the tracker's list to every stage, whatever is reported meanwhile and whoever restarts.
TEST_F(ServiceTest, AJobKeepsTheMachineOfItsImport) {
  cluster_.behaviour.candidate_ms = 20;
  const std::string job = MustSubmit(Spec(12));
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  EXPECT_EQ(Get(job).machine(), "a machine");
  v1::ListWorkersResponse workers = cluster_.DefaultWorkers();
  workers.mutable_workers(0)->mutable_slots(1)->mutable_slot()->set_machine("another machine");
  cluster_.tracker.SetWorkers(workers);
  Stop();
  Start();
  EXPECT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
  EXPECT_EQ(Get(job).machine(), "a machine");
  EXPECT_EQ(cluster_.worker.other_machines, 0);
  const std::string next = MustSubmit(Spec());
  EXPECT_EQ(WaitFinal(next).machine(), "another machine");
  EXPECT_EQ(cluster_.worker.other_machines, 0);
  EXPECT_EQ(store_->Machines().value().at("key"), "another machine");
}

TEST_F(ServiceTest, AKernelThatIsNoFasterInTheModelIsTakenBack) {
  cluster_.behaviour.one_task_slower = true;
  const std::string job = MustSubmit(Spec());
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_EQ(done.comparison().made(), 2);
  ASSERT_EQ(done.comparison().taken_back_size(), 1);
  EXPECT_TRUE(done.tasks(0).keeps_default());
  EXPECT_FALSE(done.tasks(1).keeps_default());
  std::string module;
  EXPECT_TRUE(Fetch(job, v1::SCHEDULE_BEST, &module).ok());
  EXPECT_EQ(module, "module of a model, choice 0, best 1, kept 1");
  Stop();
  Start();
  EXPECT_EQ(Get(job).comparison().ShortDebugString(), done.comparison().ShortDebugString());
  EXPECT_TRUE(Get(job).tasks(0).keeps_default());
  v1::JobSpec spec = Spec();
  spec.set_no_comparison(true);
  const int before = cluster_.worker.comparisons;
  EXPECT_FALSE(WaitFinal(MustSubmit(spec)).has_comparison());
  EXPECT_EQ(cluster_.worker.comparisons, before);
}

TEST_F(ServiceTest, APlanIsChosenAfterASurveyAndSurvivesARestart) {
  v1::JobSpec spec = Spec();
  spec.set_plan_search("joint");
  const std::string job = MustSubmit(spec);
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  ASSERT_EQ(done.tasks_size(), 4);
  const int weights[] = {1, 0, 2, 1}, trials[] = {6, 1, 6, 6};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(done.tasks(i).info().weight(), weights[i]) << i;
    EXPECT_EQ(done.tasks(i).trials(), trials[i]) << i;
  }
  EXPECT_EQ(cluster_.worker.plans, 2) << "after the survey, and with the best times";
  EXPECT_EQ(cluster_.worker.plan_times, 4);
  EXPECT_EQ(done.plan_report().contenders(0).name(), "estimated");
  v1::Job whole = Get(job);
  EXPECT_EQ(whole.plan(), "chosen for " + job);
  EXPECT_EQ(whole.estimated_plan(), "the plan of " + job);
  EXPECT_EQ(whole.comparison().result().other_gain().ratio(), 1.1);
  EXPECT_EQ(whole.other_digest(), "") << "only the job's own module is kept";
  ExpectEachTrialOnce(done);
  Stop();
  Start();
  whole = Get(job);
  EXPECT_EQ(whole.plan(), "chosen for " + job);
  EXPECT_EQ(whole.tasks(2).info().weight(), 2);
}

// The tasks of two plans get trials until one is clearly faster, also if the service is restarted meanwhile.
TEST_F(ServiceTest, TwoPlansAreTunedSideBySide) {
  cluster_.behaviour.rival = true;
  v1::JobSpec spec = Spec(24);
  spec.set_allocation("gradient");
  spec.set_plan_search("joint");
  const std::string job = MustSubmit(spec);
  // The survey has three trials, and the contest at least three of each of four tasks.
  for (int i = 0; i < 2000 && Get(job).trials() < 6; ++i) absl::SleepFor(absl::Milliseconds(5));
  Stop();
  Start();
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_GE(cluster_.worker.plans, 3) << "after survey, contest and tuning";
  EXPECT_GE(cluster_.worker.comparisons, 2) << "one decided the contest, the last one is reported";
  EXPECT_EQ(done.comparison().made(), 1);
  ASSERT_EQ(done.tasks_size(), 4);
  EXPECT_EQ(done.tasks(1).info().weight(), 0);
  EXPECT_GE(done.tasks(1).trials(), 3) << "the second plan's own task had its floor";
  EXPECT_LE(done.tasks(1).trials(), 24) << "and nothing after the contest";
  int trials = 0;
  for (const v1::TaskStatus& task : done.tasks()) trials += task.trials();
  EXPECT_EQ(trials, 3 * 24 + 1) << "the pool of the plan's three tasks, and one surveyed beside it";
  ExpectEachTrialOnce(done);
}

TEST_F(ServiceTest, APlanThatIsSlowerAsAWholeIsTakenBack) {
  cluster_.behaviour.plan_slower = true;
  v1::JobSpec spec = Spec();
  spec.set_plan_search("sequential");
  const std::string job = MustSubmit(spec);
  const v1::Job done = WaitFinal(job);
  EXPECT_TRUE(done.comparison().plan_taken_back()) << done.ShortDebugString();
  EXPECT_EQ(done.comparison().result().gain().ratio(), 1.4);
  EXPECT_EQ(Get(job).plan(), "the plan of " + job);
  std::string module;
  EXPECT_TRUE(Fetch(job, v1::SCHEDULE_BEST, &module).ok());
  EXPECT_EQ(module, "by the plan of " + job);
  // Its tasks are those of the plan that it has.
  const auto weights = [&] {
    std::vector<int> all;
    const v1::Job now = Get(job);
    for (const v1::TaskStatus& task : now.tasks()) all.push_back(task.info().weight());
    return all;
  };
  EXPECT_THAT(weights(), ElementsAre(1, 1, 0, 0));
  Stop();
  Start();
  EXPECT_THAT(weights(), ElementsAre(1, 1, 0, 0));
}

// The report of this worker tells how many kernels of earlier jobs it was told of.
TEST_F(ServiceTest, WhatAJobFoundAboutCostsServesTheNext) {
  v1::JobSpec spec = Spec();
  spec.set_plan_search("joint");
  const auto told = [&] {
    const v1::Job done = WaitFinal(MustSubmit(spec));
    EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
    return done.plan_report().experience_kernels();
  };
  EXPECT_EQ(told(), 0);
  const Experience found = *store_->FindExperience("llvm -mcpu=x", "key", 9);
  EXPECT_EQ(found.device.size(), 3u) << "of the survey; the last plan stage adds no tuned kernels";
  EXPECT_TRUE(found.others.empty());
  EXPECT_EQ(told(), 3);
  Stop();
  Start();
  EXPECT_EQ(told(), 3) << "also after a restart";
  spec.set_no_transfer(true);
  EXPECT_EQ(told(), 0) << "the job wants to learn from no other";
}

TEST_F(ServiceTest, AJobWhosePlanStageFailsKeepsItsPlan) {
  cluster_.behaviour.bad_plan = true;
  v1::JobSpec spec = Spec();
  spec.set_plan_search("joint");
  const v1::Job done = WaitFinal(MustSubmit(spec));
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_EQ(done.tasks(0).trials(), 6);
  EXPECT_EQ(done.tasks(2).trials(), 1);
  EXPECT_EQ(Get(done.id()).plan(), "the plan of " + done.id());
  spec.set_plan_search("magic");
  std::string job;
  EXPECT_THAT(Submit(spec, "m", &job).error_message(),
              HasSubstr("must be joint, sequential or off"));
}

TEST_F(ServiceTest, TheDefaultAllocationSpendsTheWholeBudgetAndForgetsNoTask) {
  v1::JobSpec spec = Spec(16);
  spec.clear_allocation();
  const v1::Job done = WaitFinal(MustSubmit(spec));
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
  EXPECT_EQ(done.trials(), 32);
  for (const v1::TaskStatus& task : done.tasks()) EXPECT_GE(task.trials(), 2);  // an eighth of 16
  ExpectEachTrialOnce(done);
}

TEST_F(ServiceTest, AResubmittedModelNeedsNoTrials) {
  WaitFinal(MustSubmit(Spec()));
  const v1::Job again = WaitFinal(MustSubmit(Spec()));
  EXPECT_EQ(again.state(), v1::JOB_DONE);
  EXPECT_EQ(again.trials(), 0);
  EXPECT_EQ(again.reason(), "done: reused 12 records for 2 of 2 tasks, no new trials");
  EXPECT_GT(again.tasks(0).best_ns(), 0);
  EXPECT_GT(again.tasks(0).untuned_ns(), 0);
  const int learned = cluster_.worker.warm_results;
  const v1::Job more = WaitFinal(MustSubmit(Spec(8)));
  EXPECT_EQ(more.trials(), 4) << "two more for each of two tasks";
  EXPECT_EQ(cluster_.worker.warm_results - learned, 12) << "the known ones are learned first";
  v1::JobSpec force = Spec();
  force.set_force(true);
  EXPECT_EQ(WaitFinal(MustSubmit(force)).trials(), 12);
}

TEST_F(ServiceTest, BadRequestsAreNamed) {
  std::string job;
  v1::JobSpec spec = Spec();
  spec.set_target("llvm -mcpu=native");
  EXPECT_EQ(Submit(spec, "m", &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  spec = Spec(0);
  EXPECT_THAT(Submit(spec, "m", &job).error_message(), HasSubstr("trials_per_task"));
  EXPECT_EQ(Submit(Spec(), std::string(3 << 20, 'x'), &job).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Submit(Spec(), "m", &job, std::string(64, '0')).error_code(),
            grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Submit(Spec(), "", &job).error_code(), grpc::StatusCode::DATA_LOSS);
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_job("j99");
  v1::Job response;
  EXPECT_EQ(jobs_->GetJob(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::JobSpec unknown = Spec();
  unknown.set_strategy("magic");
  std::string nobody;
  const grpc::Status strategy = Submit(unknown, "a model", &nobody);
  EXPECT_EQ(strategy.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(strategy.error_message(), HasSubstr("magic"));
  EXPECT_THAT(strategy.error_message(), HasSubstr("evolutionary"));
  unknown.set_strategy("evolutionary");
  EXPECT_TRUE(Submit(unknown, "a model", &nobody).ok());
}

TEST_F(ServiceTest, AUserFaultFailsTheJob) {
  cluster_.behaviour.bad_model = true;
  const std::string job = MustSubmit(Spec());
  const v1::Job failed = WaitFinal(job);
  EXPECT_EQ(failed.state(), v1::JOB_FAILED);
  EXPECT_EQ(failed.fault().kind(), v1::FAULT_USER);
  EXPECT_EQ(failed.reason(), "not an ONNX file");
  std::string module;
  EXPECT_EQ(Fetch(job, v1::SCHEDULE_BEST, &module).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServiceTest, WhereEveryCandidateFailsTheJobSaysWhy) {
  cluster_.behaviour.candidates_fail = true;
  const v1::Job failed = WaitFinal(MustSubmit(Spec(40)));
  EXPECT_EQ(failed.fault().kind(), v1::FAULT_CANDIDATE);
  EXPECT_THAT(failed.reason(), HasSubstr("signal 11"));
  EXPECT_LT(failed.trials(), 40) << "given up early";
}

TEST_F(ServiceTest, BrokenStreamsAndRefusedStagesLoseNothing) {
  cluster_.behaviour.break_profiles = 2;
  cluster_.behaviour.refuse_stages = 2;
  const v1::Job done = WaitFinal(MustSubmit(Spec(9)));
  EXPECT_EQ(done.state(), v1::JOB_DONE);
  EXPECT_EQ(done.trials(), 18);
  ExpectEachTrialOnce(done);
}

// A worker that was stopped refuses late what it was sent meanwhile, or the connection to it breaks first. That is no fault of any
// trial.
TEST_F(ServiceTest, AStageThatAWorkerNeverBeganCostsNoAttempt) {
  cluster_.behaviour.refuse_late = 4;
  const v1::Job done = WaitFinal(MustSubmit(Spec(3)));
  EXPECT_EQ(done.state(), v1::JOB_DONE);
  EXPECT_EQ(cluster_.behaviour.refuse_late, 0);
  v1::RecordQuery query;
  query.set_job(done.id());
  const std::vector<v1::Record> records = Query(query);
  EXPECT_EQ(records.size(), 6u);
  for (const v1::Record& record : records) {
    EXPECT_EQ(record.measurement().outcome(), v1::OUTCOME_OK) << record.measurement().message();
    EXPECT_EQ(record.attempt(), 1);
  }
}

TEST_F(ServiceTest, StagesShareConnectionsAndNeverABrokenOne) {
  ASSERT_EQ(WaitFinal(MustSubmit(Spec(30))).state(), v1::JOB_DONE);
  const int stages = cluster_.worker.stages;
  EXPECT_GT(stages, 40);
  // One for each of the two slots, and a further one where a stage begins before the last has ended.
  EXPECT_LE(cluster_.worker.TakePeers().size(), 6u);
  cluster_.behaviour.break_profiles = 3;
  v1::JobSpec spec = Spec(30);
  spec.set_force(true);
  ASSERT_EQ(WaitFinal(MustSubmit(spec)).state(), v1::JOB_DONE);
  EXPECT_GE(cluster_.worker.TakePeers().size(), 4u) << "three were broken";
}

TEST_F(ServiceTest, StaleFencingTokensHoldAJobUpAndEndNothing) {
  ASSERT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  Stop();
  cluster_.tracker.SetNextToken(1);  // the tracker begins anew
  Start();
  v1::JobSpec spec = Spec();
  spec.set_force(true);
  const std::string job = MustSubmit(spec);
  const int grants = cluster_.tracker.grants();
  Wait(job, [&](const v1::Job&) { return cluster_.tracker.grants() >= grants + 2; });
  EXPECT_EQ(Get(job).state(), v1::JOB_IMPORTING) << "no stage runs under a stale token";
  cluster_.tracker.SetNextToken(1'000'000);
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE);
  ExpectEachTrialOnce(done);
}

TEST_F(ServiceTest, LostAnswersOfTheTrackerBlockNoSlotUntilTheLeaseExpires) {
  cluster_.tracker.lose_grants = 1;
  cluster_.tracker.lose_releases = 1;
  const absl::Time begin = absl::Now();
  EXPECT_EQ(WaitFinal(MustSubmit(Spec())).state(), v1::JOB_DONE);
  // A fake lease never expires; without the clean-up the job would wait for ever.
  EXPECT_LT(absl::Now() - begin, kServiceLimit);
}

TEST_F(ServiceTest, WithoutADeviceTheJobWaitsAndSaysWhy) {
  v1::JobSpec spec = Spec();
  spec.set_target("llvm -mcpu=x -threads=2");
  const std::string job = MustSubmit(spec);
  Wait(job, [](const v1::Job& now) { return now.reason().find("no device with target") == 0; });
  EXPECT_THAT(Get(job).reason(), HasSubstr("nearest: worker w1 has llvm -mcpu=x, 1 thread"));
  v1::ListWorkersResponse workers = cluster_.DefaultWorkers();
  workers.mutable_workers(0)->mutable_slots(1)->mutable_slot()->add_cores(2);
  cluster_.tracker.SetWorkers(workers);
  EXPECT_EQ(WaitFinal(job).state(), v1::JOB_DONE);
}

// Jobs are imported while there is no device, and the records do not suffice without one.
TEST_F(ServiceTest, ADeviceThatComesLaterFindsWhatIsOnRecord) {
  v1::JobSpec spec = Spec(8);
  spec.set_target("llvm -mcpu=x -threads=2");
  v1::ListWorkersResponse workers = cluster_.DefaultWorkers();
  workers.mutable_workers(0)->mutable_slots(1)->mutable_slot()->add_cores(2);
  cluster_.tracker.SetWorkers(workers);
  spec.set_trials_per_task(6);
  ASSERT_EQ(WaitFinal(MustSubmit(spec)).trials(), 12);
  cluster_.tracker.SetWorkers(cluster_.DefaultWorkers());
  spec.set_trials_per_task(8);
  auto waits = [](const v1::Job& now) { return now.reason().starts_with("no device with target"); };
  spec.set_force(true);
  const std::string forced = MustSubmit(spec);
  Wait(forced, waits);
  spec.set_force(false);
  const std::string job = MustSubmit(spec);
  Wait(job, waits);
  EXPECT_EQ(Get(job).tasks(0).known_records(), 0);
  v1::Job paused;  // or the one would have the other's trials
  ASSERT_TRUE(Act(&v1::JobService::Stub::PauseJob, forced, &paused).ok());
  const int learned = cluster_.worker.warm_results;
  cluster_.tracker.SetWorkers(workers);
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE);
  EXPECT_EQ(done.trials(), 4) << "two more for each of two tasks";
  EXPECT_EQ(done.tasks(0).known_records(), 6);
  EXPECT_GT(done.tasks(0).untuned_ns(), 0);
  EXPECT_EQ(cluster_.worker.warm_results - learned, 12) << "the known ones are learned first";
  ASSERT_TRUE(Act(&v1::JobService::Stub::ResumeJob, forced, &paused).ok());
  EXPECT_EQ(WaitFinal(forced).trials(), 16);
}

// More than are looked at with one event; that the workers have gone happens to none of them.
TEST_F(ServiceTest, WhatJobsWaitForIsShownOfAll) {
  v1::JobSpec spec = Spec();
  spec.set_target("llvm -mcpu=x -threads=2");
  std::vector<std::string> jobs;
  for (int i = 0; i < 50; ++i) jobs.push_back(MustSubmit(spec));
  auto all_wait = [&](const std::string& why) {
    for (const std::string& job : jobs)
      Wait(job, [&](const v1::Job& now) { return now.reason().starts_with(why); });
  };
  all_wait("no device with target");
  cluster_.tracker.SetWorkers({});
  all_wait("no worker is registered");
}

// Submissions that begin at the same time are counted before any of them is a job.
class FewJobsTest : public ServiceTest {
 protected:
  ServiceLimits Limits() const override {
    ServiceLimits limits = ServiceTest::Limits();
    limits.max_jobs_of_user = 3;
    return limits;
  }
};

TEST_F(FewJobsTest, SubmissionsAtOnceDoNotPassTheLimitOfJobs) {
  constexpr size_t kSubmissions = 6;  // fewer than uploads at a time
  struct Submission {
    grpc::ClientContext context;
    v1::SubmitResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::SubmitRequest>> writer;
  };
  std::vector<Submission> submissions(kSubmissions);
  for (Submission& one : submissions) {
    one.writer = jobs_->Submit(&one.context, &one.response);
    v1::SubmitRequest request;
    *request.mutable_spec() = Spec();
    EXPECT_TRUE(one.writer->Write(request));
  }
  absl::SleepFor(absl::Milliseconds(500));  // until the service has read all these
  size_t taken = 0;
  for (Submission& one : submissions) {
    v1::SubmitRequest request;
    request.mutable_chunk()->set_name("model");
    request.mutable_chunk()->set_data("a model");
    request.mutable_chunk()->set_last(true);
    one.writer->Write(request);
    one.writer->WritesDone();
  }
  for (Submission& one : submissions) {
    const grpc::Status status = one.writer->Finish();
    taken += status.ok();
    if (status.ok()) continue;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("you have 3 unfinished jobs"));
  }
  EXPECT_EQ(taken, 3u);
  for (const Submission& one : submissions) {
    if (!one.response.job().empty()) WaitFinal(one.response.job());
  }
  MustSubmit(Spec());  // there is room again
}

TEST_F(ServiceTest, PauseResumeCancel) {
  cluster_.behaviour.candidate_ms = 20;
  const std::string job = MustSubmit(Spec(1000));
  Wait(job, [](const v1::Job& now) { return now.trials() > 0; });
  v1::Job now;
  ASSERT_TRUE(Act(&v1::JobService::Stub::PauseJob, job, &now).ok());
  EXPECT_EQ(now.state(), v1::JOB_PAUSED);
  const int before = cluster_.tracker.grants();
  WaitQuiet(job);
  EXPECT_LE(cluster_.tracker.grants(), before + 2) << "one for each slot, ordered before";
  ASSERT_TRUE(Act(&v1::JobService::Stub::ResumeJob, job, &now).ok());
  EXPECT_EQ(now.state(), v1::JOB_TUNING);
  const int trials = now.trials();
  Wait(job, [&](const v1::Job& later) { return later.trials() > trials; });
  ASSERT_TRUE(Act(&v1::JobService::Stub::CancelJob, job, &now).ok());
  EXPECT_EQ(now.state(), v1::JOB_CANCELLED);
  EXPECT_TRUE(Act(&v1::JobService::Stub::CancelJob, job, &now).ok()) << "again is no error";
  const grpc::Status late = Act(&v1::JobService::Stub::PauseJob, job, &now);
  EXPECT_EQ(late.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(late.error_message(), HasSubstr("(cancelled)"));
}

TEST_F(ServiceTest, APriorityIsSetWithinItsLimitsUntilTheJobEnds) {
  cluster_.behaviour.candidate_ms = 20;
  const std::string job = MustSubmit(Spec(1000));
  const auto prioritize = [&](int priority, v1::Job* now) {
    grpc::ClientContext context;
    v1::PrioritizeJobRequest request;
    request.set_job(job);
    request.set_priority(priority);
    return jobs_->PrioritizeJob(&context, request, now);
  };
  v1::Job now;
  ASSERT_TRUE(prioritize(-10, &now).ok());
  EXPECT_EQ(now.spec().priority(), -10);
  ASSERT_TRUE(prioritize(7, &now).ok());
  EXPECT_EQ(now.spec().priority(), 7);
  for (const int outside : {-11, 11})
    EXPECT_EQ(prioritize(outside, &now).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  Stop();
  Start();
  EXPECT_EQ(Get(job).spec().priority(), 7) << "a restart does not forget it";
  ASSERT_TRUE(Act(&v1::JobService::Stub::CancelJob, job, &now).ok());
  EXPECT_EQ(prioritize(1, &now).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServiceTest, AfterARestartJobsGoOnAndNothingIsLostOrTwice) {
  cluster_.behaviour.candidate_ms = 10;
  const std::string first = MustSubmit(Spec(30)), second = MustSubmit(Spec(30));
  const std::string third = MustSubmit(Spec(30));
  v1::Job paused;
  ASSERT_TRUE(Act(&v1::JobService::Stub::PauseJob, third, &paused).ok());
  int trials = 0;
  for (int restart = 0; restart < 4; ++restart) {
    trials = Wait(first, [&](const v1::Job& now) { return now.trials() >= trials + 4; }).trials();
    Stop();
    Start();
    EXPECT_GE(Get(first).trials(), trials) << "what was shown is not forgotten";
  }
  EXPECT_EQ(Get(third).state(), v1::JOB_PAUSED);
  for (const std::string& job : {first, second}) {
    const v1::Job done = WaitFinal(job);
    EXPECT_EQ(done.state(), v1::JOB_DONE);
    EXPECT_GE(done.trials(), 60 - done.tasks(0).known_records() - done.tasks(1).known_records());
    ExpectEachTrialOnce(done);
  }
  Stop();
  Start();
  const v1::Job remembered = Get(first);
  EXPECT_EQ(remembered.state(), v1::JOB_DONE);
  EXPECT_EQ(remembered.trials(), remembered.trials_budget());
  EXPECT_GT(remembered.tasks(0).best_ns(), 0);
  EXPECT_EQ(cluster_.worker.overlapping, 0);
}

TEST_F(ServiceTest, RecordsTravel) {
  WaitFinal(MustSubmit(Spec()));
  v1::RecordQuery query;
  query.set_with_workload(true);
  std::vector<v1::Record> records = Query(query);
  ASSERT_EQ(records.size(), 12u);
  EXPECT_EQ(records[0].measurement().evidence().worker(), "w1");
  records[0].mutable_measurement()->add_samples_ns(5);  // a new one
  records[0].clear_median_ns();
  records[0].set_imported_by("somebody else");
  records[1].clear_target();  // a bad one
  grpc::ClientContext context;
  v1::ImportRecordsResponse response;
  auto writer = records_->ImportRecords(&context, &response);
  for (const v1::Record& record : records) writer->Write(record);
  writer->WritesDone();
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(response.imported(), 1);
  EXPECT_EQ(response.skipped(), 10);
  EXPECT_EQ(response.rejected(), 1);
  EXPECT_THAT(response.first_error(), HasSubstr("target"));
  query.set_imported_by("ipv4:127.0.0.1");
  EXPECT_EQ(Query(query).size(), 1u) << "the service says who it was, not the record";
}

// Of a tenant's day.
class DailyLimitsTest : public ServiceTest {
 protected:
  ServiceLimits Limits() const override {
    ServiceLimits limits = ServiceTest::Limits();
    limits.max_jobs_a_day = 3;
    limits.max_import_bytes_a_day = 1000;
    return limits;
  }
  static v1::Record RecordOf(int number) {
    v1::Record record;
    record.set_schema_version(1);
    record.set_workload_key("0123456789abcdef");
    record.set_target("llvm -mcpu=x");
    record.set_device_key("key");
    record.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
    record.mutable_measurement()->add_samples_ns(100);
    record.set_created_unix_ns(number);
    return record;
  }
  grpc::Status Import(int first, int end, v1::ImportRecordsResponse* response) {
    grpc::ClientContext context;
    auto writer = records_->ImportRecords(&context, response);
    for (int i = first; i < end; ++i) writer->Write(RecordOf(i));
    writer->WritesDone();
    return writer->Finish();
  }
};

// A cancelled job counts as any other, and a submission that is sent again is none.
TEST_F(DailyLimitsTest, SubmitAndCancelInALoopEnds) {
  std::string job;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Submit(Spec(), "a model", &job, "", absl::StrCat("key ", i)).ok());
    v1::Job cancelled;
    ASSERT_TRUE(Act(&v1::JobService::Stub::CancelJob, job, &cancelled).ok());
  }
  const std::string last = job;
  const grpc::Status refused = Submit(Spec(), "a model", &job, "", "key 3");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("submitted 3 jobs (heddle-scheduler --max-jobs-a-day), as much as one may "
                        "within a day"));
  EXPECT_THAT(refused.error_message(), HasSubstr("try again after"));
  ASSERT_TRUE(Submit(Spec(), "a model", &job, "", "key 2").ok());
  EXPECT_EQ(job, last);
}

TEST_F(DailyLimitsTest, ImportsOfADayAreBoundedAndKnownRecordsAreFree) {
  v1::ImportRecordsResponse response;
  const grpc::Status first = Import(0, 2, &response);
  ASSERT_TRUE(first.ok()) << first.error_message();
  ASSERT_EQ(response.imported(), 2) << response.first_error();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Import(0, 2, &response).ok());
    EXPECT_EQ(response.skipped(), 2);
  }
  grpc::Status refused;
  int taken = 2;
  for (; taken < 50 && refused.ok(); ++taken) refused = Import(taken, taken + 1, &response);
  EXPECT_LT(taken, 50);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("within a day; try again after"));
}

// The estimate of a deadline comes with the submission itself, before the job is kept.
TEST_F(ServiceTest, ADeadlineThatHasPassedIsNoReasonToEnd) {
  v1::JobSpec spec = Spec();
  spec.set_deadline_unix_ns(1);
  const std::string job = MustSubmit(spec);
  const v1::Job done = WaitFinal(job);
  EXPECT_EQ(done.state(), v1::JOB_DONE) << done.ShortDebugString();
}

}  // namespace
}  // namespace heddle::scheduler
