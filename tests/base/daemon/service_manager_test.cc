#include "base/daemon/service_manager.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace heddle {
namespace {

// The socket of a service manager, at an abstract address.
class Manager {
 public:
  Manager() : name_("@heddle-test-" + std::to_string(getpid())) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data() + 1, name_.size() - 1);
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
  }
  ~Manager() { close(fd_); }
  const std::string& name() const { return name_; }
  // The next message; empty if there is none for `limit_ms`.
  std::string Next(int limit_ms) {
    pollfd waiting = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, limit_ms) != 1) return "";
    char text[256];
    const ssize_t size = recv(fd_, text, sizeof(text), 0);
    return size > 0 ? std::string(text, static_cast<size_t>(size)) : "";
  }

 private:
  std::string name_;
  int fd_ = -1;
};

constexpr int kLimitMs = 20'000;  // what is expected to come comes much sooner

class ServiceManagerTest : public testing::Test {
 protected:
  void SetUp() override {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  void TearDown() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
  // Serves on a thread of its own, as a daemon's main thread does.
  void Start() {
    thread_ = std::thread([this] {
      serving_ = pthread_self();
      started_ = true;
      got_ = ServeUntilSignal(signals_, [this] { return live_.load(); });
    });
    while (!started_) std::this_thread::yield();
  }
  int End() {
    pthread_kill(serving_, SIGUSR1);
    thread_.join();
    return got_;
  }

  sigset_t signals_;
  std::atomic<bool> live_{true};
  std::atomic<bool> started_{false};
  pthread_t serving_{};
  std::thread thread_;
  int got_ = 0;
};

TEST_F(ServiceManagerTest, TellsReadyAndStopping) {
  Manager manager;
  setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  Start();
  EXPECT_EQ(manager.Next(kLimitMs), "READY=1");
  EXPECT_EQ(manager.Next(200), "");  // nobody asked for a watchdog
  EXPECT_EQ(End(), SIGUSR1);
  EXPECT_EQ(manager.Next(kLimitMs), "STOPPING=1");
}

TEST_F(ServiceManagerTest, FeedsTheWatchdogWhileTheProgramIsLive) {
  Manager manager;
  setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "150000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  Start();
  EXPECT_EQ(manager.Next(kLimitMs), "READY=1\nWATCHDOG_USEC=150000");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(manager.Next(kLimitMs), "WATCHDOG=1");
  }
  live_ = false;
  while (!manager.Next(100).empty()) continue;  // what was on its way
  EXPECT_EQ(manager.Next(300), "");             // the program hangs
  live_ = true;
  EXPECT_EQ(manager.Next(kLimitMs), "WATCHDOG=1");  // and goes on
  EXPECT_EQ(End(), SIGUSR1);
}

TEST_F(ServiceManagerTest, TheWatchdogOfAnotherProcessIsNotFed) {
  Manager manager;
  setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "30000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  Start();
  EXPECT_EQ(manager.Next(kLimitMs), "READY=1");
  EXPECT_EQ(manager.Next(300), "");
  EXPECT_EQ(End(), SIGUSR1);
}

TEST_F(ServiceManagerTest, WithoutAManagerItOnlyWaits) {
  setenv("WATCHDOG_USEC", "no number", 1);
  Start();
  EXPECT_EQ(End(), SIGUSR1);
}

TEST_F(ServiceManagerTest, StandsByUntilItsTurn) {
  Manager manager;
  setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  int asked = 0;
  EXPECT_EQ(StandByForTurn(signals_, 1, [&asked] { return ++asked == 3; }), 0);
  EXPECT_EQ(manager.Next(kLimitMs), "READY=1\nSTATUS=stands by");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(manager.Next(kLimitMs), "WATCHDOG=1");
  EXPECT_EQ(manager.Next(kLimitMs), "WATCHDOG=1\nSTATUS=");
  EXPECT_EQ(manager.Next(100), "");
}

// A take-over reads all unfinished jobs, as a start does.
TEST_F(ServiceManagerTest, TheWatchdogLeavesTimeForATakeOver) {
  Manager manager;
  setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "150000", 1);
  EXPECT_EQ(StandByForTurn(signals_, 1, [] { return true; }), 0);
  EXPECT_EQ(manager.Next(kLimitMs), "READY=1\nSTATUS=stands by");
  EXPECT_EQ(manager.Next(kLimitMs), "WATCHDOG=1\nSTATUS=\nWATCHDOG_USEC=600000000");
  Start();
  EXPECT_EQ(manager.Next(kLimitMs), "READY=1\nWATCHDOG_USEC=150000");
  EXPECT_EQ(End(), SIGUSR1);
}

TEST_F(ServiceManagerTest, ASignalEndsStandingBy) {
  Manager manager;
  setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
  pthread_kill(pthread_self(), SIGUSR1);
  EXPECT_EQ(StandByForTurn(signals_, 60'000, [] { return false; }), SIGUSR1);
  std::string last;
  for (std::string next; !(next = manager.Next(100)).empty();) last = next;
  EXPECT_EQ(last, "STOPPING=1");
}

TEST(TellServiceManager, RefusesWhatIsNoSocket) {
  EXPECT_FALSE(TellServiceManager("", "READY=1"));
  EXPECT_FALSE(TellServiceManager("/nonexistent/socket", "READY=1"));
  EXPECT_FALSE(TellServiceManager(std::string(200, 'x').c_str(), "READY=1"));
}

}  // namespace
}  // namespace heddle
