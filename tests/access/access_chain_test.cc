// A stranger at the ports of a tracker and a worker: the chain Acquire, then RunStage, by which he
// would run code of his own there, is refused at both; and a worker cannot pass for another.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/access/channel.h"
#include "proto/access/listener.h"
#include "tests/access/lab.h"
#include "tests/eventually.h"
#include "tests/places.h"
#include "tracker/tracker_service.h"
#include "worker/slots.h"
#include "worker/supervisor/worker_server.h"

namespace heddle {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

constexpr const char* kAcquire = "heddle.v1.TrackerService/Acquire";
constexpr const char* kRunStage = "heddle.v1.WorkerService/RunStage";

class ChainTest : public ::testing::Test {
 protected:
  ChainTest() {
    tracker::ServiceOptions options;
    options.pool.sync_interval = absl::Milliseconds(100);
    tracker_ = std::make_unique<tracker::TrackerServiceImpl>(
        options, tracker::FencingTokens::Open("").value());
    grpc::ServerBuilder builder;
    ListenerOptions listener;
    listener.address = "127.0.0.1:0";
    listener.credentials = Lab::Get().Of("tracker");
    int port = 0;
    EXPECT_TRUE(AddListener(listener, &builder, &port).ok());
    builder.RegisterService(tracker_.get());
    server_ = builder.BuildAndStart();
    tracker_address_ = absl::StrCat("127.0.0.1:", port);
    worker_ = StartWorker("w1", "w1");
    EXPECT_TRUE(Eventually([this] { return Workers().workers_size() == 1; }));
  }
  ~ChainTest() override {
    worker_.reset();
    tracker_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // A worker that calls itself `id` and has the certificate of `name`.
  std::unique_ptr<worker::WorkerServer> StartWorker(const std::string& id,
                                                    const std::string& name) {
    worker::WorkerOptions options;
    options.tracker = tracker_address_;
    options.credentials = Lab::Get().Of(name);
    options.id = id;
    options.version = "1";
    options.slots = {{"profile", true, {worker::UsableCores().front()}}};
    options.device_key = "key";
    options.target = "llvm -mcpu=x";
    options.runner.child_command = {HEDDLE_BIN_DIR "/heddle-fake-child", "--stage-child"};
    return worker::WorkerServer::Start(options).value();
  }
  std::shared_ptr<grpc::Channel> ToTracker(const Credentials& credentials) const {
    return MakeChannel(tracker_address_, PeerName(Role::kTracker), credentials);
  }
  std::string WorkerAddress() const { return absl::StrCat("127.0.0.1:", worker_->port()); }
  std::shared_ptr<grpc::Channel> ToWorker(const Credentials& credentials) const {
    return MakeChannel(WorkerAddress(), PeerName(Role::kWorker, "w1"), credentials);
  }
  v1::ListWorkersResponse Workers() const {
    v1::ListWorkersResponse list;
    const Answer answer =
        Call(ToTracker(Lab::Get().Of("scheduler")), "heddle.v1.TrackerService/ListWorkers", "");
    if (!answer.messages.empty()) list.ParseFromString(answer.messages.front());
    return list;
  }
  static std::string AcquireOrder() {
    v1::AcquireRequest order;
    order.set_worker("w1");
    order.set_slot("profile");
    order.set_holder("whoever");
    order.set_duration_ms(60'000);
    return order.SerializeAsString();
  }
  static std::string Stage(const v1::Lease& lease) {
    v1::StageInput input;
    input.mutable_start()->set_job("j1");
    input.mutable_start()->set_kind(v1::STAGE_PROFILE);
    input.mutable_start()->mutable_profile()->set_workload("w");
    input.mutable_start()->set_slot("profile");
    input.mutable_start()->set_lease_id(lease.id());
    input.mutable_start()->set_fencing_token(lease.fencing_token());
    return input.SerializeAsString();
  }
  v1::Lease LeaseOfTheScheduler() const {
    v1::Lease lease;
    const Answer answer = Call(ToTracker(Lab::Get().Of("scheduler")), kAcquire, AcquireOrder());
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    if (!answer.messages.empty()) lease.ParseFromString(answer.messages.front());
    return lease;
  }

  std::unique_ptr<tracker::TrackerServiceImpl> tracker_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<worker::WorkerServer> worker_;
  std::string tracker_address_;
};

TEST_F(ChainTest, AStrangerGetsNeitherALeaseNorAStage) {
  // He even knows a lease that is valid.
  const v1::Lease lease = LeaseOfTheScheduler();
  Credentials no_certificate = Lab::Get().Of("ann");
  no_certificate.tls->certificate.clear();
  no_certificate.tls->key.clear();
  for (const Credentials& stranger : {Credentials{}, no_certificate, Lab::Get().Of("stranger")}) {
    EXPECT_EQ(Call(ToTracker(stranger), kAcquire, AcquireOrder()).status.error_code(),
              grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(Call(ToWorker(stranger), kRunStage, Stage(lease)).status.error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(Workers().workers(0).slots(0).holder(), "whoever") << "nobody else";
}

TEST_F(ChainTest, NobodyOfTheLabButASchedulerRunsCode) {
  const v1::Lease lease = LeaseOfTheScheduler();
  for (const char* name : {"ann", "eve", "operator", "w1", "w2", "tracker"}) {
    const Credentials credentials = Lab::Get().Of(name);
    // An operator may hold a slot; this one is held already.
    EXPECT_EQ(Call(ToTracker(credentials), kAcquire, AcquireOrder()).status.error_code(),
              std::string(name) == "operator" ? grpc::StatusCode::RESOURCE_EXHAUSTED
                                              : grpc::StatusCode::PERMISSION_DENIED)
        << name;
    EXPECT_EQ(Call(ToWorker(credentials), kRunStage, Stage(lease)).status.error_code(),
              grpc::StatusCode::PERMISSION_DENIED)
        << name;
  }
  // The same call by the scheduler starts a stage.
  const Answer answer = Call(ToWorker(Lab::Get().Of("scheduler")), kRunStage, Stage(lease));
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_FALSE(answer.messages.empty());
}

// One scheduler of a service takes over the leases of another; a service is known by its certificates' names.
TEST_F(ChainTest, ASchedulerOfTheSameServiceRenewsAndReleasesALease) {
  const v1::Lease lease = LeaseOfTheScheduler();
  const Credentials other = Lab::Get().Of("scheduler.b");
  v1::RenewAllRequest renew;
  renew.add_lease_ids(lease.id());
  renew.set_duration_ms(120'000);
  const Answer renewed =
      Call(ToTracker(other), "heddle.v1.TrackerService/RenewAll", renew.SerializeAsString());
  ASSERT_TRUE(renewed.status.ok()) << renewed.status.error_message();
  v1::RenewAllResponse response;
  ASSERT_FALSE(renewed.messages.empty());
  ASSERT_TRUE(response.ParseFromString(renewed.messages[0]));
  EXPECT_EQ(response.renewed_size(), 1);
  v1::ReleaseRequest release;
  release.set_lease_id(lease.id());
  EXPECT_TRUE(
      Call(ToTracker(other), "heddle.v1.TrackerService/Release", release.SerializeAsString())
          .status.ok());
  EXPECT_EQ(Workers().workers(0).slots(0).state(), v1::SLOT_FREE);
}

// A lease's id is in the list that every scheduler and operator may read. It is of no use to them.
TEST_F(ChainTest, OnlyTheHolderRenewsAndReleasesALease) {
  const v1::Lease lease = LeaseOfTheScheduler();
  ASSERT_EQ(Workers().workers(0).slots(0).lease_id(), lease.id());
  v1::RenewAllRequest renew;
  renew.add_lease_ids(lease.id());
  renew.set_duration_ms(120'000);
  v1::ReleaseRequest release;
  release.set_lease_id(lease.id());
  // What came of the lease; false if it was not renewed.
  const auto renewed = [&](const Credentials& by) -> absl::StatusOr<bool> {
    const Answer answer =
        Call(ToTracker(by), "heddle.v1.TrackerService/RenewAll", renew.SerializeAsString());
    if (!answer.status.ok()) return FromGrpc(answer.status);
    v1::RenewAllResponse response;
    EXPECT_TRUE(response.ParseFromString(answer.messages.at(0)));
    EXPECT_EQ(response.renewed_size() + response.ended_size(), 1);
    return response.renewed_size() == 1;
  };
  const auto released = [&](const Credentials& by) {
    return Call(ToTracker(by), "heddle.v1.TrackerService/Release", release.SerializeAsString())
        .status;
  };
  for (const char* name : {"second", "operator", "ann", "eve", "w1", "w2", "tracker"}) {
    const Credentials other = Lab::Get().Of(name);
    if (std::string(name) == "second") {  // a scheduler, so its call is taken
      EXPECT_FALSE(renewed(other).value());
    } else {
      EXPECT_TRUE(absl::IsPermissionDenied(renewed(other).status())) << name;
    }
    EXPECT_EQ(released(other).error_code(), grpc::StatusCode::PERMISSION_DENIED) << name;
  }
  EXPECT_THAT(released(Lab::Get().Of("second")).error_message(),
              HasSubstr("is held by scheduler/scheduler; scheduler/second can neither renew nor "
                        "release it"));
  EXPECT_TRUE(absl::IsUnavailable(renewed(Lab::Get().Of("stranger")).status()));
  EXPECT_EQ(released(Lab::Get().Of("stranger")).error_code(), grpc::StatusCode::UNAVAILABLE);
  const v1::ListWorkersResponse held = Workers();
  EXPECT_EQ(held.workers(0).slots(0).lease_id(), lease.id());
  EXPECT_LE(held.workers(0).slots(0).lease_remaining_ms(), 60'000) << "nobody has renewed it";
  EXPECT_TRUE(renewed(Lab::Get().Of("scheduler")).value());
  EXPECT_GT(Workers().workers(0).slots(0).lease_remaining_ms(), 60'000);
  EXPECT_TRUE(released(Lab::Get().Of("scheduler")).ok());
  EXPECT_EQ(Workers().workers(0).slots(0).state(), v1::SLOT_FREE);
}

TEST_F(ChainTest, AWorkerSpeaksOnlyForItself) {
  v1::SynchronizeRequest report;
  report.set_worker("w1");
  report.set_boot_id("other");
  report.set_address("127.0.0.1:1");
  report.set_host("h");
  const Answer answer = Call(ToTracker(Lab::Get().Of("w2")), "heddle.v1.TrackerService/Synchronize",
                             report.SerializeAsString());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("--id w2"));
  EXPECT_EQ(Workers().workers(0).address(), WorkerAddress());
  // A whole worker that calls itself by another's name never gets in.
  const auto false_w1 = StartWorker("w1", "w2");
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_FALSE(false_w1->link().connected());
  EXPECT_EQ(Workers().workers(0).address(), WorkerAddress());
}

// The address that a worker announces is worth no more than the certificate found there.
TEST_F(ChainTest, WhoeverServesAtTheAddressMustBeThatWorker) {
  const auto w2 = StartWorker("w2", "w2");
  const std::string address = absl::StrCat("127.0.0.1:", w2->port());
  const Credentials scheduler = Lab::Get().Of("scheduler");
  EXPECT_EQ(
      Call(MakeChannel(address, PeerName(Role::kWorker, "w1"), scheduler), kRunStage, Stage({}))
          .status.error_code(),
      grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(
      Call(MakeChannel(address, PeerName(Role::kWorker, "w2"), scheduler), kRunStage, Stage({}))
          .status.error_code(),
      grpc::StatusCode::FAILED_PRECONDITION)
      << "the lease is unknown";
}

}  // namespace
}  // namespace heddle
