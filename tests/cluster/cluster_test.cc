// The promise of the whole service: kill -9 of any process in mid-job costs time and nothing else.
// At the end every trial is there exactly once, and the module computes what the model says.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "absl/time/clock.h"
#include "client/service_client.h"
#include "client/zoo/zoo.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/runtime/executor.h"
#include "compiler/runtime/module.h"
#include "proto/job_states.h"
#include "tests/access/lab.h"
#include "tests/cluster/mini_cluster.h"
#include "tests/driver/forest_text.h"
#include "tests/driver/run_model.h"

namespace heddle {
namespace {

using client::ServiceClient;

// A run takes a fraction of this; it is the bound for a machine that is busy with other things.
constexpr absl::Duration kLimit = absl::Seconds(180);
constexpr int kTrialsPerTask = 12;

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() : model_(zoo::MakeZooModel("mlp", 1).value()), limit_(absl::Now() + kLimit) {
    cluster_.StartTracker();
    cluster_.StartWorker();
    cluster_.StartScheduler();
    client_ = std::make_unique<ServiceClient>(cluster_.scheduler_address());
    const absl::Status serving = client_->WaitUntilServing(absl::Seconds(60));
    EXPECT_TRUE(serving.ok()) << serving;
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << cluster_.Logs();
  }

  std::string Submit(const std::string& allocation, int trials_per_task = kTrialsPerTask,
                     const std::string& plan_search = "off") {
    v1::JobSpec spec;
    spec.set_plan_search(plan_search);
    spec.set_name("mlp");
    spec.set_target(ToText(codegen::ResolveTarget(Target{}).value()));
    spec.set_trials_per_task(trials_per_task);
    spec.set_allocation(allocation);
    spec.set_batch(4);
    spec.set_strategy("random");
    spec.set_seed(1);
    // Trials of some 100 ms: the job lasts long enough to be hit, and not much longer.
    spec.set_repeats(5);
    spec.set_min_repeat_us(min_repeat_us_);
    if (!rows_.empty()) {
      v1::ModelOptions::Shape& shape = *spec.mutable_options()->add_shapes();
      shape.set_input("rows");
      for (const int64_t rows : rows_) shape.add_extents(rows);
    }
    const auto job = client_->Submit(spec, model_);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or("");
  }

  // The job as soon as `condition` holds; fails on a job that ends otherwise, and at the limit.
  // Answers may fail while the scheduler is away.
  v1::Job WaitFor(const std::string& job, const std::string& what,
                  const std::function<bool(const v1::Job&)>& condition) {
    v1::Job last;
    while (absl::Now() < limit_) {
      const auto now = client_->GetJob(job);
      if (now.ok()) {
        last = *now;
        if (condition(last)) return last;
        if (IsFinal(last.state())) break;
      }
      absl::SleepFor(absl::Milliseconds(20));
    }
    ADD_FAILURE() << "not reached: " << what << "; the job: " << last.ShortDebugString();
    return last;
  }
  bool Profiling(const std::string& job) {
    const auto timeline = client_->GetTimeline(job);
    if (!timeline.ok()) return false;
    for (const v1::StageSpan& span : timeline->spans()) {
      if (span.kind() == v1::STAGE_PROFILE && span.end_unix_ns() == 0) return true;
    }
    return false;
  }

