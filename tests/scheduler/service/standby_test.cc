// Two schedulers on one data directory: one leads, the other stands by, and clients find the one that leads.
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/service_client.h"
#include "proto/access/channel.h"
#include "proto/grpc_util.h"
#include "proto/jobs.grpc.pb.h"
#include "proto/leader_calls.h"
#include "scheduler/service/server.h"
#include "tests/access/lab.h"

namespace heddle::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::Duration kLimit = absl::Seconds(60);  // for a machine that does a lot besides

// A scheduler on a thread of its own, until it is told to end.
class Running {
 public:
  explicit Running(ServerOptions options)
      : options_(std::move(options)), thread_([this] { status_ = RunServer(options_); }) {}
  ~Running() { (void)End(); }
  // Its status, once it has ended.
  absl::Status End() {
    if (thread_.joinable()) {
      pthread_kill(thread_.native_handle(), SIGTERM);
      thread_.join();
    }
    return status_;
  }
  // Where it serves, also while it stands by.
  std::string Address() const {
    int port = 0;
    const absl::Time limit = absl::Now() + kLimit;
    while (port == 0 && absl::Now() < limit) {
      if (!(std::ifstream(options_.port_file) >> port)) port = 0;
      if (port == 0) absl::SleepFor(absl::Milliseconds(5));
    }
    return absl::StrCat("127.0.0.1:", port);
  }

 private:
  const ServerOptions options_;
  absl::Status status_ = absl::UnknownError("it did not end");
  std::thread thread_;
};

class StandbyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/standby", getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override {
    second_.reset();
    first_.reset();
    std::filesystem::remove_all(directory_);
  }
  ServerOptions Options(const std::string& name) const {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.data_directory = directory_ + "/data";
    options.tracker_address = "127.0.0.1:1";  // nobody is there
    options.port_file = directory_ + "/" + name;
    options.standby = true;
    return options;
  }
  void StartBoth() {
    first_ = std::make_unique<Running>(Options("first"));
    first_address_ = first_->Address();
    second_ = std::make_unique<Running>(Options("second"));
    second_address_ = second_->Address();
    ASSERT_TRUE(client::ServiceClient(first_address_).WaitUntilServing(kLimit).ok());
  }
  static absl::StatusOr<std::string> Submit(const client::ServiceClient& client) {
    v1::JobSpec spec;
    spec.set_name("model");
    spec.set_target("llvm -mcpu=x86-64");
    spec.set_trials_per_task(4);
    return client.Submit(spec, "a model");
  }

  std::string directory_;
  std::string first_address_, second_address_;
  std::unique_ptr<Running> first_, second_;
};

TEST_F(StandbyTest, WhoStandsByRefusesAndTellsWhoLeads) {
  StartBoth();
  const auto channel = MakeChannel(second_address_, PeerName(Role::kScheduler), Credentials());
  const auto stub = v1::JobService::NewStub(channel);
  // It asks who leads again and again (LeadershipTimes::ask_every).
  std::string told;
  const absl::Time limit = absl::Now() + kLimit;
  while (told != first_address_ && absl::Now() < limit) {
    grpc::ClientContext context;
    SetDeadline(&context, kLimit);
    v1::ListJobsResponse response;
    const grpc::Status status = stub->ListJobs(&context, {}, &response);
    ASSERT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto leader = metadata.find(kLeaderMetadata);
    ASSERT_NE(leader, metadata.end());
    told.assign(leader->second.data(), leader->second.size());
    if (told == first_address_) {
      EXPECT_THAT(status.error_message(),
                  HasSubstr(absl::StrCat("the one that leads is at ", told)));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(told, first_address_);
  // Calls of every form are refused at once.
  grpc::ClientContext context;
  SetDeadline(&context, kLimit);
  v1::SubmitResponse response;
  const auto writer = stub->Submit(&context, &response);
  writer->Write(v1::SubmitRequest());
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Call(channel, "grpc.health.v1.Health/Check", "").messages,
              ElementsAre("\x08\x02"));  // NOT_SERVING
  const auto leading = MakeChannel(first_address_, PeerName(Role::kScheduler), Credentials());
  EXPECT_THAT(Call(leading, "grpc.health.v1.Health/Check", "").messages, ElementsAre("\x08\x01"));
}

TEST_F(StandbyTest, ClientsFollowWhoLeadsAndNothingIsLostWhenItEnds) {
  StartBoth();
  const client::ServiceClient both(absl::StrCat(second_address_, ",", first_address_));
  const absl::StatusOr<std::string> job = Submit(both);
  ASSERT_TRUE(job.ok()) << job.status();
  const client::ServiceClient told(second_address_);  // is sent on to the first
  EXPECT_TRUE(told.GetJob(*job).ok());

  std::optional<absl::Status> watched;
  std::thread watch(
      [&] { watched = both.WatchJob(*job, kLimit, [](const v1::Job*) { return true; }); });
  const absl::Time begun = absl::Now();
  EXPECT_TRUE(first_->End().ok());
  const absl::StatusOr<v1::Job> after = both.GetJob(*job);
  EXPECT_TRUE(after.ok()) << after.status();
  std::printf("without a leader for %s at most\n",
              absl::FormatDuration(absl::Now() - begun).c_str());
  EXPECT_LT(absl::Now() - begun, absl::Seconds(15));
  EXPECT_TRUE(told.GetJob(*job).ok());
  const absl::StatusOr<std::string> another = Submit(both);
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_NE(*another, *job);
  EXPECT_THAT(both.ListJobs(true).value(), SizeIs(2));

  // The one that ended comes back and stands by.
  first_ = std::make_unique<Running>(Options("first"));
  const std::string back = first_->Address();
  EXPECT_TRUE(client::ServiceClient(back).GetJob(*job).ok());
  EXPECT_TRUE(both.CancelJob(*job, "enough").ok());
  watch.join();  // it has gone over to the second, and sees the end there
  EXPECT_TRUE(watched->ok()) << *watched;
  EXPECT_TRUE(first_->End().ok()) << "it only stood by";
  EXPECT_TRUE(both.GetJob(*job).ok());
}

TEST_F(StandbyTest, WhoIsNotAskedToStandByDoesNotStart) {
  first_ = std::make_unique<Running>(Options("first"));
  (void)first_->Address();
  ServerOptions options = Options("other");
  options.standby = false;
  absl::Status refused;
  std::thread([&] { refused = RunServer(options); }).join();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("start this one with --standby"));
}

