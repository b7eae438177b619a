// The whole scheduler in this process: its data directory and its port file.
#include "scheduler/service/server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/access/channel.h"
#include "proto/grpc_util.h"
#include "proto/jobs.grpc.pb.h"
#include "tests/access/lab.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(::testing::TempDir(), "/server", getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    options_.listen = "127.0.0.1:0";
    options_.data_directory = directory_ + "/data";
    options_.tracker_address = "127.0.0.1:1";  // nobody is there
    options_.port_file = directory_ + "/port";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  int WaitForPort() const {
    int port = 0;
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (port == 0 && absl::Now() < limit) {
      if (!(std::ifstream(options_.port_file) >> port)) port = 0;
      if (port == 0) absl::SleepFor(absl::Milliseconds(5));
    }
    return port;
  }

  std::string directory_;
  ServerOptions options_;
};

TEST_F(ServerTest, OneSchedulerADirectoryAndAPortFileForItsLife) {
  std::ofstream(options_.port_file) << "0\n";  // of an earlier life
  absl::Status ended = absl::UnknownError("it did not");
  std::thread first([&] { ended = RunServer(options_); });
  const int port = WaitForPort();
  EXPECT_GT(port, 0);
  absl::Status second, same_port;
  std::thread([&] {
    ServerOptions options = options_;
    options.port_file.clear();
    second = RunServer(options);
    options.data_directory = directory_ + "/other";
    options.listen = absl::StrCat("127.0.0.1:", port);
    same_port = RunServer(options);
  }).join();
  EXPECT_TRUE(absl::IsInvalidArgument(second));
  EXPECT_THAT(std::string(second.message()), HasSubstr("another heddle-scheduler"));
  EXPECT_TRUE(absl::IsInvalidArgument(same_port));
  EXPECT_THAT(std::string(same_port.message()), HasSubstr("cannot listen"));
  EXPECT_TRUE(std::filesystem::exists(options_.port_file));
  pthread_kill(first.native_handle(), SIGTERM);
  first.join();
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_FALSE(std::filesystem::exists(options_.port_file));
}

// The port file is a full pipe, so the scheduler serves while it waits to write there.
TEST_F(ServerTest, APortFileThatCannotBeWrittenEndsItInSpiteOfCalls) {
  options_.listen = absl::StrCat("unix:", directory_, "/sockets/scheduler");
  ASSERT_EQ(mkfifo(options_.port_file.c_str(), 0600), 0);
  const int pipe = open(options_.port_file.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(pipe, 0);
  const std::string zeros(4096, '\0');
  while (write(pipe, zeros.data(), zeros.size()) > 0) continue;
  while (write(pipe, zeros.data(), 1) > 0) continue;
  absl::Status ended;
  std::thread server([&] { ended = RunServer(options_); });

  const auto stub = v1::JobService::NewStub(
      MakeChannel(options_.listen, PeerName(Role::kScheduler), Credentials()));
  const auto serves = [&] {
    grpc::ClientContext context;
    SetDeadline(&context, absl::Seconds(5));
    v1::ListJobsResponse response;
    return stub->ListJobs(&context, {}, &response).ok();
  };
  const absl::Time limit = absl::Now() + absl::Seconds(60);
  while (!serves() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(20));
  grpc::ClientContext context;
  v1::BlobList stored;
  const auto upload = stub->UploadBlobs(&context, &stored);  // and sends nothing
  EXPECT_TRUE(serves());

  const absl::Time begun = absl::Now();
  close(pipe);  // nobody reads it any more, so the write fails
  server.join();
  EXPECT_LT(absl::Now() - begun, absl::Seconds(15));
  EXPECT_TRUE(absl::IsInvalidArgument(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("cannot write"));
  context.TryCancel();
  (void)upload->Finish();
}

// The answer of grpc.health.v1: a message with one field, the status.
TEST_F(ServerTest, TheHealthServiceSaysServingAndThenThatItEnds) {
  const std::string kServing = "\x08\x01", kNotServing = "\x08\x02";
  absl::Status ended = absl::UnknownError("it did not");
  std::thread server([&] { ended = RunServer(options_); });
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", WaitForPort()),
                                           grpc::InsecureChannelCredentials());
  const auto check = [&] { return Call(channel, "grpc.health.v1.Health/Check", "").messages; };
  EXPECT_THAT(check(), ElementsAre(kServing));
  // A watch gets the present status, and the next one while the scheduler drains.
  std::vector<std::string> watched;
  std::thread watch(
      [&] { watched = Call(channel, "grpc.health.v1.Health/Watch", "", 2).messages; });
  absl::SleepFor(absl::Milliseconds(200));
  pthread_kill(server.native_handle(), SIGTERM);
  watch.join();
  server.join();
  EXPECT_THAT(watched, ElementsAre(kServing, kNotServing));
  EXPECT_TRUE(ended.ok()) << ended;
}

}  // namespace
}  // namespace heddle::scheduler
