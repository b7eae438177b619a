// The tracker over real gRPC on loopback, its token file, and the watch stream.
#include "tracker/tracker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/access/audit_log.h"
#include "proto/access/channel.h"
#include "tracker/metrics.h"

namespace heddle::tracker {
namespace {

using ::testing::HasSubstr;

class TempFolder {
 public:
  TempFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("heddle_tracker_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

TEST(FencingTokens, GrowOverRestarts) {
  TempFolder folder;
  const std::string path = folder.File("state");
  uint64_t last = 0;
  for (int restart = 0; restart < 4; ++restart) {
    auto tokens = FencingTokens::Open(path);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    for (int k = 0; k < 5000; ++k) {  // more than a block
      const uint64_t token = (*tokens)->Next().value();
      ASSERT_GT(token, last);
      last = token;
    }
  }
}

TEST(FencingTokens, GrowWithoutAFileToo) {
  const uint64_t before = FencingTokens::Open("").value()->Next().value();
  usleep(10);
  EXPECT_GT(FencingTokens::Open("").value()->Next().value(), before);
}

TEST(FencingTokens, AFreshFileGoesOnAboveWhatATrackerWithoutOneGave) {
  TempFolder folder;
  const uint64_t before = FencingTokens::Open("").value()->Next().value();
  usleep(10);
  EXPECT_GT(FencingTokens::Open(folder.File("fresh")).value()->Next().value(), before);
  std::ofstream(folder.File("low")) << "heddle-tracker 1 next-token 5\n";
  EXPECT_GT(FencingTokens::Open(folder.File("low")).value()->Next().value(), before);
}

TEST(FencingTokens, DamagedOrSharedStateIsRefused) {
  TempFolder folder;
  std::ofstream(folder.File("bad")) << "nonsense\n";
  const auto bad = FencingTokens::Open(folder.File("bad"));
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(bad.status().message(), HasSubstr(folder.File("bad")));
  auto first = FencingTokens::Open(folder.File("state"));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(FencingTokens::Open(folder.File("state")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(FencingTokens::Open(folder.File("no/such/folder/state")).ok());
}

class TrackerServiceTest : public ::testing::Test {
 protected:
  TrackerServiceTest() { Start({}); }
  ~TrackerServiceTest() override { Stop(); }
  // In the place of the tracker that runs.
  void Start(const ServiceOptions& options) {
    if (server_ != nullptr) Stop();
    service_ = std::make_unique<TrackerServiceImpl>(options, FencingTokens::Open("").value());
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    stub_ = v1::TrackerService::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                            grpc::InsecureChannelCredentials()));
  }
  void Stop() {
    service_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  void AwaitWatches(int count) {
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (service_->Summarize().watches != count && absl::Now() < limit)
      absl::SleepFor(absl::Milliseconds(5));
    EXPECT_EQ(service_->Summarize().watches, count);
  }

  v1::SynchronizeResponse Sync(const std::string& worker = "w") {
    v1::SynchronizeRequest request;
    request.set_worker(worker);
    request.set_boot_id("b");
    request.set_address("127.0.0.1:1");
    request.set_host("host of " + worker);
    v1::Slot* slot = request.add_slots();
    slot->set_name("profile1");
    slot->set_kind(v1::SLOT_DEVICE);
    slot->add_cores(1);
    slot->set_device_key("k");
    slot->set_target("llvm -mcpu=x");
    grpc::ClientContext context;
    v1::SynchronizeResponse response;
    const grpc::Status status = stub_->Synchronize(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Acquire(v1::Lease* lease, const std::string& holder = "test") {
    v1::AcquireRequest request;
    request.set_worker("w");
    request.set_slot("profile1");
    request.set_holder(holder);
    request.set_duration_ms(5000);
    grpc::ClientContext context;
    return stub_->Acquire(&context, request, lease);
  }

  // A watch that never reads.
  struct Stalled {
    Stalled(v1::TrackerService::Stub* stub, bool changes) {
      v1::ListWorkersRequest request;
      request.set_changes(changes);
      reader = stub->WatchWorkers(&context, request);
    }
    ~Stalled() { context.TryCancel(); }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::ListWorkersResponse>> reader;
  };

  std::unique_ptr<TrackerServiceImpl> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::TrackerService::Stub> stub_;
};

TEST_F(TrackerServiceTest, LeaseLifeOverTheWire) {
  EXPECT_GT(Sync().next_sync_ms(), 0);
  v1::Lease lease;
  ASSERT_TRUE(Acquire(&lease).ok());
  EXPECT_EQ(lease.address(), "127.0.0.1:1");
  EXPECT_GT(lease.duration_ms(), 0);
  const v1::SynchronizeResponse synced = Sync();
  ASSERT_EQ(synced.grants_size(), 1);
  EXPECT_EQ(synced.grants(0).lease_id(), lease.id());
  EXPECT_EQ(synced.grants(0).fencing_token(), lease.fencing_token());
  EXPECT_GT(synced.grants(0).remaining_ms(), 0);
  EXPECT_LE(synced.grants(0).remaining_ms(), 5000);
  v1::Lease second;
  EXPECT_EQ(Acquire(&second).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (int k = 0; k < 2; ++k) {
    v1::ReleaseRequest release;
    release.set_lease_id(lease.id());
    grpc::ClientContext context;
    v1::ReleaseResponse response;
    EXPECT_TRUE(stub_->Release(&context, release, &response).ok());
  }
  EXPECT_TRUE(Sync().valid_leases().empty());
}

TEST_F(TrackerServiceTest, WatchTellsOfChanges) {
  Sync();
  grpc::ClientContext context;
  auto reader = stub_->WatchWorkers(&context, {});
  v1::ListWorkersResponse list;
  ASSERT_TRUE(reader->Read(&list));
  ASSERT_EQ(list.workers_size(), 1);
  EXPECT_EQ(list.workers(0).slots(0).state(), v1::SLOT_FREE);
  EXPECT_EQ(list.workers(0).slots(0).slot().kind(), v1::SLOT_DEVICE);
  v1::Lease lease;
  ASSERT_TRUE(Acquire(&lease).ok());
  ASSERT_TRUE(reader->Read(&list));
  EXPECT_EQ(list.workers(0).slots(0).state(), v1::SLOT_HELD);
  EXPECT_EQ(list.workers(0).slots(0).reason(), "held by test");
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&list));
  reader->Finish();
}

TEST_F(TrackerServiceTest, LeasesAreRenewedTogether) {
  Sync();
  v1::Lease lease;
  ASSERT_TRUE(Acquire(&lease).ok());
  const auto renew = [&](int64_t duration_ms, v1::RenewAllResponse* response) {
    v1::RenewAllRequest request;
    request.add_lease_ids("of nobody");
    request.add_lease_ids(lease.id());
    request.set_duration_ms(duration_ms);
    grpc::ClientContext context;
    return stub_->RenewAll(&context, request, response);
  };
  v1::RenewAllResponse response;
  ASSERT_TRUE(renew(60'000, &response).ok());
  ASSERT_EQ(response.renewed_size(), 1);
  EXPECT_EQ(response.renewed(0).id(), lease.id());
  EXPECT_GT(response.renewed(0).duration_ms(), 50'000);
  ASSERT_EQ(response.ended_size(), 1);
  EXPECT_EQ(response.ended(0), "of nobody");
  EXPECT_GT(Sync().grants(0).remaining_ms(), 50'000);
  EXPECT_EQ(renew(1, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TrackerServiceTest, AWatchOfChangesTellsOnlyThose) {
  Sync("other");
  Sync();
  grpc::ClientContext context;
  v1::ListWorkersRequest request;
  request.set_changes(true);
  auto reader = stub_->WatchWorkers(&context, request);
  v1::ListWorkersResponse message;
  ASSERT_TRUE(reader->Read(&message));
  ASSERT_EQ(message.workers_size(), 2);
  v1::Lease lease;
  ASSERT_TRUE(Acquire(&lease).ok());
  ASSERT_TRUE(reader->Read(&message));
  ASSERT_EQ(message.workers_size(), 1);
  EXPECT_EQ(message.workers(0).worker(), "w");
  EXPECT_EQ(message.workers(0).slots(0).lease_id(), lease.id());
  EXPECT_EQ(message.gone_size(), 0);
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&message));
  reader->Finish();
}

TEST_F(TrackerServiceTest, AWatchOfChangesNamesWhoWent) {
  ServiceOptions options;
  options.pool.worker_expiry = absl::Seconds(2);
  Start(options);
  grpc::ClientContext context;
  v1::ListWorkersRequest request;
  request.set_changes(true);
  auto reader = stub_->WatchWorkers(&context, request);
  v1::ListWorkersResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.workers_size(), 0);
  Sync();
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.workers_size(), 1);
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.workers_size(), 0);
  ASSERT_EQ(message.gone_size(), 1);
  EXPECT_EQ(message.gone(0), "w");
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&message));
  reader->Finish();
}

TEST_F(TrackerServiceTest, StalledWatchersKeepNoSchedulerOut) {
  ServiceOptions options;
  options.calls.queueing = absl::Milliseconds(1);
  Start(options);
  std::vector<std::unique_ptr<Stalled>> stalled;
  for (int i = 0; i < options.calls.most[CallLimits::kWatches]; ++i)
    stalled.push_back(std::make_unique<Stalled>(stub_.get(), /*changes=*/false));
  AwaitWatches(options.calls.most[CallLimits::kWatches]);
  v1::ListWorkersResponse list;
  grpc::ClientContext one_more;
  auto refused = stub_->WatchWorkers(&one_more, {});
  EXPECT_FALSE(refused->Read(&list));
  const grpc::Status status = refused->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("64 watches at a time already; try again"));
  v1::ListWorkersRequest changes;
  changes.set_changes(true);
  grpc::ClientContext context;
  auto reader = stub_->WatchWorkers(&context, changes);
  EXPECT_TRUE(reader->Read(&list)) << "the scheduler's place was taken";
  context.TryCancel();
  reader->Finish();
}

// Watches of another service, to which nothing can be written once it stalls. The buffers of gRPC hold more than a
// list, so no peer could make a watch wait by taking nothing.
class SlowWriter final : public v1::TrackerService::Service {
 public:
  explicit SlowWriter(TrackerServiceImpl* tracker) : tracker_(tracker) {}
  grpc::Status WatchWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest* request,
                            grpc::ServerWriter<v1::ListWorkersResponse>* writer) override {
    return tracker_->Watch(context, *request, [&](const v1::ListWorkersResponse& answer) {
      while (stalls && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
      return writer->Write(answer);
    });
  }
  std::atomic<bool> stalls{true};

 private:
  TrackerServiceImpl* const tracker_;
};

TEST_F(TrackerServiceTest, AWatcherThatTakesNothingLosesItsPlace) {
  std::atomic<int> slow{0};
  ServiceOptions options;
  options.calls.patience = absl::Milliseconds(200);
  options.calls.refused = [&](CallLimits::Refusal why) {
    slow += why == CallLimits::Refusal::kSlowPeer;
  };
  Start(options);
  SlowWriter watches(service_.get());
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&watches);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::TrackerService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  for (const bool changes : {true, false}) {
    const int before = slow;
    grpc::ClientContext context;
    v1::ListWorkersRequest request;
    request.set_changes(changes);
    const auto reader = stub->WatchWorkers(&context, request);
    v1::ListWorkersResponse list;
    EXPECT_FALSE(reader->Read(&list));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_EQ(slow, before + 1);
  }
  AwaitWatches(0);
  watches.stalls = false;
  grpc::ClientContext context;
  const auto reader = stub->WatchWorkers(&context, {});
  v1::ListWorkersResponse list;
  EXPECT_TRUE(reader->Read(&list)) << "one that reads has its place";
  absl::SleepFor(2 * options.calls.patience);
  EXPECT_EQ(slow, 2) << "a silent list makes nobody slow";
  context.TryCancel();
  reader->Finish();
  service_->Stop();
  server->Shutdown();
  Start({});  // what it tells of refusals ends before the service of this test does
}

TEST_F(TrackerServiceTest, WhatPeopleTakeAndGiveBackIsKept) {
  TempFolder folder;
  const auto audit = AuditLog::Open(folder.File("audit")).value();
  ServiceOptions options;
  options.audit = audit.get();
  Start(options);
  Sync();
  const auto release = [&](const std::string& id) {
    v1::ReleaseRequest request;
    request.set_lease_id(id);
    grpc::ClientContext context;
    v1::ReleaseResponse response;
    EXPECT_TRUE(stub_->Release(&context, request, &response).ok());
  };
  v1::Lease lease, none;
  ASSERT_TRUE(Acquire(&lease, "scheduler of x").ok());
  EXPECT_FALSE(Acquire(&none, "person:ann@h").ok());
  release(lease.id());
  ASSERT_TRUE(Acquire(&lease, "person:ann@h").ok());
  release(lease.id());
  release(lease.id());  // it has ended already
  std::vector<std::string> told;
  std::ifstream file(folder.File("audit/calls.jsonl"));
  for (std::string line; std::getline(file, line);) told.push_back(line);
  using ::testing::AllOf;
  EXPECT_THAT(told, ::testing::ElementsAre(
                        AllOf(HasSubstr("TrackerService/Acquire"), HasSubstr("RESOURCE_EXHAUSTED")),
                        AllOf(HasSubstr("TrackerService/Acquire"), HasSubstr("\"result\":\"OK\""),
                              HasSubstr("w/profile1 for 5s by person:ann@h")),
                        AllOf(HasSubstr("TrackerService/Release"), HasSubstr("\"result\":\"OK\""),
                              HasSubstr("w/profile1 by person:ann@h"))));
  Start({});  // the log ends before the service of this test does
}

TEST_F(TrackerServiceTest, WhatItKnowsIsCounted) {
  Metrics metrics("heddle-test");
  AddTrackerMetrics(service_.get(), &metrics);
  const auto shows = [&metrics](const std::string& line) {
    return metrics.Text().find("\n" + line + "\n") != std::string::npos;
  };
  EXPECT_TRUE(shows("heddle_tracker_workers 0"));
  EXPECT_TRUE(shows("heddle_tracker_slots{pool=\"cpu\",state=\"free\"} 0"));
  Sync();
  EXPECT_TRUE(shows("heddle_tracker_workers 1"));
  EXPECT_TRUE(shows("heddle_tracker_slots{pool=\"k\",state=\"free\"} 1"));
  v1::Lease lease;
  ASSERT_TRUE(Acquire(&lease).ok());
  ASSERT_FALSE(Acquire(&lease).ok());
  EXPECT_TRUE(shows("heddle_tracker_slots{pool=\"k\",state=\"free\"} 0"));
  EXPECT_TRUE(shows("heddle_tracker_slots{pool=\"k\",state=\"held\"} 1"));
  EXPECT_TRUE(shows("heddle_tracker_lease_requests_total{result=\"granted\"} 1"));
  EXPECT_TRUE(shows("heddle_tracker_lease_requests_total{result=\"refused\"} 1"));
  EXPECT_TRUE(service_->Live().ok()) << service_->Live();
}

TEST(Appointment, LastsFromTheTimeThatIsRepeated) {
  const absl::Time born = absl::UnixEpoch() + absl::Seconds(100);
  const absl::Time now = born + absl::Seconds(50);
  const auto call = [](absl::Time echo, int64_t epoch = 1, const std::string& holder = "s") {
    return AppointCall{
        .holder = holder, .epoch = epoch, .echo = echo, .duration = absl::Seconds(6)};
  };
  const auto code = [](const absl::StatusOr<bool>& taken) { return taken.status().code(); };
  Appointment appointment(born);
  EXPECT_EQ(appointment.Idle(now), absl::InfiniteDuration());
  EXPECT_FALSE(appointment.Take(call(absl::InfinitePast()), now).value()) << "it only asks";
  EXPECT_FALSE(appointment.Serves(now));
  EXPECT_FALSE(appointment.Take(call(now - absl::Seconds(7)), now).value()) << "too old";
  EXPECT_FALSE(appointment.Serves(now));
  EXPECT_EQ(appointment.Idle(now), absl::InfiniteDuration());
  // Of an earlier process, and of no process at all.
  EXPECT_EQ(code(appointment.Take(call(born - absl::Seconds(1)), born + absl::Seconds(1))),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(appointment.Take(call(now + absl::Seconds(1)), now)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(appointment.Take(call(now - absl::Seconds(2)), now).value());
  EXPECT_EQ(appointment.Remaining(now), absl::Seconds(4));
  EXPECT_EQ(appointment.Idle(now), absl::ZeroDuration());
  EXPECT_FALSE(appointment.Take(call(now - absl::Seconds(3)), now).value());
  EXPECT_EQ(appointment.Remaining(now), absl::Seconds(4)) << "a call that was overtaken";
  EXPECT_EQ(code(appointment.Take(call(now, 1, "other"), now)),
            absl::StatusCode::kFailedPrecondition);
  // Who only asks in a newer epoch ends the older one.
  EXPECT_FALSE(appointment.Take(call(absl::InfinitePast(), 2), now).value());
  EXPECT_EQ(code(appointment.Take(call(now, 1), now)), absl::StatusCode::kFailedPrecondition);
  const absl::Time later = now + absl::Seconds(5);
  EXPECT_FALSE(appointment.Serves(later));
  EXPECT_EQ(appointment.Idle(later), absl::Seconds(1));
  EXPECT_TRUE(appointment.Take(call(later, 1, "other"), later).value()) << "nobody has it now";
}

TEST_F(TrackerServiceTest, ServesOnlyWhileItIsAppointed) {
  // Without that mode nobody can make it stand by.
  v1::AppointRequest request;
  request.set_holder("scheduler");
  request.set_epoch(1);
  request.set_duration_ms(1000);
  v1::AppointResponse answer;
  const auto appoint = [&] {
    grpc::ClientContext context;
    return stub_->Appoint(&context, request, &answer).error_code();
  };
  EXPECT_EQ(appoint(), grpc::StatusCode::FAILED_PRECONDITION);
  Start({.appointed = true});

  const auto list = [&](v1::ListWorkersResponse* response) {
    grpc::ClientContext context;
    return stub_->ListWorkers(&context, {}, response);
  };
  v1::ListWorkersResponse workers;
  EXPECT_EQ(list(&workers).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(list(&workers).error_message(), HasSubstr("stands by"));
  v1::Lease lease;
  EXPECT_EQ(Acquire(&lease).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(service_->Ready().ok());
  ASSERT_EQ(appoint(), grpc::StatusCode::OK);
  EXPECT_EQ(answer.remaining_ms(), 0);
  EXPECT_FALSE(answer.has_idle_ms());

  const uint64_t above = uint64_t{1} << 61;
  request.set_above_token(above);
  request.set_duration_ms(60'000);
  request.set_echo_ns(answer.clock_ns());
  ASSERT_EQ(appoint(), grpc::StatusCode::OK);
  EXPECT_GT(answer.remaining_ms(), 0);
  EXPECT_TRUE(service_->Ready().ok());
  Sync();
  ASSERT_TRUE(Acquire(&lease).ok());
  EXPECT_GT(lease.fencing_token(), above);

  // Workers are told to stop their stages before another tracker may serve, whatever their leases are.
  Start({.appointed = true});
  request.set_echo_ns(0);
  ASSERT_EQ(appoint(), grpc::StatusCode::OK);
  request.set_duration_ms(2000);
  request.set_echo_ns(answer.clock_ns());
  ASSERT_EQ(appoint(), grpc::StatusCode::OK);
  Sync();
  ASSERT_TRUE(Acquire(&lease).ok());  // for five seconds
  const v1::SynchronizeResponse synced = Sync();
  ASSERT_EQ(synced.grants_size(), 1);
  EXPECT_LE(synced.grants(0).remaining_ms(), 2000);
  EXPECT_LE(synced.next_sync_ms(), 1000);
  // A watch ends when it serves no longer.
  grpc::ClientContext context;
  auto reader = stub_->WatchWorkers(&context, {});
  while (reader->Read(&workers)) {
  }
  const grpc::Status end = reader->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE) << end.error_message();
  EXPECT_THAT(end.error_message(), HasSubstr("stands by"));
  EXPECT_EQ(service_->Summarize().workers.size(), 0u);

  // It remembers, unless it is told that another may have served.
  for (const bool forget : {false, true}) {
    request.set_echo_ns(0);
    ASSERT_EQ(appoint(), grpc::StatusCode::OK);
    EXPECT_TRUE(answer.has_idle_ms());
    request.set_duration_ms(forget ? 60'000 : 1000);
    request.set_echo_ns(answer.clock_ns());
    request.set_forget(forget);
    ASSERT_EQ(appoint(), grpc::StatusCode::OK);
    EXPECT_EQ(service_->Summarize().workers.size(), 1u);
    EXPECT_EQ(Sync().grants_size(), forget ? 0 : 1);
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (!forget && service_->Ready().ok() && absl::Now() < limit)
      absl::SleepFor(absl::Milliseconds(10));
  }
}

// A watch of workers that do not change is silent for minutes; the intervals here are shorter, in
// the same proportion, and gRPC's own limit cuts off at the third ping.
TEST_F(TrackerServiceTest, PingsKeepASilentStreamUp) {
  const Pings pings{absl::Milliseconds(40), absl::Seconds(20), absl::Milliseconds(1)};
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  UsePings(&builder, pings);
  TrackerServiceImpl service({}, FencingTokens::Open("").value());
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  auto stub = v1::TrackerService::NewStub(MakeChannel(
      "127.0.0.1:" + std::to_string(port), PeerName(Role::kTracker), Credentials{}, pings));
  grpc::ClientContext context;
  auto reader = stub->WatchWorkers(&context, {});
  v1::ListWorkersResponse list;
  ASSERT_TRUE(reader->Read(&list));
  absl::SleepFor(absl::Seconds(1));
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&list));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED) << "cut off before";
  service.Stop();
  server->Shutdown();
}

}  // namespace
}  // namespace heddle::tracker
