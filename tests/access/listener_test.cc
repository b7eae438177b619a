// What a daemon may listen on, what a client may connect to, and the files of both.
#include "proto/access/listener.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/access/access_table.h"
#include "proto/access/channel.h"
#include "proto/access/local_socket.h"
#include "proto/grpc_util.h"
#include "tests/access/lab.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

// What a client sends first: the beginning of HTTP/2, with empty settings.
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "heddle_listen_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ListenerTest() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    door_.reset();
    std::filesystem::remove_all(folder_);
  }
  absl::Status Listen(const std::string& address, const Credentials& credentials = {},
                      const TokenFile* tokens = nullptr) {
    grpc::ServerBuilder builder;
    ListenerOptions options;
    options.address = address;
    options.credentials = credentials;
    options.tokens = tokens;
    absl::StatusOr<std::unique_ptr<PeerDoor>> added = AddListener(options, &builder, &port_);
    if (!added.ok()) return added.status();
    door_ = *std::move(added);
    builder.RegisterCallbackGenericService(&generic_);
    server_ = StartServer(&builder, door_.get());
    return server_ != nullptr && port_ != 0 ? absl::OkStatus()
                                            : absl::UnavailableError("no server");
  }

  std::string folder_;
  grpc::CallbackGenericService generic_;
  std::unique_ptr<PeerDoor> door_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

TEST_F(ListenerTest, NothingButLoopbackWithoutCertificates) {
  for (const char* address :
       {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", "*:0", ":0", "example.com:0", "dns:localhost:0"}) {
    const absl::Status refused = Listen(address);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << address;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("heddle-ca init"));
  }
  EXPECT_EQ(OpenAddressWarning("unix:/x", {}), "");
  EXPECT_THAT(OpenAddressWarning("127.0.0.1:1", {}), HasSubstr("everybody on this machine"));
  EXPECT_EQ(OpenAddressWarning("0.0.0.0:1", Lab::Get().Of("tracker")), "");
  EXPECT_TRUE(Listen("0.0.0.0:0", Lab::Get().Of("tracker")).ok());
}

TEST_F(ListenerTest, WhatIsNoAddressIsSaidToBeNone) {
  for (const char* address : {"bogus", "127.0.0.1", "127.0.0.1:", ":", "127.0.0.1:65536",
                              "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:1e3"}) {
    const absl::Status refused = Listen(address);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << address;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("HOST:PORT")) << address;
  }
  for (const char* address : {"unix:x", "127.0.0.1:0", "[::1]:65535", "host:9190", ":0"})
    EXPECT_TRUE(CheckListenAddress(address).ok()) << address;
}

TEST_F(ListenerTest, NothingIsSentInTheClearToAnotherMachine) {
  EXPECT_TRUE(CheckAddress("10.0.0.1:1", Lab::Get().Of("ann")).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(CheckAddress("10.0.0.1:1", {})));
  // What is no address does not need TLS.
  for (const char* address : {"bogus", "http://127.0.0.1:9190", "http://lab", "127.0.0.1:99999",
                              "127.0.0.1:", ":9190", ""}) {
    for (const Credentials& credentials : {Credentials{}, Lab::Get().Of("ann")}) {
      const absl::Status refused = CheckAddress(address, credentials);
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << address;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("HOST:PORT")) << address;
    }
  }
  EXPECT_TRUE(CheckAddress("[::1]:9190", {}).ok());
  EXPECT_TRUE(CheckAddress("unix:socket", {}).ok());
  const auto channel = MakeChannel("10.0.0.1:1", PeerName(Role::kScheduler), {});
  const absl::Time begun = absl::Now();
  EXPECT_FALSE(Call(channel, "grpc.health.v1.Health/Check", "").status.ok());
  EXPECT_LT(absl::Now() - begun, absl::Seconds(20)) << "no connection is tried";
}

