// A whole worker with its tracker over real gRPC on loopback; only what the children compute is
// made up.
#include "worker/supervisor/worker_server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "tests/adversary/mutate.h"
#include "tests/eventually.h"
#include "tests/places.h"
#include "tracker/tracker_service.h"
#include "worker/confine/stage_folder.h"

extern char** environ;

namespace heddle::worker {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

// Of what takes milliseconds, for machines that stand still.
constexpr absl::Duration kLimit = absl::Seconds(60);

bool Alive(pid_t pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  return std::getline(stat, line) && line.find(") Z") == std::string::npos;
}

class Tracker {
  // Passes calls on to the service, and may change what it answers to heartbeats.
  class Front final : public v1::TrackerService::Service {
   public:
    explicit Front(v1::TrackerService::Service* behind) : behind_(behind) {}
    void SetMutator(std::function<void(v1::SynchronizeResponse*)> mutate) {
      absl::MutexLock lock(&mutex_);
      mutate_ = std::move(mutate);
    }
    grpc::Status Synchronize(grpc::ServerContext* context, const v1::SynchronizeRequest* request,
                             v1::SynchronizeResponse* response) override {
      const grpc::Status status = behind_->Synchronize(context, request, response);
      absl::MutexLock lock(&mutex_);
      if (mutate_) mutate_(response);
      return status;
    }
    grpc::Status Acquire(grpc::ServerContext* context, const v1::AcquireRequest* request,
                         v1::Lease* lease) override {
      return behind_->Acquire(context, request, lease);
    }
    grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseRequest* request,
                         v1::ReleaseResponse* response) override {
      return behind_->Release(context, request, response);
    }
    grpc::Status ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest* request,
                             v1::ListWorkersResponse* response) override {
      return behind_->ListWorkers(context, request, response);
    }

   private:
    v1::TrackerService::Service* const behind_;
    absl::Mutex mutex_;
    std::function<void(v1::SynchronizeResponse*)> mutate_ ABSL_GUARDED_BY(mutex_);
  };

 public:
  explicit Tracker(int port = 0) {
    tracker::ServiceOptions options;
    options.pool.sync_interval = absl::Milliseconds(100);
    service_ = std::make_unique<tracker::TrackerServiceImpl>(
        options, tracker::FencingTokens::Open("").value());
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                             &port_);
    front_ = std::make_unique<Front>(service_.get());
    builder.RegisterService(front_.get());
    server_ = builder.BuildAndStart();
    stub_ = v1::TrackerService::NewStub(
        grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
  }
  ~Tracker() {
    service_->Stop();
    server_->Shutdown();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int port() const { return port_; }
  // Changes every answer to a heartbeat, under a lock; empty: none is changed.
  void SetMutator(std::function<void(v1::SynchronizeResponse*)> mutate) {
    front_->SetMutator(std::move(mutate));
  }

  v1::ListWorkersResponse List() {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    stub_->ListWorkers(&context, {}, &response);
    return response;
  }
  bool WaitForWorker() {
    return Eventually([this] { return List().workers_size() == 1; });
  }
  v1::Lease Acquire(const std::string& worker, const std::string& slot,
                    int64_t duration_ms = 60000) {
    v1::AcquireRequest request;
    request.set_worker(worker);
    request.set_slot(slot);
    request.set_holder("test");
    request.set_duration_ms(duration_ms);
    grpc::ClientContext context;
    v1::Lease lease;
    const grpc::Status status = stub_->Acquire(&context, request, &lease);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return lease;
  }
  void Release(const v1::Lease& lease) {
    v1::ReleaseRequest request;
    request.set_lease_id(lease.id());
    grpc::ClientContext context;
    v1::ReleaseResponse response;
    EXPECT_TRUE(stub_->Release(&context, request, &response).ok());
  }

 private:
  int port_ = 0;
  std::unique_ptr<tracker::TrackerServiceImpl> service_;
  std::unique_ptr<Front> front_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::TrackerService::Stub> stub_;
};

