// Drains of the page against a real tracker, beside a scheduler that takes each slot again at once.
#include "scheduler/service/stages/machine_drains.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/grpc_util.h"
#include "proto/people_slots.h"
#include "tracker/tracker_service.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(20);

// Waits until it holds, or for kLimit; the checks that follow then fail.
template <typename Condition>
void Await(const Condition& holds) {
  const absl::Time limit = absl::Now() + kLimit;
  while (!holds() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
}

class MachineDrainsTest : public ::testing::Test {
 protected:
  MachineDrainsTest() : tracker_({}, tracker::FencingTokens::Open("").value()) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&tracker_);
    server_ = builder.BuildAndStart();
    stub_ = v1::TrackerService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    beats_ = std::thread([this] {
      while (!stop_) {
        Synchronize();
        absl::SleepFor(absl::Milliseconds(200));
      }
    });
    Await([this] { return !Machine().slots().empty(); });
    drains_ = std::make_unique<MachineDrains>(
        stub_.get(),
        MachineDrains::Options{.poll = absl::Milliseconds(100), .patience = kLimit, .most = 1});
  }
  ~MachineDrainsTest() override {
    stop_ = true;
    beats_.join();
    drains_.reset();
    tracker_.Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  void Synchronize() {
    v1::SynchronizeRequest request;
    request.set_worker("w1");
    request.set_boot_id("b");
    request.set_address("127.0.0.1:1");
    request.set_host("h");
    for (int i = 0; i < 2; ++i) {
      v1::Slot* slot = request.add_slots();
      slot->set_name(absl::StrCat("cpu", i));
      slot->set_kind(v1::SLOT_CPU);
      slot->add_cores(i);
    }
    grpc::ClientContext context;
    v1::SynchronizeResponse response;
    EXPECT_TRUE(stub_->Synchronize(&context, request, &response).ok());
  }
  v1::WorkerStatus Machine() {
    grpc::ClientContext context;
    v1::ListWorkersResponse list;
    EXPECT_TRUE(stub_->ListWorkers(&context, {}, &list).ok());
    return list.workers().empty() ? v1::WorkerStatus() : list.workers(0);
  }
  size_t HeldByPeople() { return SlotsOfPeople(Machine(), "").size(); }
  // Empty: it was refused.
  std::string Acquire(const std::string& slot, const std::string& holder) {
    grpc::ClientContext context;
    v1::AcquireRequest request;
    request.set_worker("w1");
    request.set_slot(slot);
    request.set_holder(holder);
    request.set_duration_ms(60'000);
    v1::Lease lease;
    return stub_->Acquire(&context, request, &lease).ok() ? lease.id() : "";
  }
  void Release(const std::string& lease) {
    grpc::ClientContext context;
    v1::ReleaseRequest request;
    request.set_lease_id(lease);
    v1::ReleaseResponse response;
    EXPECT_TRUE(stub_->Release(&context, request, &response).ok());
  }

  tracker::TrackerServiceImpl tracker_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::TrackerService::Stub> stub_;
  std::atomic<bool> stop_{false};
  std::thread beats_;
  std::unique_ptr<MachineDrains> drains_;
};

TEST_F(MachineDrainsTest, WhatIsFreeIsHeldAtOnceAndGivenBack) {
  ASSERT_EQ(drains_->Begin("w1", "boss", absl::Minutes(5)), absl::OkStatus());
  EXPECT_EQ(HeldByPeople(), 2u);
  EXPECT_THAT(Machine().slots(0).reason(), HasSubstr("held by person:boss@page"));
  EXPECT_LE(Machine().slots(0).lease_remaining_ms(), 300'000);
  EXPECT_EQ(drains_->Begin("w1", "boss", absl::Minutes(5)), absl::OkStatus()) << "it is drained";
  ASSERT_EQ(drains_->End("w1"), absl::OkStatus());
  EXPECT_EQ(HeldByPeople(), 0u);
  EXPECT_TRUE(absl::IsFailedPrecondition(drains_->End("w1")));
  const absl::Status none = drains_->Begin("w2", "boss", absl::Minutes(5));
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(none.message(), HasSubstr("there are w1"));
}

// A busy scheduler leaves a slot free for a moment only.
TEST_F(MachineDrainsTest, ABusySchedulerLetsGo) {
  std::atomic<bool> over{false};
  std::atomic<int> stages{0};
  std::thread scheduler([&] {
    while (!over) {
      const std::string lease = Acquire("cpu0", "scheduler");
      if (lease.empty()) {
        absl::SleepFor(absl::Milliseconds(10));
        continue;
      }
      ++stages;
      absl::SleepFor(absl::Milliseconds(30));
      Release(lease);
    }
  });
  Await([&] { return stages >= 2; });
  EXPECT_EQ(drains_->Begin("w1", "boss", absl::Minutes(5)), absl::OkStatus());
  Await([this] { return HeldByPeople() == 2; });
  EXPECT_EQ(HeldByPeople(), 2u);
  const int before = stages;
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_EQ(stages, before) << "nothing runs there";
  EXPECT_EQ(drains_->End("w1"), absl::OkStatus());
  Await([&] { return stages != before; });
  EXPECT_GT(stages, before) << "and then it goes on";
  over = true;
  scheduler.join();
}

TEST_F(MachineDrainsTest, ADrainThatWaitsCanBeEnded) {
  const std::string stage = Acquire("cpu0", "scheduler");
  ASSERT_EQ(drains_->Begin("w1", "boss", absl::Minutes(5)), absl::OkStatus());
  EXPECT_EQ(HeldByPeople(), 1u);
  const absl::Status other = drains_->Begin("w2", "boss", absl::Minutes(5));
  EXPECT_TRUE(absl::IsResourceExhausted(other)) << "one at a time: " << other;
  ASSERT_EQ(drains_->End("w1"), absl::OkStatus());
  Release(stage);
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_EQ(HeldByPeople(), 0u) << "nobody waits for it any more";
}

// A tracker that gives away one slot and then refuses the other one.
class HalfTracker final : public v1::TrackerService::Service {
 public:
  explicit HalfTracker(v1::TrackerService::Stub* whole) : whole_(whole) {}
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest* request,
                           v1::ListWorkersResponse* response) override {
    grpc::ClientContext context;
    return whole_->ListWorkers(&context, *request, response);
  }
  grpc::Status Acquire(grpc::ServerContext*, const v1::AcquireRequest* request,
                       v1::Lease* response) override {
    if (++acquired > 1) return {grpc::StatusCode::PERMISSION_DENIED, "one is enough"};
    grpc::ClientContext context;
    return whole_->Acquire(&context, *request, response);
  }
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                       v1::ReleaseResponse* response) override {
    grpc::ClientContext context;
    return whole_->Release(&context, *request, response);
  }

  std::atomic<int> acquired{0};

 private:
  v1::TrackerService::Stub* const whole_;
};

TEST_F(MachineDrainsTest, ADrainThatFailsHalfWayHoldsNothing) {
  HalfTracker half(stub_.get());
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&half);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::TrackerService::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  MachineDrains drains(stub.get(), {});
  const absl::Status begun = drains.Begin("w1", "boss", absl::Minutes(5));
  EXPECT_TRUE(absl::IsPermissionDenied(begun)) << begun;
  EXPECT_EQ(half.acquired, 2) << "one slot was held by then";
  EXPECT_EQ(HeldByPeople(), 0u);
}

TEST_F(MachineDrainsTest, ASilentTrackerIsSaid) {
  const auto nobody = v1::TrackerService::NewStub(
      grpc::CreateChannel("127.0.0.1:1", grpc::InsecureChannelCredentials()));
  MachineDrains drains(nobody.get(), {});
  EXPECT_TRUE(absl::IsUnavailable(drains.Begin("w1", "boss", absl::Minutes(5))));
  EXPECT_TRUE(absl::IsUnavailable(drains.End("w1")));
}

}  // namespace
}  // namespace heddle::scheduler
