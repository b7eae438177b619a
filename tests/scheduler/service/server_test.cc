// The whole scheduler in this process: its data directory and its port file.
#include "scheduler/service/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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