// One RunStage call as a caller sees it.
class Call {
 public:
  Call(const std::string& address, const v1::StageInput& first)
      : stub_(v1::WorkerService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    context_.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kLimit));
    stream_ = stub_->RunStage(&context_);
    stream_->Write(first);
  }
  void Send(int64_t id, const std::string& trace) {
    v1::StageInput input;
    input.mutable_profile()->mutable_candidate()->set_id(id);
    input.mutable_profile()->mutable_candidate()->set_trace(trace);
    stream_->Write(input);
  }
  void Send(const v1::StageInput& input) { stream_->Write(input); }
  void HalfClose() { stream_->WritesDone(); }
  // The next event that is not of kind candidate_started; nothing at the end.
  std::optional<v1::StageEvent> Next() {
    v1::StageEvent event;
    while (stream_->Read(&event)) {
      if (!event.has_candidate_started()) return event;
    }
    return std::nullopt;
  }
  bool WaitForStart() {
    v1::StageEvent event;
    return stream_->Read(&event) && event.has_candidate_started();
  }
  grpc::Status Finish() { return stream_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StageInput, v1::StageEvent>> stream_;
};

v1::StageInput Start(const v1::Lease& lease) {
  v1::StageInput input;
  v1::StageStart* start = input.mutable_start();
  start->set_job("j1");
  start->set_kind(v1::STAGE_PROFILE);
  start->mutable_profile()->set_workload("w");
  start->set_slot(lease.slot());
  start->set_lease_id(lease.id());
  start->set_fencing_token(lease.fencing_token());
  return input;
}

class WorkerServerTest : public ::testing::Test {
 protected:
  WorkerServerTest() : tracker_(std::make_unique<Tracker>()) { StartWorker({}); }
  void StartWorker(WorkerOptions options) {
    worker_.reset();
    options.tracker = tracker_->address();
    options.id = "w";
    options.version = "1";
    const int core = UsableCores().front();
    options.slots = {{"profile", true, {core}}, {"other", true, {core}}, {"cpu", false, {core}}};
    options.builds = {"llvm", "a kind"};
    options.device_key = "key";
    options.target = "llvm -mcpu=x";
    options.machine = "what was measured";
    const std::string child = std::string(HEDDLE_BIN_DIR) + "/heddle-fake-child";
    options.runner.child_command = {child, "--stage-child"};
    worker_ = WorkerServer::Start(options).value();
    EXPECT_TRUE(Eventually([this] {
      const v1::ListWorkersResponse list = tracker_->List();
      return list.workers_size() == 1 && list.workers(0).address() == WorkerAddress();
    }));
  }
  std::string WorkerAddress() const { return absl::StrCat("127.0.0.1:", worker_->port()); }

  std::unique_ptr<Tracker> tracker_;
  std::unique_ptr<WorkerServer> worker_;
};

TEST_F(WorkerServerTest, CpuSlotsSayWhatTheyBuild) {
  const v1::ListWorkersResponse list = tracker_->List();
  ASSERT_EQ(list.workers(0).slots_size(), 3);
  for (const v1::SlotStatus& slot : list.workers(0).slots()) {
    const auto& builds = slot.slot().builds();
    const bool cpu = slot.slot().kind() == v1::SLOT_CPU;
    EXPECT_EQ(std::vector<std::string>(builds.begin(), builds.end()),
              cpu ? std::vector<std::string>({"llvm", "a kind"}) : std::vector<std::string>());
  }
}

TEST_F(WorkerServerTest, DeviceSlotsSayHowFastTheyAre) {
  const v1::ListWorkersResponse list = tracker_->List();
  for (const v1::SlotStatus& slot : list.workers(0).slots()) {
    EXPECT_EQ(slot.slot().machine(), slot.slot().kind() == v1::SLOT_CPU ? "" : "what was measured");
  }
}