TEST_F(ListenerTest, TheSocketIsOfThisUserAlone) {
  const std::string address = absl::StrCat("unix:", folder_, "/sockets/scheduler");
  ASSERT_TRUE(Listen(address).ok());
  struct stat info = {};
  ASSERT_EQ(stat((folder_ + "/sockets").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const auto channel = MakeChannel(address, PeerName(Role::kScheduler), {});
  // The daemon's own user may call everything that has a row, and nothing else.
  for (const auto* method : AllMethods()) {
    EXPECT_EQ(Call(channel, NameOf(*method), "").status.error_code(),
              grpc::StatusCode::UNIMPLEMENTED)
        << NameOf(*method);
  }
  EXPECT_EQ(Call(channel, "x/y", "").status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(std::string(PrepareSocket(address).message()), HasSubstr("serves there already"));
}

// The kernel tells the user of each connection. In a folder that a careless owner opened later, another
// user still gets no answer.
TEST_F(ListenerTest, AnotherUserIsNotLetIn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a process of another user";
  const std::string address = absl::StrCat("unix:", folder_, "/sockets/scheduler");
  ASSERT_TRUE(Listen(address).ok());
  for (const std::string& open : {folder_, folder_ + "/sockets"}) chmod(open.c_str(), 0755);
  chmod((folder_ + "/sockets/scheduler").c_str(), 0666);
  // Connects as `uid`, sends the beginning of HTTP/2, and waits for any byte: 0 if one came.
  const auto answered = [&](uid_t uid) {
    const pid_t child = fork();
    if (child == 0) {
      sockaddr_un socket_address = {};
      socket_address.sun_family = AF_UNIX;
      SocketPath(address).copy(socket_address.sun_path, sizeof(socket_address.sun_path) - 1);
      const std::string_view preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
      char byte = 0;
      const int file = socket(AF_UNIX, SOCK_STREAM, 0);
      if (setuid(uid) != 0) _exit(3);
      if (connect(file, reinterpret_cast<sockaddr*>(&socket_address), sizeof(socket_address)) != 0)
        _exit(2);
      _exit(send(file, preface.data(), preface.size(), MSG_NOSIGNAL) > 0 &&
                    read(file, &byte, 1) == 1
                ? 0
                : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(answered(0), 0);
  EXPECT_EQ(answered(65534), 1) << "connected, and was cut off";
}

// Whoever finds the socket before the server has started is answered once it has.
TEST_F(ListenerTest, AnEarlyCallerIsAnswered) {
  const std::string address = absl::StrCat("unix:", folder_, "/sockets/scheduler");
  grpc::ServerBuilder builder;
  ListenerOptions options;
  options.address = address;
  auto door = AddListener(options, &builder, &port_);
  ASSERT_TRUE(door.ok()) << door.status();
  door_ = *std::move(door);
  sockaddr_un socket_address = {};
  socket_address.sun_family = AF_UNIX;
  SocketPath(address).copy(socket_address.sun_path, sizeof(socket_address.sun_path) - 1);
  const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(file, reinterpret_cast<sockaddr*>(&socket_address), sizeof(socket_address)), 0);
  absl::SleepFor(absl::Milliseconds(200));  // long enough to be taken in, if that happened too soon
  builder.RegisterCallbackGenericService(&generic_);
  server_ = StartServer(&builder, door_.get());
  ASSERT_NE(server_, nullptr);
  ASSERT_GT(send(file, kPreface.data(), kPreface.size(), MSG_NOSIGNAL), 0);
  pollfd answer = {.fd = file, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&answer, 1, 20'000), 1);
  char byte = 0;
  EXPECT_EQ(read(file, &byte, 1), 1);
  close(file);
}

// ---- peers that say nothing ----

// Whether a server ends the connection of a peer that sends `bytes` and then nothing, and reads all that comes.
bool SendsAway(int port, std::string_view bytes) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  pollfd answer = {.fd = file, .events = POLLIN, .revents = 0};
  char part[256];
  bool ended = false;
  while (!ended && poll(&answer, 1, 30'000) == 1) ended = recv(file, part, sizeof(part), 0) <= 0;
  close(file);
  return ended;
}

TEST_F(ListenerTest, AClientThatAnswersNoPingsLosesItsConnection) {
  grpc::ServerBuilder builder;
  Pings pings;
  pings.server_every = absl::Milliseconds(50);
  pings.server_patience = absl::Milliseconds(200);
  UsePings(&builder, pings);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterCallbackGenericService(&generic_);
  server_ = builder.BuildAndStart();
  EXPECT_TRUE(SendsAway(port_, kPreface));
}

TEST_F(ListenerTest, WhoNeverBeginsToSpeakLosesItsConnection) {
  grpc::ServerBuilder builder;
  ServerLimits limits;
  limits.handshake = absl::Milliseconds(200);
  LimitServer(&builder, "heddle-test", limits);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterCallbackGenericService(&generic_);
  server_ = builder.BuildAndStart();
  EXPECT_TRUE(SendsAway(port_, ""));
}

TEST_F(ListenerTest, APathMayBeRelative) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  ASSERT_TRUE(Listen("unix:s/scheduler").ok());
  const auto channel = MakeChannel("unix:s/scheduler", PeerName(Role::kScheduler), {});
  EXPECT_EQ(Call(channel, "heddle.v1.JobService/GetJob", "").status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  server_->Shutdown(std::chrono::system_clock::now());
  door_.reset();
  EXPECT_FALSE(std::filesystem::exists("s/scheduler"));
  std::filesystem::current_path(before);
}

TEST_F(ListenerTest, ATokenCountsOverTheSocket) {
  const std::string file = folder_ + "/tokens";
  const std::string token =
      Lab::Run({"token", file, "--role", "read-only", "--name", "eve", "--days", "1"});
  const TokenFile tokens(file);
  const std::string address = absl::StrCat("unix:", folder_, "/s/scheduler");
  ASSERT_TRUE(Listen(address, {}, &tokens).ok());
  const auto channel = MakeChannel(address, PeerName(Role::kScheduler), {{}, token});
  EXPECT_EQ(Call(channel, "heddle.v1.JobService/CancelJob", "").status.error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Call(channel, "heddle.v1.JobService/GetJob", "").status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ListenerTest, WhoIsRevokedIsRefusedFromThenOn) {
  Credentials scheduler = Lab::Get().Of("scheduler");
  const std::string list = folder_ + "/revoked";
  scheduler.tls->revoked = list;
  ASSERT_TRUE(Listen("127.0.0.1:0", scheduler).ok());
  const auto connect = [&](const char* name) {
    return MakeChannel(absl::StrCat("127.0.0.1:", port_), PeerName(Role::kScheduler),
                       Lab::Get().Of(name));
  };
  const auto ann = connect("ann"), bob = connect("bob");
  const auto call = [](const auto& channel) {
    return Call(channel, "heddle.v1.JobService/GetJob", "").status;
  };
  const auto write = [&](const std::string& text) {
    std::ofstream(list) << text;
    chmod(list.c_str(), 0600);
    absl::SleepFor(absl::Milliseconds(1100));  // it looks once a second
  };
  EXPECT_EQ(call(ann).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  write("# left the lab\nuser/ann\nworker/bob\n");
  EXPECT_EQ(call(ann).error_code(), grpc::StatusCode::UNAUTHENTICATED) << "on its old connection";
  EXPECT_THAT(call(ann).error_message(), HasSubstr("user/ann is revoked here"));
  EXPECT_EQ(call(bob).error_code(), grpc::StatusCode::UNIMPLEMENTED) << "bob is no worker";
  write("user/ann\nbob\n");
  EXPECT_THAT(call(bob).error_message(), HasSubstr("line 2 is not ROLE/NAME"));
  std::filesystem::remove(list);
  std::filesystem::create_directory(list);  // root can read every file, but no directory
  chmod(list.c_str(), 0700);
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_THAT(call(ann).error_message(), HasSubstr("it cannot be read"));
  std::filesystem::remove(list);
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_EQ(call(ann).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ListenerTest, AFolderThatOthersCanEnterIsRefused) {
  std::filesystem::create_directory(folder_ + "/open");
  chmod((folder_ + "/open").c_str(), 0755);
  EXPECT_THAT(std::string(PrepareSocket("unix:" + folder_ + "/open/s").message()),
              HasSubstr("chmod 700"));
  std::filesystem::create_directory_symlink(folder_, folder_ + "/link");
  EXPECT_FALSE(PrepareSocket("unix:" + folder_ + "/link/s").ok());
  EXPECT_THAT(std::string(PrepareSocket("unix:/tmp/" + std::string(107, 'x')).message()),
              HasSubstr("107"));
  EXPECT_FALSE(PrepareSocket("unix:").ok());
}

TEST_F(ListenerTest, ALongDataDirectoryGetsAShortFolderForSockets) {
  EXPECT_EQ(SocketFolder(folder_).value(), folder_ + "/sockets");
  EXPECT_EQ(SocketFolder(folder_).value(), folder_ + "/sockets") << "again";
  const std::string other = SocketFolder(folder_ + "/" + std::string(100, 'x')).value();
  EXPECT_LT(other.size(), 40u);
  EXPECT_TRUE(PrepareSocket("unix:" + other + "/scheduler").ok());
  std::filesystem::remove_all(other);
}

TEST_F(ListenerTest, TheFilesOfADirectoryAreChecked) {
  const std::string copy = folder_ + "/w1";
  auto fresh = [&] {
    std::filesystem::remove_all(copy);
    std::filesystem::copy(Lab::Get().Directory("w1"), copy);
  };
  auto problem = [&] { return std::string(LoadCredentials(copy, "").status().message()); };
  fresh();
  EXPECT_EQ(LoadCredentials(copy, "")->tls->identity, (Identity{Role::kWorker, "w1", ""}));
  EXPECT_THAT(std::string(LoadDaemonCredentials(copy, Role::kScheduler).status().message()),
              HasSubstr("needs the role scheduler"));
  chmod((copy + "/key.pem").c_str(), 0644);
  EXPECT_THAT(problem(), HasSubstr("chmod 600"));
  fresh();
  std::filesystem::remove(copy + "/key.pem");
  EXPECT_THAT(problem(), HasSubstr("key.pem"));
  fresh();
  std::ofstream(copy + "/cert.pem") << "no certificate";
  EXPECT_THAT(problem(), HasSubstr("is no certificate"));
  fresh();
  std::filesystem::copy(copy + "/ca.pem", copy + "/cert.pem",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(problem(), HasSubstr("has 0 identities"));
  std::filesystem::remove(copy + "/ca.pem");
  EXPECT_THAT(problem(), HasSubstr("ca.pem"));
  EXPECT_FALSE(LoadCredentials(folder_ + "/none", "").ok());
  const std::string certificate = Lab::Get().Of("w1").tls->certificate;
  EXPECT_TRUE(IdentityOfCertificate(certificate, absl::Now() + absl::Hours(24 * 364)).ok());
  EXPECT_THAT(std::string(IdentityOfCertificate(certificate, absl::Now() + absl::Hours(24 * 366))
                              .status()
                              .message()),
              HasSubstr("expired on"));
}

TEST_F(ListenerTest, ATokenFileIsPrivateAndHoldsOneToken) {
  const std::string file = folder_ + "/token";
  std::ofstream(file) << "heddle_abc\n";
  chmod(file.c_str(), 0644);
  EXPECT_THAT(std::string(LoadCredentials("", file).status().message()), HasSubstr("chmod 600"));
  chmod(file.c_str(), 0600);
  EXPECT_EQ(LoadCredentials("", file)->token, "heddle_abc");
  std::ofstream(file) << "one\ntwo\n";
  EXPECT_THAT(std::string(LoadCredentials("", file).status().message()),
              HasSubstr("more than one token"));
}

}  // namespace
}  // namespace heddle
