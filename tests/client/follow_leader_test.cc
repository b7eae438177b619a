// A client that knows several schedulers finds the one that leads as soon as that answers.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/service_client.h"
#include "proto/jobs.grpc.pb.h"

namespace heddle::client {
namespace {

// A scheduler with `pages` full pages of jobs.
class Service : public v1::JobService::Service {
 public:
  std::atomic<int> pages = 0;

 private:
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse* response) override {
    if (pages == 0) return grpc::Status::OK;
    for (size_t i = 0; i < kMaxListedJobs / 2; ++i) response->add_jobs()->set_id("j1");
    response->set_more(--pages > 0);
    return grpc::Status::OK;
  }
};

// `port`: 0 picks a free one.
std::unique_ptr<grpc::Server> Serve(Service* service, int* port) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", *port), grpc::InsecureServerCredentials(),
                           port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(service);
  return builder.BuildAndStart();
}

// Cuts off whoever connects to the port, and counts them. Without gRPC, whose servers would do the work of the client's.
class ClosedDoor {
 public:
  explicit ClosedDoor(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    open_ = bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
            listen(socket_, 16) == 0;
    thread_ = std::thread([this] {
      while (!stop_) {
        pollfd event = {socket_, POLLIN, 0};
        if (poll(&event, 1, /*ms=*/20) != 1) continue;
        const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection < 0) continue;
        close(connection);
        ++tries_;
      }
    });
  }
  ~ClosedDoor() { Remove(); }
  bool open() const { return open_; }
  int tries() const { return tries_; }  // how many have connected
  // Stops listening.
  void Remove() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
      close(socket_);
    }
  }

 private:
  const int socket_;
  bool open_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<int> tries_ = 0;
  std::thread thread_;
};

// A try to connect ends as soon as it fails, and the next one follows. The pauses grow from 0.1 s to 2 s, so eight tries take about seven
// seconds. A call looks for the leader for 20 s, which would be too short for eight if a failed try went on for its three seconds, or if
// gRPC, as it does while no call waits within it, looked at connections every five.
TEST(FollowLeaderTest, ConnectionsAreMadeWhileACallLooksForWhoLeads) {
  constexpr int kTries = 8;
  Service service;
  int port = 0;
  std::unique_ptr<grpc::Server> server = Serve(&service, &port);
  ASSERT_NE(server, nullptr);
  const ServiceClient client(absl::StrCat("127.0.0.1:", port, ",127.0.0.1:1"));
  ASSERT_TRUE(client.WaitUntilServing(absl::Seconds(60)).ok());
  server->Shutdown();
  server.reset();

  ClosedDoor door(port);
  ASSERT_TRUE(door.open());
  std::future<absl::Status> call =
      std::async(std::launch::async, [&] { return client.ListJobs(false).status(); });
  while (door.tries() < kTries &&
         call.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
  }
  EXPECT_GE(door.tries(), kTries) << "when the call gave up";
  door.Remove();
  server = Serve(&service, &port);
  const absl::Status found = call.get();
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(found.ok()) << found;
}

TEST(ListJobsTest, AListThatIsCutSaysSo) {
  Service service;
  int port = 0;
  const std::unique_ptr<grpc::Server> server = Serve(&service, &port);
  ASSERT_NE(server, nullptr);
  const ServiceClient client(absl::StrCat("127.0.0.1:", port));
  for (const int pages : {1, 2, 3}) {
    service.pages = pages;
    bool more = pages < 3;
    const absl::StatusOr<std::vector<v1::Job>> jobs = client.ListJobs(true, &more);
    ASSERT_TRUE(jobs.ok()) << jobs.status();
    EXPECT_EQ(jobs->size(), kMaxListedJobs / 2 * static_cast<size_t>(std::min(2, pages)));
    EXPECT_EQ(more, pages > 2);
  }
}

}  // namespace
}  // namespace heddle::client
