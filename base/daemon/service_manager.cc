#include "base/daemon/service_manager.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace heddle {
namespace {

// A take-over does the work of a start, so it may take as long as TimeoutStartSec in the units.
constexpr int64_t kTakeOverUs = 600'000'000;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// 0 if the text is no positive number.
int64_t PositiveNumber(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end && number > 0 ? number : 0;
}

// Microseconds; 0: no watchdog watches this program.
int64_t WatchdogSpan() {
  // It may be that of another program, of which this one is a child.
  const std::string watched = Variable("WATCHDOG_PID");
  if (!watched.empty() && PositiveNumber(watched) != getpid()) return 0;
  return PositiveNumber(Variable("WATCHDOG_USEC"));
}

}  // namespace

bool TellServiceManager(const char* socket_path, std::string_view lines) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::strlen(socket_path);
  if (size == 0 || size >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, socket_path, size);
  if (socket_path[0] == '@') address.sun_path[0] = '\0';  // an abstract address
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
  // A manager that does not read must not hold the program.
  const ssize_t sent = sendto(fd, lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
  return sent == static_cast<ssize_t>(lines.size());
}

int ServeUntilSignal(const sigset_t& signals, const std::function<bool()>& live) {
  const std::string manager = Variable("NOTIFY_SOCKET");
  const int64_t span_us = WatchdogSpan();
  const int64_t pause_us = span_us / 3;
  const timespec pause = {.tv_sec = static_cast<time_t>(pause_us / 1'000'000),
                          .tv_nsec = static_cast<long>(pause_us % 1'000'000 * 1000)};
  const bool is_watched = pause_us > 0 && !manager.empty();
  std::string ready = "READY=1";
  if (is_watched) ready += "\nWATCHDOG_USEC=" + std::to_string(span_us);
  TellServiceManager(manager.c_str(), ready);
  int signal = -1;
  while (signal < 0) {
    signal = sigtimedwait(&signals, nullptr, is_watched ? &pause : nullptr);
    if (signal >= 0 || errno != EAGAIN) continue;  // another signal only ends the pause early
    if (live()) TellServiceManager(manager.c_str(), "WATCHDOG=1");
  }
  TellServiceManager(manager.c_str(), "STOPPING=1");
  return signal;
}

int StandByForTurn(const sigset_t& signals, int poll_ms, const std::function<bool()>& turn) {
  const std::string manager = Variable("NOTIFY_SOCKET");
  TellServiceManager(manager.c_str(), "READY=1\nSTATUS=stands by");
  const timespec pause = {.tv_sec = poll_ms / 1000, .tv_nsec = poll_ms % 1000 * 1'000'000L};
  while (!turn()) {
    TellServiceManager(manager.c_str(), "WATCHDOG=1");
    const int signal = sigtimedwait(&signals, nullptr, &pause);
    if (signal < 0) continue;
    TellServiceManager(manager.c_str(), "STOPPING=1");
    return signal;
  }
  std::string turn_came = "WATCHDOG=1\nSTATUS=";
  if (WatchdogSpan() > 0) turn_came += "\nWATCHDOG_USEC=" + std::to_string(kTakeOverUs);
  TellServiceManager(manager.c_str(), turn_came);
  return 0;
}

}  // namespace heddle