// The answer to a request of the page's port; empty: nobody answers.
std::string Get(int port, const std::string& path) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_file = [file] { close(file); };
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return "";
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: 127.0.0.1:", port,
                                           "\r\nConnection: close\r\n\r\n");
  if (write(file, request.data(), request.size()) != static_cast<ssize_t>(request.size()))
    return "";
  std::string answer(64 << 10, '\0');
  size_t size = 0;
  while (size < answer.size()) {
    const ssize_t got = read(file, answer.data() + size, answer.size() - size);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  answer.resize(size);
  return answer;
}

// A port that nobody listens on now.
int FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup close_file = [file] { close(file); };
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = bind(file, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return bound ? ntohs(address.sin_port) : 0;
}

TEST_F(StandbyTest, ThePageOfWhoStandsBySaysSo) {
  first_ = std::make_unique<Running>(Options("first"));
  (void)first_->Address();
  ServerOptions options = Options("second");
  const int port = FreePort();
  options.http = absl::StrCat("127.0.0.1:", port);
  second_ = std::make_unique<Running>(options);
  (void)second_->Address();
  for (const char* path : {"/readyz", "/", "/jobs/j1"})
    EXPECT_THAT(Get(port, path), AllOf(HasSubstr("503"), HasSubstr("this scheduler stands by")))
        << path;
  EXPECT_THAT(Get(port, "/healthz"), HasSubstr("200"));
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("heddle_build_info"));
  EXPECT_TRUE(first_->End().ok());
  // It takes over with its page, at the same port.
  EXPECT_TRUE(client::ServiceClient(second_->Address()).WaitUntilServing(kLimit).ok());
  std::string page;
  const absl::Time limit = absl::Now() + kLimit;
  while (page.find("HTTP/1.1 200") == std::string::npos && absl::Now() < limit) {
    page = Get(port, "/");
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(page, HasSubstr("HTTP/1.1 200"));
}

// Takes connections and says nothing, as a process that is stopped.
class Hung {
 public:
  Hung() : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(file_, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(file_, 64) == 0 &&
        getsockname(file_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      port_ = ntohs(address.sin_port);
  }
  ~Hung() { close(file_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int file_;
  int port_ = 0;
};

// Stands by. Tells that `wrong` leads as often as `times`, and then that `right` does.
class MistakenStandby : public grpc::CallbackGenericService {
 public:
  MistakenStandby(std::string wrong, int times, std::string right)
      : wrong_(std::move(wrong)), right_(std::move(right)), times_(times) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~MistakenStandby() override { server_->Shutdown(); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int asked() const { return asked_; }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      void OnDone() override { delete this; }
    };
    context->AddTrailingMetadata(kLeaderMetadata, asked_++ < times_ ? wrong_ : right_);
    auto* reactor = new Reactor;
    reactor->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "stands by"));
    return reactor;
  }

 private:
  const std::string wrong_, right_;
  const int times_;
  std::atomic<int> asked_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A leader that hangs still has the lease for some time, so whoever stands by tells that it leads. To go there each time
// would take longer than any call waits.
TEST_F(StandbyTest, WhoHangsIsNotCalledAgainUntilItSaysSomething) {
  constexpr int kTimes = 60;  // 3 s each, if it were called each time
  first_ = std::make_unique<Running>(Options("first"));
  const Hung hung;
  const MistakenStandby standby(hung.address(), kTimes, first_->Address());
  const client::ServiceClient client(absl::StrCat(hung.address(), ",", standby.address()));
  EXPECT_TRUE(client.WaitUntilServing(kLimit).ok());
  EXPECT_TRUE(client.ListJobs(true).ok());
  EXPECT_GT(standby.asked(), kTimes);
}

TEST_F(StandbyTest, NobodyAtAllIsToldAtOnce) {
  const client::ServiceClient client("127.0.0.1:1,127.0.0.1:2");
  const absl::Time begun = absl::Now();
  const absl::Status status = client.GetJob("j1").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1,127.0.0.1:2"));
  EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
}

}  // namespace
}  // namespace heddle::scheduler
