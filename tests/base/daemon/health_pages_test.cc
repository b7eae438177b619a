// The pages by which programs watch a daemon.
#include "base/daemon/health_pages.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The whole answer of a server of this machine, its headers included.
std::string Get(int port, const std::string& path) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  std::string answer;
  if (connect(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(write(file, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[4096];
    for (ssize_t n = 0; (n = read(file, buffer, sizeof(buffer))) > 0;)
      answer.append(buffer, static_cast<size_t>(n));
  }
  close(file);
  return answer;
}

class HealthPagesTest : public ::testing::Test {
 protected:
  HealthPages Pages() {
    return {
        .metrics = &metrics_, .live = [this] { return live_; }, .ready = [this] { return ready_; }};
  }
  HttpResponse Ask(const std::string& path, const std::string& method = "GET") {
    HttpRequest request;
    request.method = method;
    request.path = path;
    HttpResponse other;
    other.status = 404;
    return AnswerHealth(Pages(), request).value_or(other);
  }

  Metrics metrics_{"heddle-test"};
  absl::Status live_, ready_;
};

TEST_F(HealthPagesTest, AReasonComesWithA503) {
  EXPECT_EQ(Ask("/healthz").status, 200);
  EXPECT_EQ(Ask("/healthz").body, "ok\n");
  ready_ = absl::UnavailableError("the tracker\ndoes not answer");
  EXPECT_EQ(Ask("/healthz").status, 200) << "a restart would not help";
  EXPECT_EQ(Ask("/readyz").status, 503);
  EXPECT_EQ(Ask("/readyz").body, "the tracker does not answer\n");
  live_ = absl::InternalError("no decision for 30s");
  EXPECT_EQ(Ask("/healthz").status, 503);
  EXPECT_EQ(Ask("/healthz").body, "no decision for 30s\n");
}

TEST_F(HealthPagesTest, OnlyThesePagesAndOnlyReading) {
  EXPECT_EQ(Ask("/metrics").content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(Ask("/metrics").body, HasSubstr("heddle_build_info"));
  EXPECT_EQ(Ask("/metrics", "POST").status, 405);
  EXPECT_EQ(Ask("/").status, 404);
  EXPECT_EQ(Ask("/metrics/").status, 404);
}

TEST_F(HealthPagesTest, TheyAreServed) {
  const auto server = ServeHealth("127.0.0.1:0", Pages());
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_THAT(Get(port, "/metrics"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(port, "/metrics"), HasSubstr("\nheddle_build_info{"));
  EXPECT_THAT(Get(port, "/healthz"), StartsWith("HTTP/1.1 200"));
  ready_ = absl::UnavailableError("it drains");
  EXPECT_THAT(Get(port, "/readyz"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Get(port, "/readyz"), HasSubstr("it drains"));
  EXPECT_THAT(Get(port, "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_TRUE(absl::IsInvalidArgument(ServeHealth("0.0.0.0:0", Pages()).status()));
}

}  // namespace
}  // namespace heddle