  // With `uniform` each task's trials are known; else only their sum.
  void CheckRecords(const v1::Job& job, bool uniform) {
    std::map<std::string, std::set<std::string>> traces;  // by task
    std::set<int64_t> candidates;
    v1::RecordQuery query;
    query.set_job(job.id());
    const absl::Status queried = client_->QueryRecords(query, [&](const v1::Record& record) {
      EXPECT_TRUE(candidates.insert(record.candidate()).second)
          << "candidate " << record.candidate() << " twice";
      EXPECT_TRUE(traces[record.workload_key()].insert(record.trace()).second)
          << "a schedule measured twice";
      EXPECT_NE(record.measurement().outcome(), v1::OUTCOME_LOST) << record.measurement().message();
      EXPECT_NE(record.measurement().outcome(), v1::OUTCOME_UNSPECIFIED);
      EXPECT_EQ(record.measurement().outcome() == v1::OUTCOME_OK, record.median_ns() > 0);
      return true;
    });
    EXPECT_TRUE(queried.ok()) << queried;
    EXPECT_EQ(static_cast<int>(candidates.size()), job.trials());
    EXPECT_EQ(static_cast<int>(traces.size()), job.tasks_size());
    int total = 0;
    int full = 0;
    for (const v1::TaskStatus& task : job.tasks()) {
      total += task.trials();
      full += task.trials() == kTrialsPerTask;
      EXPECT_EQ(static_cast<int>(traces[task.info().key()].size()), task.trials())
          << task.info().label();
      if (!uniform) continue;
      // A small task may have fewer schedules than the budget allows.
      const bool exhausted = task.doing().find("nothing left to try") != std::string::npos;
      EXPECT_TRUE(task.trials() == kTrialsPerTask || (exhausted && task.trials() < kTrialsPerTask))
          << task.info().label() << ": " << task.trials() << " trials, " << task.doing();
      EXPECT_GT(task.best_ns(), 0) << task.info().label();
    }
    EXPECT_EQ(total, job.trials());
    if (!uniform) {
      EXPECT_EQ(total, job.trials_budget());
    }
    EXPECT_TRUE(full >= 2 || !uniform) << "the model has several tasks with many schedules";
  }

  // The module has the records' kernels, apart from those that the comparison with the default schedules
  // took back.
  void CheckModule(const v1::Job& job) {
    EXPECT_GT(job.comparison().result().default_ns(), 0) << job.comparison().ShortDebugString();
    const auto bytes = client_->FetchModule(job.id(), v1::SCHEDULE_BEST);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    auto module = runtime::ParseModule(*bytes);
    ASSERT_TRUE(module.ok()) << module.status();
    std::set<std::string> plain;
    for (const v1::TaskStatus& task : job.tasks()) {
      if (task.keeps_default() || task.best_ns() <= 0 || job.comparison().module_is_default())
        plain.insert(task.info().key());
    }
    for (const runtime::KernelSpec& kernel : module->manifest.kernels)
      EXPECT_EQ(kernel.schedule, plain.count(kernel.task) ? "default" : "tuned") << kernel.label;
    const std::vector<std::string> inputs = RandomInputs(module->manifest, 3);
    const auto expected = InterpretModel(model_, {}, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto found = RunModule(*std::move(module), inputs);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->size(), expected->size());
    for (size_t k = 0; k < found->size(); ++k)
      EXPECT_LT(RelativeError((*found)[k], (*expected)[k]), 1e-4);
  }

