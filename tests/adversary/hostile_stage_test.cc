// One stage against a worker that sends mutated events, for every kind of event: what the scheduler takes from it is what a worker may send,
// and everything else is a fault that names the worker.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/files/blob_store.h"
#include "base/sha256.h"
#include "base/vocabulary/workload_key.h"
#include "proto/message_rules.h"
#include "scheduler/service/stages/stage_runner.h"
#include "scheduler/service/stages/thread_pool.h"
#include "scheduler/store/memory_record_store.h"
#include "tests/adversary/mutate.h"
#include "tests/scheduler/service/fake_cluster.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

// Answers every stage with the same events, whatever it is sent.
class ScriptedWorker final : public v1::WorkerService::Service {
 public:
  void SetEvents(std::vector<v1::StageEvent> events) {
    absl::MutexLock lock(&mutex_);
    events_ = std::move(events);
  }
  grpc::Status RunStage(grpc::ServerContext*,
                        grpc::ServerReaderWriter<v1::StageEvent, v1::StageInput>* stream) override {
    v1::StageInput input;
    stream->Read(&input);
    std::vector<v1::StageEvent> events;
    {
      absl::MutexLock lock(&mutex_);
      events = events_;
    }
    for (const v1::StageEvent& event : events) {
      if (!stream->Write(event)) break;
    }
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mutex_;
  std::vector<v1::StageEvent> events_ ABSL_GUARDED_BY(mutex_);
};

// A stage and what a good worker answers to it.
struct Script {
  v1::StageStart start;
  std::vector<v1::StageInput> inputs;
  std::vector<v1::StageEvent> events;
};

v1::TaskInfo TaskOf(const std::string& workload) {
  v1::TaskInfo task;
  task.set_workload(workload);
  task.set_key(WorkloadKey(workload));
  task.set_weight(2);
  task.set_flops(1000);
  task.set_label("matmul");
  return task;
}

v1::StageEvent ChunkOf(const std::string& name, const std::string& bytes) {
  v1::StageEvent event;
  event.mutable_chunk()->set_name(name);
  event.mutable_chunk()->set_data(bytes);
  event.mutable_chunk()->set_last(true);
  event.mutable_chunk()->set_sha256(Sha256Hex(bytes));
  return event;
}

void FillFactor(const std::string& key, v1::KernelFactor* factor) {
  factor->set_workload_key(key);
  factor->set_op("matmul");
  factor->set_log_factor(0.5);
}

void FillGain(v1::Gain* gain) {
  gain->set_ratio(1.2);
  gain->set_low(1.1);
  gain->set_high(1.3);
  gain->set_rounds(7);
}

void FillMeasurement(v1::Measurement* measured) {
  measured->set_outcome(v1::OUTCOME_OK);
  for (const double ns : {12.0, 10.0, 11.0}) measured->add_samples_ns(ns);
  measured->set_profile_ns(5000);
  measured->mutable_evidence()->set_cpu_mhz(3000);
  measured->mutable_evidence()->set_times_measured(1);
}

Script ScriptOf(v1::StageKind kind) {
  Script script;
  script.start.set_kind(kind);
  script.start.set_slot("cpu0");
  script.start.set_time_limit_ms(60'000);
  auto& events = script.events;
  const auto with_candidates = [&] {
    for (const int64_t id : {1, 2}) {
      v1::StageInput& input = script.inputs.emplace_back();
      (kind == v1::STAGE_BUILD ? input.mutable_build()->mutable_candidate()
                               : input.mutable_profile()->mutable_candidate())
          ->set_id(id);
      events.emplace_back().mutable_candidate_started()->set_candidate(id);
      v1::StageEvent& answer = events.emplace_back();
      if (kind == v1::STAGE_PROFILE) {
        answer.mutable_profiled()->set_candidate(id);
        FillMeasurement(answer.mutable_profiled()->mutable_measurement());
        continue;
      }
      v1::BuildResult& built = *answer.mutable_built();
      built.set_candidate(id);
      built.set_build_ns(100);
      if (id == 1) {
        built.mutable_artifact()->set_shared_object("code");
        built.mutable_artifact()->add_kernels()->set_symbol("f");
      } else {
        built.mutable_failure()->set_outcome(v1::OUTCOME_BUILD_ERROR);
        built.mutable_failure()->set_message("a step refused");
      }
    }
  };
  switch (kind) {
    case v1::STAGE_IMPORT: {
      script.start.mutable_import();
      events.emplace_back().mutable_progress()->set_total(3);
      v1::ImportResult& imported = *events.emplace_back().mutable_import();
      for (const char* workload : {"one", "two"}) *imported.add_tasks() = TaskOf(workload);
      imported.add_inputs("x: f32[1]");
      imported.set_plan("a plan");
      break;
    }
    case v1::STAGE_PROPOSE: {
      script.start.mutable_propose()->set_count(4);
      v1::TransferModel& model = *events.emplace_back().mutable_transfer_model();
      model.set_model("trees");
      model.set_tasks(2);
      v1::CandidateList& list = *events.emplace_back().mutable_candidates();
      for (const char* trace : {"", "split a 2"}) {
        v1::Candidate& candidate = *list.add_candidates();
        candidate.set_trace(trace);
        candidate.set_origin("random");
        candidate.mutable_prediction()->set_score(-1.5);
      }
      events.push_back(ChunkOf("state", "a state"));
      break;
    }
    case v1::STAGE_BUILD:
      script.start.mutable_build()->set_workload("one");
      with_candidates();
      break;
    case v1::STAGE_PROFILE:
      script.start.mutable_profile()->set_workload("one");
      with_candidates();
      break;
    case v1::STAGE_UPDATE: {
      script.start.mutable_update();
      v1::SearchReport& report = *events.emplace_back().mutable_report();
      report.set_samples(4);
      report.add_features()->set_importance(0.5);
      v1::TransferSamples& samples = *events.emplace_back().mutable_transfer_samples();
      samples.set_samples("samples");
      samples.set_measured(4);
      events.push_back(ChunkOf("state", "a state"));
      break;
    }
    case v1::STAGE_COMPILE:
      script.start.mutable_compile()->set_with_default(true);
      events.push_back(ChunkOf("module", "a module"));
      events.push_back(ChunkOf("default", "a default module"));
      break;
    case v1::STAGE_COMPARE: {
      script.start.mutable_compare();
      v1::CompareResult& result = *events.emplace_back().mutable_compared();
      result.set_ns(100);
      result.set_default_ns(120);
      FillGain(result.mutable_gain());
      v1::CompareResult::Task& task = *result.add_tasks();
      task.set_workload_key(WorkloadKey("one"));
      FillGain(task.mutable_gain());
      break;
    }
    default: {
      v1::PlanSpec::KernelTime& time = *script.start.mutable_plan()->add_times();
      time.set_workload_key(WorkloadKey("one"));
      time.set_ns(100);
      v1::PlanResult& planned = *events.emplace_back().mutable_planned();
      planned.set_plan("a plan");
      *planned.add_tasks() = TaskOf("one");
      planned.mutable_tasks(0)->clear_workload();
      *planned.add_tasks() = TaskOf("two");
      planned.mutable_report()->add_contenders()->set_ns(100);
      FillFactor(WorkloadKey("one"), planned.add_experience());
    }
  }
  v1::StageFinished& finished = *events.emplace_back().mutable_finished();
  finished.set_wall_ns(1000);
  finished.add_warnings("a warning");
  return script;
}

class HostileStageTest : public ::testing::TestWithParam<v1::StageKind> {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/hostile_stage", getpid());
    std::filesystem::remove_all(directory_);
    blobs_ = *BlobStore::Open(directory_);
    worker_server_ = Serve(&worker_, &worker_address_);
    std::string tracker_address;
    tracker_server_ = Serve(&tracker_, &tracker_address);
    v1::ListWorkersResponse workers;
    workers.add_workers()->set_address(worker_address_);
    tracker_.SetWorkers(workers);
    stub_ = v1::TrackerService::NewStub(
        grpc::CreateChannel(tracker_address, grpc::InsecureChannelCredentials()));
    leases_ = std::make_unique<LeaseKeeper>(stub_, "test", absl::Seconds(60));
  }
  void TearDown() override {
    leases_.reset();
    tracker_server_->Shutdown();
    worker_server_->Shutdown();
    blobs_.reset();
    std::filesystem::remove_all(directory_);
  }
  static std::unique_ptr<grpc::Server> Serve(grpc::Service* service, std::string* address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    auto server = builder.BuildAndStart();
    *address = absl::StrCat("127.0.0.1:", port);
    return server;
  }
  // Runs the stage to its end and returns what it posted; the last one is its end.
  std::vector<Event> Run(const Script& script) {
    worker_.SetEvents(script.events);
    StageOrder order;
    order.attempt = AttemptId{1};
    order.slot = {"w1", "cpu0"};
    order.purpose = "test";
    order.start = script.start;
    order.inputs = script.inputs;
    order.transfer_model.emplace();
    absl::Mutex mutex;
    std::vector<Event> posted;
    absl::Notification ended;
    StageRunner::Environment environment;
    environment.starters = environment.pool = &pool_;
    environment.leases = leases_.get();
    environment.credentials = &credentials_;
    environment.channels = &channels_;
    environment.fits = &fits_;
    environment.store = store_.get();
    environment.blobs = blobs_.get();
    environment.leased = [](AttemptId, const v1::Lease&) { return absl::OkStatus(); };
    // Every other time there is no room for more.
    environment.post = [&](Event event) {
      absl::MutexLock lock(&mutex);
      posted.push_back(std::move(event));
      return posted.size() % 2 == 0;
    };
    environment.await_room = [&](std::function<void()> resume) { pool_.Add(std::move(resume)); };
    environment.ended = [&](AttemptId) { ended.Notify(); };
    {
      StageRunner runner(std::move(order), std::move(environment));
      ended.WaitForNotification();
    }
    return posted;
  }

  ThreadPool pool_{2};
  const Credentials credentials_;
  WorkerChannels channels_{&credentials_};
  FitsToAll fits_;
  std::string directory_, worker_address_;
  std::unique_ptr<RecordStore> store_ = MakeMemoryRecordStore();
  std::unique_ptr<BlobStore> blobs_;
  ScriptedWorker worker_;
  FakeTracker tracker_;
  std::unique_ptr<grpc::Server> worker_server_, tracker_server_;
  std::shared_ptr<v1::TrackerService::StubInterface> stub_;
  std::unique_ptr<LeaseKeeper> leases_;
};

void ExpectSane(const v1::StageStart& start, const Event& event) {
  if (const auto* profiled = std::get_if<CandidateProfiled>(&event)) {
    EXPECT_TRUE(std::isfinite(profiled->median_ns)) << profiled->median_ns;
    EXPECT_TRUE(std::isfinite(profiled->device_ns) && profiled->device_ns >= 0);
    EXPECT_EQ(profiled->outcome == v1::OUTCOME_OK, profiled->median_ns > 0);
    EXPECT_TRUE(AllFinite(profiled->measured->measurement));
    EXPECT_EQ(profiled->measured->measurement.evidence().worker(), "w1");
  } else if (const auto* built = std::get_if<CandidateBuilt>(&event)) {
    EXPECT_EQ(built->outcome == v1::OUTCOME_OK, built->artifact != nullptr);
    EXPECT_TRUE(built->measured == nullptr || AllFinite(built->measured->measurement));
  } else if (const auto* end = std::get_if<StageFinished>(&event)) {
    if (const auto* imported = std::get_if<Imported>(&end->result)) {
      EXPECT_TRUE(AllFinite(imported->model));
      for (const v1::TaskInfo& task : imported->model.tasks())
        EXPECT_EQ(task.key(), WorkloadKey(task.workload()));
    } else if (const auto* planned = std::get_if<Planned>(&end->result)) {
      EXPECT_TRUE(AllFinite(planned->plan));
    } else if (const auto* compared = std::get_if<Compared>(&end->result)) {
      EXPECT_TRUE(AllFinite(compared->result));
    } else if (const auto* proposed = std::get_if<Proposed>(&end->result)) {
      EXPECT_LE(proposed->count, start.propose().count());
      for (const v1::Candidate& made : proposed->candidates) EXPECT_TRUE(AllFinite(made));
    } else if (const auto* updated = std::get_if<Updated>(&end->result)) {
      EXPECT_TRUE(AllFinite(updated->report));
    }
  }
}

TEST_P(HostileStageTest, TakesWhatAWorkerMaySend) {
  const Script script = ScriptOf(GetParam());
  const std::vector<Event> posted = Run(script);
  const auto& end = std::get<StageFinished>(posted.back());
  EXPECT_EQ(end.fault.kind, v1::FAULT_NONE) << end.fault.message;
  EXPECT_EQ(end.warnings, std::vector<std::string>{"a warning"});
  for (const Event& event : posted) ExpectSane(script.start, event);
}

TEST_P(HostileStageTest, RefusesWhatNoWorkerMaySend) {
  const Script good = ScriptOf(GetParam());
  int refused = 0;
  for (size_t mutated = 0; mutated < good.events.size(); ++mutated) {
    for (int i = 0; i < Mutations(40); ++i) {
      const uint64_t seed = 1000 * mutated + static_cast<uint64_t>(i);
      Mutator mutator(seed);
      Script bad = good;
      v1::StageEvent& event = bad.events[mutated];
      // Now and then an event comes twice, or instead of another one.
      if (mutator.Below(10) == 0) {
        event = good.events[mutator.Below(good.events.size())];
      } else {
        mutator.Mutate(&event);
      }
      SCOPED_TRACE(absl::StrCat("event ", mutated, ", seed ", seed, ": ",
                                event.ShortDebugString().substr(0, 1000)));
      const std::vector<Event> posted = Run(bad);
      ASSERT_FALSE(posted.empty());
      const auto* end = std::get_if<StageFinished>(&posted.back());
      ASSERT_NE(end, nullptr);
      for (const Event& one : posted) ExpectSane(good.start, one);
      if (CheckEvent(good.start, event).ok()) continue;
      ++refused;
      EXPECT_EQ(end->fault.kind, v1::FAULT_INFRASTRUCTURE) << end->fault.message;
      EXPECT_THAT(end->fault.message, HasSubstr("worker w1"));
      EXPECT_TRUE(std::holds_alternative<std::monostate>(end->result));
    }
  }
  EXPECT_GT(refused, 0);
}

// A port of this machine that does not answer who connects, as one of a machine that is gone.
class SilentPort {
 public:
  SilentPort() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    auto* const any = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(listener_, any, size), 0);
    EXPECT_EQ(listen(listener_, 0), 0);
    EXPECT_EQ(getsockname(listener_, any, &size), 0);
    for (int& waits : waiting_) {  // Linux drops what comes when its queue is full
      waits = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      (void)connect(waits, any, size);
    }
  }
  ~SilentPort() {
    for (const int waits : waiting_) close(waits);
    close(listener_);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", ntohs(address_.sin_port)); }

 private:
  const int listener_;
  sockaddr_in address_{};
  std::array<int, 4> waiting_;
};

