// Every call of the tracker with mutated requests: each answer is typed, and a good worker and a good client never notice.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/check_message.h"
#include "tests/adversary/attack.h"
#include "tracker/tracker_service.h"

namespace heddle::tracker {
namespace {

class HostileTrackerTest : public ::testing::Test {
 protected:
  HostileTrackerTest() : service_({}, FencingTokens::Open("").value()) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::TrackerService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~HostileTrackerTest() override {
    service_.Stop();
    server_->Shutdown();
  }
  static v1::SynchronizeRequest Heartbeat(const std::string& worker) {
    v1::SynchronizeRequest request;
    request.set_worker(worker);
    request.set_boot_id("boot");
    request.set_address("127.0.0.1:1");
    request.set_host(absl::StrCat("host of ", worker));
    request.set_load_average(0.5);
    v1::Slot& slot = *request.add_slots();
    slot.set_name("profile1");
    slot.set_kind(v1::SLOT_DEVICE);
    slot.add_cores(1);
    slot.set_device_key("key");
    slot.set_target("llvm -mcpu=x");
    slot.add_builds("llvm");
    request.add_running_leases("a lease");
    request.add_troubles()->set_slot("profile1");
    return request;
  }
  grpc::Status Synchronize(const v1::SynchronizeRequest& request) {
    grpc::ClientContext context;
    v1::SynchronizeResponse response;
    const grpc::Status status = stub_->Synchronize(&context, request, &response);
    EXPECT_EQ(CheckMessage(response), absl::OkStatus());
    return status;
  }
  grpc::Status Acquire(const v1::AcquireRequest& request, v1::Lease* lease) {
    grpc::ClientContext context;
    return stub_->Acquire(&context, request, lease);
  }
  grpc::Status RenewAll(const v1::RenewAllRequest& request, v1::RenewAllResponse* response) {
    grpc::ClientContext context;
    const grpc::Status status = stub_->RenewAll(&context, request, response);
    EXPECT_EQ(CheckMessage(*response), absl::OkStatus());
    return status;
  }
  grpc::Status Release(const v1::ReleaseRequest& request) {
    grpc::ClientContext context;
    v1::ReleaseResponse response;
    return stub_->Release(&context, request, &response);
  }
  v1::ListWorkersResponse List() {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    EXPECT_TRUE(stub_->ListWorkers(&context, {}, &response).ok());
    return response;
  }
  // The first list; what ends the watch then is this client.
  grpc::Status Watch(const v1::ListWorkersRequest& request) {
    grpc::ClientContext context;
    const auto reader = stub_->WatchWorkers(&context, request);
    v1::ListWorkersResponse list;
    if (!reader->Read(&list)) return reader->Finish();
    EXPECT_EQ(CheckMessage(list), absl::OkStatus());
    context.TryCancel();
    reader->Finish();
    return grpc::Status::OK;
  }
  // A worker that stays as it is, and a client that takes its slot and gives it back.
  void ExpectServing() {
    v1::SynchronizeRequest heartbeat = Heartbeat("good");
    heartbeat.clear_troubles();
    ASSERT_TRUE(Synchronize(heartbeat).ok());
    v1::AcquireRequest acquire;
    acquire.set_worker("good");
    acquire.set_slot("profile1");
    acquire.set_holder("test");
    acquire.set_duration_ms(5000);
    v1::Lease lease;
    const grpc::Status status = Acquire(acquire, &lease);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_GT(lease.fencing_token(), last_token_);
    last_token_ = lease.fencing_token();
    v1::RenewAllRequest renew;
    renew.add_lease_ids(lease.id());
    renew.set_duration_ms(6000);
    v1::RenewAllResponse renewed;
    EXPECT_TRUE(RenewAll(renew, &renewed).ok());
    EXPECT_EQ(renewed.renewed_size(), 1);
    v1::ReleaseRequest release;
    release.set_lease_id(lease.id());
    EXPECT_TRUE(Release(release).ok());
    EXPECT_EQ(CheckMessage(List()), absl::OkStatus());
  }
  template <typename Request>
  int Attack(const std::string& what, const Request& good,
             const std::function<grpc::Status(const Request&)>& call) {
    int sent = 0;
    const int refused = AttackWith<Request>(what, good, 400, [&](const Request& bad) {
      if (sent++ % 50 == 0) ExpectServing();
      return call(bad);
    });
    ExpectServing();
    return refused;
  }

  TrackerServiceImpl service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::TrackerService::Stub> stub_;
  uint64_t last_token_ = 0;
};

TEST_F(HostileTrackerTest, EveryCall) {
  EXPECT_GT(Attack<v1::SynchronizeRequest>("Synchronize", Heartbeat("hostile"),
                                           [&](const auto& r) { return Synchronize(r); }),
            0);
  v1::AcquireRequest acquire;
  acquire.set_worker("hostile");
  acquire.set_slot("profile1");
  acquire.set_holder("hostile");
  acquire.set_purpose("a test");
  acquire.set_duration_ms(1000);
  v1::Lease lease;
  EXPECT_GT(Attack<v1::AcquireRequest>("Acquire", acquire,
                                       [&](const auto& r) { return Acquire(r, &lease); }),
            0);
  v1::RenewAllRequest renew;
  renew.add_lease_ids("a lease");
  renew.add_lease_ids("another");
  renew.set_duration_ms(1000);
  EXPECT_GT(Attack<v1::RenewAllRequest>("RenewAll", renew,
                                        [&](const auto& r) {
                                          v1::RenewAllResponse response;
                                          return RenewAll(r, &response);
                                        }),
            0);
  v1::ReleaseRequest release;
  release.set_lease_id("a lease");
  Attack<v1::ReleaseRequest>("Release", release, [&](const auto& r) { return Release(r); });
  Attack<v1::ListWorkersRequest>("ListWorkers", {}, [&](const auto& r) {
    grpc::ClientContext context;
    v1::ListWorkersResponse response;
    const grpc::Status status = stub_->ListWorkers(&context, r, &response);
    EXPECT_EQ(CheckMessage(response), absl::OkStatus());
    return status;
  });
  Attack<v1::ListWorkersRequest>("WatchWorkers", {}, [&](const auto& r) { return Watch(r); });
}

}  // namespace
}  // namespace heddle::tracker