  std::string model_;
  std::vector<int64_t> rows_;  // blocks of a forest
  int64_t min_repeat_us_ = 20000;
  const absl::Time limit_;
  MiniCluster cluster_;
  std::unique_ptr<ServiceClient> client_;
};

TEST_F(ClusterTest, EveryTrialOnceWhateverIsKilled) {
  const std::string job = Submit("uniform");
  ASSERT_FALSE(job.empty());

  // The worker, while a child of it measures.
  v1::Job before = WaitFor(job, "a running profile stage", [&](const v1::Job& now) {
    return now.trials() >= 2 && Profiling(job) && !cluster_.worker.Children().empty();
  });
  const std::vector<pid_t> children = cluster_.worker.Children();
  cluster_.worker.Kill();
  const absl::Time soon = absl::Now() + absl::Seconds(20);
  for (const pid_t child : children) {
    while (Alive(child) && absl::Now() < soon) absl::SleepFor(absl::Milliseconds(5));
    EXPECT_FALSE(Alive(child)) << "a stage outlived its worker";
  }
  EXPECT_LT(before.trials(), before.trials_budget()) << "the job was over too early for this test";
  cluster_.StartWorker();
  v1::Job after = WaitFor(job, "trials after the worker's return",
                          [&](const v1::Job& now) { return now.trials() >= before.trials() + 3; });

  // The tracker: its leases are void, tokens go on.
  cluster_.tracker.Kill();
  cluster_.StartTracker();
  before = after;
  after = WaitFor(job, "trials after the tracker's return",
                  [&](const v1::Job& now) { return now.trials() >= before.trials() + 3; });

  // The scheduler.
  EXPECT_EQ(after.state(), v1::JOB_TUNING) << "the job was over too early for this test";
  cluster_.scheduler.Kill();
  cluster_.StartScheduler();
  ASSERT_FALSE(cluster_.scheduler_address().empty());

  const v1::Job done =
      WaitFor(job, "done", [](const v1::Job& now) { return now.state() == v1::JOB_DONE; });
  ASSERT_EQ(done.state(), v1::JOB_DONE);
  EXPECT_GE(done.trials(), after.trials()) << "trials were lost";
  CheckRecords(done, true);
  CheckModule(done);

  EXPECT_EQ(cluster_.scheduler.Terminate(), 0);
  EXPECT_EQ(cluster_.worker.Terminate(), 0);
  EXPECT_EQ(cluster_.tracker.Terminate(), 0);
}

// By default tasks get trials where they save most; what is decided so far outlives the scheduler.
TEST_F(ClusterTest, EveryDaemonAnswersForItsHealth) {
  std::string worker;  // its address, once it has reported
  while (worker.empty() && absl::Now() < limit_) {
    const absl::StatusOr<v1::ListWorkersResponse> workers = client_->ListDevices();
    if (workers.ok() && workers->workers_size() > 0) worker = workers->workers(0).address();
    absl::SleepFor(absl::Milliseconds(50));
  }
  for (const std::string& address :
       {cluster_.tracker_address(), worker, cluster_.scheduler_address()}) {
    const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    const Answer answer = Call(channel, "grpc.health.v1.Health/Check", "");
    EXPECT_TRUE(answer.status.ok()) << address << ": " << answer.status.error_message();
    EXPECT_THAT(answer.messages, ::testing::ElementsAre("\x08\x01")) << address;  // SERVING
  }
}

TEST_F(ClusterTest, TheDefaultAllocationSurvivesItsScheduler) {
  const std::string job = Submit("", kTrialsPerTask / 2);
  ASSERT_FALSE(job.empty());
  const v1::Job before =
      WaitFor(job, "some trials", [](const v1::Job& now) { return now.trials() >= 4; });
  EXPECT_EQ(before.state(), v1::JOB_TUNING) << "the job was over too early for this test";
  cluster_.scheduler.Kill();
  cluster_.StartScheduler();
  const v1::Job done =
      WaitFor(job, "done", [](const v1::Job& now) { return now.state() == v1::JOB_DONE; });
  EXPECT_GE(done.trials(), before.trials()) << "trials were lost";
  CheckRecords(done, false);
  CheckModule(done);
}

// What one client's job measured of a forest, in all its forms and for all blocks of rows, is not measured again for another client.
TEST_F(ClusterTest, AForestIsMeasuredOnceForAllClients) {
  model_ = ForestText(20, 3, 4);
  rows_ = {1, 64};
  min_repeat_us_ = 1000;
  const auto is_done = [](const v1::Job& now) { return now.state() == v1::JOB_DONE; };
  const auto records = [&] {
    int count = 0;
    const absl::Status queried = client_->QueryRecords({}, [&](const v1::Record&) {
      ++count;
      return true;
    });
    EXPECT_TRUE(queried.ok()) << queried;
    return count;
  };
  const v1::Job first = WaitFor(Submit("uniform", 2, "joint"), "done", is_done);
  ASSERT_EQ(first.state(), v1::JOB_DONE);
  EXPECT_GT(first.trials(), 0);
  const int known = records();
  EXPECT_EQ(known, first.trials());

  client_ = std::make_unique<ServiceClient>(cluster_.scheduler_address());
  const v1::Job second = WaitFor(Submit("uniform", 2, "joint"), "done", is_done);
  ASSERT_EQ(second.state(), v1::JOB_DONE);
  EXPECT_EQ(second.trials(), 0) << second.ShortDebugString();
  EXPECT_EQ(records(), known);
  for (const v1::Job* job : {&first, &second}) {
    const auto bytes = client_->FetchModule(job->id(), v1::SCHEDULE_BEST);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto module = runtime::ParseModule(*bytes);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(module->manifest.NumBlocks(), 2u);
    // A module of default schedules does not say what they took.
    if (job->comparison().module_is_default()) continue;
    for (const runtime::KernelSpec& kernel : module->manifest.kernels)
      EXPECT_GT(kernel.record_ms, 0) << kernel.label << ", " << kernel.schedule;
  }
}

// A plan is chosen while scheduler and worker are killed: in the survey, beside the plan stage, and while
// the plan's tasks are tuned. No kernel is surveyed twice, and the plan stays.
TEST_F(ClusterTest, APlanIsSettledOnceWhateverIsKilled) {
  constexpr int kTrials = 3;
  model_ = zoo::MakeZooModel("dqn", 1).value();
  const std::string job = Submit("uniform", kTrials, "joint");
  ASSERT_FALSE(job.empty());
  const v1::Job survey = WaitFor(job, "the survey", [](const v1::Job& now) {
    return now.state() == v1::JOB_TUNING && now.trials() >= 3;
  });
  EXPECT_FALSE(survey.plan_settled());
  EXPECT_GT(survey.tasks_size(), 10) << "kernels of several plans";
  cluster_.scheduler.Kill();
  cluster_.StartScheduler();
  WaitFor(job, "the plan stage", [](const v1::Job& now) {
    return now.state() == v1::JOB_PLANNING || now.has_plan_report();
  });
  cluster_.worker.Kill();
  cluster_.StartWorker();
  const v1::Job settled = WaitFor(job, "the plan", [](const v1::Job& now) {
    return now.plan_settled() && now.state() == v1::JOB_TUNING;
  });
  EXPECT_GT(settled.plan_report().contenders_size(), 2);
  cluster_.scheduler.Kill();
  cluster_.StartScheduler();
  const v1::Job done =
      WaitFor(job, "done", [](const v1::Job& now) { return now.state() == v1::JOB_DONE; });
  ASSERT_EQ(done.state(), v1::JOB_DONE);
  EXPECT_GE(done.surveys(), 1);
  EXPECT_TRUE(done.plan_report().tuned());
  std::map<std::string, int> weights;
  for (const v1::TaskStatus& task : settled.tasks())
    weights[task.info().key()] = task.info().weight();
  std::set<int64_t> candidates;
  std::set<std::string> traces;
  v1::RecordQuery query;
  query.set_job(job);
  const absl::Status queried = client_->QueryRecords(query, [&](const v1::Record& record) {
    EXPECT_TRUE(candidates.insert(record.candidate()).second);
    EXPECT_TRUE(traces.insert(record.workload_key() + record.trace()).second)
        << "a schedule measured twice";
    return true;
  });
  EXPECT_TRUE(queried.ok()) << queried;
  EXPECT_EQ(static_cast<int>(candidates.size()), done.trials());
  for (const v1::TaskStatus& task : done.tasks()) {
    const bool exhausted = task.doing().find("nothing left to try") != std::string::npos;
    const auto weight = weights.find(task.info().key());
    // What the last plan stages added is not measured any more.
    const int most = weight == weights.end() ? 0 : weight->second > 0 ? kTrials : 1;
    const int least = most == kTrials && !exhausted ? kTrials : 0;
    EXPECT_LE(task.trials(), most) << task.info().label();
    EXPECT_GE(task.trials(), least) << task.info().label();
  }
  CheckModule(done);
}

}  // namespace
}  // namespace heddle