// Such a stage was not begun, however long it took to find that out, so it costs its job no attempt.
using UnreachedStageTest = HostileStageTest;
TEST_P(UnreachedStageTest, IsNotBegun) {
  const SilentPort gone;
  v1::ListWorkersResponse workers;
  workers.add_workers()->set_address(gone.address());
  tracker_.SetWorkers(workers);
  const absl::Time begun = absl::Now();
  const std::vector<Event> posted = Run(ScriptOf(GetParam()));
  const auto& end = std::get<StageFinished>(posted.back());
  EXPECT_EQ(end.fault.kind, v1::FAULT_INFRASTRUCTURE) << end.fault.message;
  EXPECT_FALSE(end.started || end.interrupted || end.silent);
  EXPECT_GT(absl::Now() - begun, absl::Seconds(2))
      << "this is about a machine that does not answer";
}
INSTANTIATE_TEST_SUITE_P(All, UnreachedStageTest, ::testing::Values(v1::STAGE_IMPORT),
                         [](const auto& info) { return v1::StageKind_Name(info.param); });

INSTANTIATE_TEST_SUITE_P(All, HostileStageTest,
                         ::testing::Values(v1::STAGE_IMPORT, v1::STAGE_PROPOSE, v1::STAGE_BUILD,
                                           v1::STAGE_PROFILE, v1::STAGE_UPDATE, v1::STAGE_COMPILE,
                                           v1::STAGE_COMPARE, v1::STAGE_PLAN),
                         [](const auto& info) { return v1::StageKind_Name(info.param); });

}  // namespace
}  // namespace heddle::scheduler