TEST_F(WorkerServerTest, CandidatesStreamBothWays) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  EXPECT_EQ(lease.address(), WorkerAddress());
  Call call(lease.address(), Start(lease));
  // The next candidate is sent only when the answer to the one before is here: nothing may wait for
  // the end of the input.
  for (int64_t id = 1; id <= 5; ++id) {
    call.Send(id, id == 3 ? "segv" : "ok");
    const auto event = call.Next();
    ASSERT_TRUE(event.has_value() && event->has_profiled());
    EXPECT_EQ(event->profiled().candidate(), id);
    EXPECT_EQ(event->profiled().measurement().outcome(),
              id == 3 ? v1::OUTCOME_RUN_CRASH : v1::OUTCOME_OK);
  }
  call.HalfClose();
  const auto last = call.Next();
  ASSERT_TRUE(last.has_value() && last->has_finished());
  EXPECT_EQ(last->finished().fault().kind(), v1::FAULT_NONE);
  EXPECT_FALSE(call.Next().has_value());
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(WorkerServerTest, ADisturbedSlotIsInQuarantineUntilACanaryPasses) {
  std::atomic<bool> calm = false;
  WorkerOptions options;
  options.guard = {.disturbed_in_a_row = 3,
                   .disturbed_for = absl::ZeroDuration(),
                   .first_rest = absl::Hours(1),
                   .check_every = absl::Milliseconds(20)};
  options.read = [&calm](const std::vector<int>&) {
    Reading reading;
    reading.at = MonotonicNow();
    if (!calm) reading.switches = absl::ToUnixMillis(reading.at);  // somebody runs all the time
    return reading;
  };
  StartWorker(options);
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(lease.address(), Start(lease));
  for (int64_t id = 1; id <= 4; ++id) {
    call.Send(id, id == 1 ? "ok" : "noisy");
    ASSERT_TRUE(call.Next().has_value());
  }
  call.HalfClose();
  ASSERT_TRUE(call.Next().has_value());
  tracker_->Release(lease);
  const auto slot = [this] { return tracker_->List().workers(0).slots(0); };
  ASSERT_TRUE(Eventually([&] { return slot().state() == v1::SLOT_QUARANTINED; }));
  EXPECT_THAT(slot().reason(), HasSubstr("3 measurements in a row"));
  absl::SleepFor(absl::Seconds(1));
  EXPECT_EQ(slot().state(), v1::SLOT_QUARANTINED) << "the disturbance lasts";
  calm = true;
  ASSERT_TRUE(Eventually([&] { return slot().state() == v1::SLOT_FREE; }));
  worker_.reset();  // it reads `calm`
}

TEST_F(WorkerServerTest, LeasesAreChecked) {
  v1::Lease lease = tracker_->Acquire("w", "profile");
  v1::Lease forged = lease;
  forged.set_id("L1");
  EXPECT_EQ(Call(WorkerAddress(), Start(forged)).Finish().error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  forged = lease;
  forged.set_fencing_token(lease.fencing_token() - 1);
  EXPECT_EQ(Call(WorkerAddress(), Start(forged)).Finish().error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  tracker_->Release(lease);
  // Known as valid until the next heartbeat, which then stops the stage.
  Call call(WorkerAddress(), Start(lease));
  const auto last = call.Next();
  if (last.has_value()) {
    EXPECT_EQ(last->finished().fault().kind(), v1::FAULT_INFRASTRUCTURE);
  } else {
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
}

TEST_F(WorkerServerTest, MalformedCallsAreRefused) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  v1::StageInput input;
  input.mutable_chunk();
  EXPECT_EQ(Call(WorkerAddress(), input).Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  input = Start(lease);
  input.mutable_start()->set_kind(v1::STAGE_BUILD);
  EXPECT_EQ(Call(WorkerAddress(), input).Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  input = Start(lease);
  input.mutable_start()->set_time_limit_ms(-1);
  EXPECT_EQ(Call(WorkerAddress(), input).Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Whatever a caller with a lease sends, the call ends by itself with a typed answer, and the slot is free for the next one.
TEST_F(WorkerServerTest, MutatedInputsEndTheirCallAndNothingElse) {
  int refused = 0;
  for (int i = 0; i < Mutations(60); ++i) {
    Mutator mutator(static_cast<uint64_t>(i));
    const v1::Lease lease = tracker_->Acquire("w", "profile");
    v1::StageInput start = Start(lease), item;
    item.mutable_profile()->mutable_candidate()->set_id(1);
    item.mutable_profile()->mutable_candidate()->set_trace("ok");
    item.mutable_profile()->mutable_artifact()->add_kernels()->set_symbol("f");
    mutator.Mutate(i % 2 == 0 ? &start : &item);
    Call call(lease.address(), start);
    call.Send(item);
    call.HalfClose();
    while (call.Next()) {
    }
    const grpc::Status status = call.Finish();
    refused += !status.ok();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ||
                status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
                status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
        << "seed " << i << ": " << status.error_code() << " " << status.error_message();
    tracker_->Release(lease);
  }
  EXPECT_GT(refused, 0);
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(lease.address(), Start(lease));
  call.Send(1, "ok");
  const auto event = call.Next();
  ASSERT_TRUE(event.has_value() && event->has_profiled());
  EXPECT_EQ(event->profiled().measurement().outcome(), v1::OUTCOME_OK);
}

TEST_F(WorkerServerTest, AFaultEndsTheCallBeforeTheInputDoes) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  v1::StageInput start = Start(lease);
  start.mutable_start()->mutable_profile()->set_workload("malformed");
  Call call(WorkerAddress(), start);
  const auto last = call.Next();
  ASSERT_TRUE(last.has_value() && last->has_finished());
  EXPECT_EQ(last->finished().fault().kind(), v1::FAULT_USER);
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(WorkerServerTest, WhatItDoesIsCounted) {
  const auto shows = [this](const std::string& line) {
    return Eventually(
        [&] { return worker_->metrics()->Text().find("\n" + line + "\n") != std::string::npos; });
  };
  EXPECT_TRUE(shows("heddle_worker_slots 3"));
  EXPECT_TRUE(shows("heddle_worker_tracker_connected 1"));
  EXPECT_TRUE(shows("heddle_worker_confinement{mechanism=\"filter\"} 0"));
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(WorkerAddress(), Start(lease));
  call.Send(1, "ok");
  EXPECT_TRUE(call.Next().has_value());
  EXPECT_TRUE(shows("heddle_worker_running_stages 1"));
  call.HalfClose();
  while (call.Next()) continue;
  EXPECT_TRUE(shows("heddle_worker_running_stages 0"));
  EXPECT_TRUE(shows("heddle_worker_stages_total{result=\"ok\",stage=\"profile\"} 1"));
  EXPECT_TRUE(shows("heddle_worker_stage_duration_seconds_count{stage=\"profile\"} 1"));
  v1::Lease forged = lease;
  forged.set_id("L1");
  EXPECT_FALSE(Call(WorkerAddress(), Start(forged)).Finish().ok());
  EXPECT_TRUE(shows("heddle_worker_refused_stages_total{reason=\"lease\"} 1"));
  EXPECT_TRUE(worker_->Live().ok());
  EXPECT_TRUE(worker_->Ready().ok());
  tracker_.reset();
  EXPECT_TRUE(shows("heddle_worker_tracker_connected 0"));
  EXPECT_TRUE(shows("heddle_worker_tracker_disconnects_total 1"));
  EXPECT_TRUE(absl::IsUnavailable(worker_->Ready()));
  EXPECT_TRUE(worker_->Live().ok()) << "a restart of the worker would not help";
}

TEST_F(WorkerServerTest, ALostLeaseStopsTheStageAndTheSlotIsFreeAgain) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(WorkerAddress(), Start(lease));
  call.Send(1, "hang");
  ASSERT_TRUE(call.WaitForStart());
  tracker_->Release(lease);
  const v1::Lease next = tracker_->Acquire("w", "other");  // shares the core
  Call second(WorkerAddress(), Start(next));
  second.Send(1, "ok");
  const auto result = second.Next();
  ASSERT_TRUE(result.has_value() && result->has_profiled());
  const auto last = call.Next();
  ASSERT_TRUE(last.has_value() && last->has_finished());
  EXPECT_EQ(last->finished().fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_THAT(last->finished().fault().message(), HasSubstr(lease.id()));
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::ABORTED) << "it costs no attempt";
  second.Cancel();
}

TEST_F(WorkerServerTest, CancellingFreesTheSlot) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  {
    Call call(WorkerAddress(), Start(lease));
    call.Send(1, "hang");
    ASSERT_TRUE(call.WaitForStart());
    call.Cancel();
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  Call call(WorkerAddress(), Start(lease));
  call.Send(2, "ok");
  const auto result = call.Next();
  ASSERT_TRUE(result.has_value() && result->has_profiled());
  call.Cancel();
}

// The worker waits a minute for a caller that reads nothing. The stage's limit holds all the same.
TEST_F(WorkerServerTest, LimitsHoldWhileTheCallerReadsNothing) {
  const auto stages = [] {
    int live = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream stat(entry.path() / "stat");
      std::string line;
      pid_t parent = 0;
      char state = 0;
      live += std::getline(stat, line) &&
              sscanf(line.c_str() + line.rfind(')') + 1, " %c %d", &state, &parent) == 2 &&
              parent == getpid() && state != 'Z';
    }
    return live;
  };
  const v1::Lease lease = tracker_->Acquire("w", "cpu");
  v1::StageInput start = Start(lease);
  start.mutable_start()->set_kind(v1::STAGE_PROPOSE);
  start.mutable_start()->mutable_propose()->mutable_search()->set_strategy("echo");
  start.mutable_start()->set_time_limit_ms(3000);
  Call call(WorkerAddress(), start);
  v1::StageInput input;
  input.mutable_chunk()->set_data(std::string(700'000, 'x'));  // more than gRPC takes in unread
  for (int chunk = 0; chunk < 5; ++chunk) call.Send(input);
  ASSERT_TRUE(Eventually([&] { return stages() == 1; }));
  const absl::Time began = MonotonicNow();
  EXPECT_TRUE(Eventually([&] { return stages() == 0; }));
  EXPECT_LT(MonotonicNow() - began, absl::Seconds(40));
  call.Cancel();
}

TEST_F(WorkerServerTest, StagesOutliveTheTrackersAbsence) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(WorkerAddress(), Start(lease));
  call.Send(1, "ok");
  ASSERT_TRUE(call.Next().has_value());
  const int port = tracker_->port();
  tracker_.reset();
  ASSERT_TRUE(Eventually([this] { return !worker_->link().connected(); }));
  call.Send(2, "ok");
  const auto result = call.Next();
  ASSERT_TRUE(result.has_value() && result->has_profiled())
      << "the lease has not expired by the local clock";
  // A new tracker knows nothing of the lease: the worker comes back by itself and gives it up.
  tracker_ = std::make_unique<Tracker>(port);
  ASSERT_TRUE(tracker_->WaitForWorker());
  const auto last = call.Next();
  ASSERT_TRUE(last.has_value() && last->has_finished());
  EXPECT_EQ(last->finished().fault().kind(), v1::FAULT_INFRASTRUCTURE);
  const v1::Lease next = tracker_->Acquire("w", "profile");
  EXPECT_GT(next.fencing_token(), lease.fencing_token());
  Call again(WorkerAddress(), Start(next));
  again.Send(3, "ok");
  EXPECT_TRUE(again.Next().has_value());
  again.Cancel();
}

// Each call under a lease that the worker does not know makes it ask the tracker. Whatever that answers, the worker runs nothing
// which it was not told to, and once the tracker behaves, it serves as ever.
TEST_F(WorkerServerTest, MutatedAnswersOfTheTrackerEndNothing) {
  const v1::Lease held = tracker_->Acquire("w", "cpu", 3'600'000);  // so that answers have grants
  uint64_t seed = 0;
  tracker_->SetMutator(
      [&seed](v1::SynchronizeResponse* answer) { Mutator(seed++).Mutate(answer); });
  v1::Lease unknown;
  unknown.set_id("a lease of nobody");
  unknown.set_slot("profile");
  unknown.set_fencing_token(1);
  for (int i = 0; i < Mutations(200); ++i) {
    const grpc::Status status = Call(WorkerAddress(), Start(unknown)).Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION)
        << "call " << i << ": " << status.error_message();
  }
  tracker_->SetMutator(nullptr);
  EXPECT_GE(seed, static_cast<uint64_t>(Mutations(200)));
  tracker_->Release(held);
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(lease.address(), Start(lease));
  call.Send(1, "ok");
  const auto event = call.Next();
  ASSERT_TRUE(event.has_value() && event->has_profiled());
  EXPECT_EQ(event->profiled().measurement().outcome(), v1::OUTCOME_OK);
  call.Cancel();
}

TEST_F(WorkerServerTest, CallsBeyondTheSlotsGetNoThread) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call running(WorkerAddress(), Start(lease));
  running.Send(1, "hang");
  ASSERT_TRUE(running.WaitForStart());
  // Each of these waits for the slot, on a thread.
  std::vector<std::unique_ptr<Call>> others;
  for (int i = 0; i < 60; ++i)
    others.push_back(std::make_unique<Call>(WorkerAddress(), Start(lease)));
  int without_thread = 0;
  for (const auto& call : others) {
    const grpc::Status status = call->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    without_thread += status.error_message() == "this worker has 22 calls at a time already";
  }
  EXPECT_GT(without_thread, 0);
  running.Cancel();
  EXPECT_EQ(running.Finish().error_code(), grpc::StatusCode::CANCELLED);
  Call next(WorkerAddress(), Start(lease));
  next.Send(2, "ok");
  EXPECT_TRUE(next.Next().has_value()) << "the slots are served as before";
  next.Cancel();
}

TEST_F(WorkerServerTest, WithoutATrackerLeasesExpireLocally) {
  const v1::Lease lease = tracker_->Acquire("w", "profile", 2000);
  Call call(WorkerAddress(), Start(lease));
  call.Send(1, "hang");
  ASSERT_TRUE(call.WaitForStart());
  tracker_.reset();
  const auto last = call.Next();
  ASSERT_TRUE(last.has_value() && last->has_finished());
  EXPECT_THAT(last->finished().fault().message(), HasSubstr("not valid any more"));
}

TEST_F(WorkerServerTest, DrainingRefusesNewAndEndsOld) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(WorkerAddress(), Start(lease));
  call.Send(1, "hang");
  ASSERT_TRUE(call.WaitForStart());
  std::thread draining([this] { worker_->Drain(absl::Milliseconds(500)); });
  ASSERT_TRUE(Eventually([this] {
    const auto list = tracker_->List();
    return list.workers_size() == 1 && list.workers(0).slots(0).state() != v1::SLOT_FREE &&
           list.workers(0).slots(1).state() == v1::SLOT_DRAINING;
  }));
  EXPECT_EQ(Call(WorkerAddress(), Start(lease)).Finish().error_code(),
            grpc::StatusCode::UNAVAILABLE);
  const auto last = call.Next();
  ASSERT_TRUE(last.has_value() && last->has_finished());
  EXPECT_EQ(last->finished().fault().message(), "the worker is shutting down");
  EXPECT_TRUE(absl::IsUnavailable(worker_->Ready()));
  draining.join();
}

// Nothing of a preempted stage counts: the call ends with ABORTED, and the candidate has no answer.
TEST_F(WorkerServerTest, APreemptedWorkerSaysSoAndHandsBackWhatCannotEnd) {
  const auto run = [&](const std::string& trace) {
    const v1::Lease lease = tracker_->Acquire("w", "profile");
    Call call(WorkerAddress(), Start(lease));
    call.Send(1, trace);
    EXPECT_TRUE(call.WaitForStart());
    absl::SleepFor(absl::Milliseconds(50));
    call.HalfClose();
    while (call.Next()) continue;
    tracker_->Release(lease);
    return call.Finish();
  };
  EXPECT_TRUE(run("ok").ok());  // so the worker knows that a stage takes about 50 ms
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(WorkerAddress(), Start(lease));
  call.Send(1, "hang");
  ASSERT_TRUE(call.WaitForStart());
  const absl::Time begin = MonotonicNow();
  std::thread draining([this] { worker_->Drain(absl::Milliseconds(20)); });
  const auto last = call.Next();
  ASSERT_TRUE(last.has_value() && last->has_finished()) << "no answer for the candidate";
  EXPECT_EQ(last->finished().fault().kind(), v1::FAULT_INFRASTRUCTURE);
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_LT(MonotonicNow() - begin, kLimit);
  ASSERT_TRUE(Eventually([this] {
    return tracker_->List().workers(0).slots(1).reason().find("the worker leaves within") == 0;
  }));
  draining.join();
}

// A batch system sends SIGTERM to all processes of a worker, those of its stages included.
TEST_F(WorkerServerTest, AStageOutlivesTheSignalOfABatchSystem) {
  const v1::Lease lease = tracker_->Acquire("w", "profile");
  Call call(WorkerAddress(), Start(lease));
  call.Send(1, "ok");
  const auto event = call.Next();
  ASSERT_TRUE(event.has_value() && event->has_profiled());
  const pid_t child = static_cast<pid_t>(event->profiled().measurement().samples_ns(0));
  ASSERT_EQ(kill(child, SIGTERM), 0);
  absl::SleepFor(absl::Milliseconds(100));
  call.Send(2, "ok");
  const auto again = call.Next();
  ASSERT_TRUE(again.has_value() && again->has_profiled());
  EXPECT_EQ(static_cast<pid_t>(again->profiled().measurement().samples_ns(0)), child);
  call.HalfClose();
  while (call.Next()) continue;
}

TEST(WorkerProcess, AKilledWorkerTakesItsChildrenAlong) {
  Tracker tracker;
  const std::string program = std::string(HEDDLE_BIN_DIR) + "/heddle-fake-child";
  const std::string address = tracker.address();
  const char* arguments[] = {program.c_str(), "--worker", address.c_str(), nullptr};
  std::string folder = ::testing::TempDir() + "/heddle-killed-XXXXXX";  // for the folders of stages
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  setenv("TMPDIR", folder.c_str(), 1);
  pid_t pid = 0;
  ASSERT_EQ(
      posix_spawn(&pid, program.c_str(), nullptr, nullptr, const_cast<char**>(arguments), environ),
      0);
  unsetenv("TMPDIR");
  ASSERT_TRUE(tracker.WaitForWorker());
  const v1::Lease lease = tracker.Acquire("fake", "profile");
  Call call(lease.address(), Start(lease));
  call.Send(1, "ok");
  const auto event = call.Next();
  ASSERT_TRUE(event.has_value() && event->has_profiled());
  const pid_t child = static_cast<pid_t>(event->profiled().measurement().samples_ns(0));
  call.Send(2, "hang");
  ASSERT_TRUE(call.WaitForStart());
  ASSERT_TRUE(Alive(child));
  kill(pid, SIGKILL);
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Eventually([child] { return !Alive(child); }));
  waitpid(pid, nullptr, 0);
  EXPECT_FALSE(std::filesystem::is_empty(folder)) << "nobody was left to remove it";
  confine::StageFolder::RemoveLeftovers(folder);  // as the next worker does
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle::worker
