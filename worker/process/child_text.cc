#include "worker/process/child_text.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/clock.h"
#include "base/status_macros.h"

namespace heddle::worker {
namespace {

// A child has printed everything when it ends, so this is short.
constexpr absl::Duration kPatience = absl::Seconds(1);

// Writes what the pipe takes. Nothing is left if the child reads no more: then its end tells why.
void WriteSome(ChildProcess* child, absl::string_view* input) {
  while (!input->empty()) {
    const ssize_t n = write(child->in_fd(), input->data(), input->size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    input->remove_prefix(n < 0 ? input->size() : static_cast<size_t>(n));
  }
  child->CloseIn();
}

// Until the child closes its output.
absl::StatusOr<std::string> ReadAll(ChildProcess* child, absl::string_view input,
                                    absl::Time give_up, size_t most_bytes) {
  std::string text;
  char buffer[4096];
  while (text.size() <= most_bytes) {
    child->DrainErr();
    if (child->in_open()) WriteSome(child, &input);
    const ssize_t n = read(child->out_fd(), buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n > 0) {
      text.append(buffer, static_cast<size_t>(n));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR)
      return absl::UnavailableError("the output of a child process is lost");
    const absl::Duration left = give_up - MonotonicNow();
    if (left <= absl::ZeroDuration()) return absl::UnavailableError("it takes too long");
    pollfd ready[] = {{.fd = child->out_fd(), .events = POLLIN, .revents = 0},
                      {.fd = child->in_fd(), .events = POLLOUT, .revents = 0}};
    // Its errors are read now and then, so that it does not wait for room.
    const int64_t wait_ms = std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, 100);
    poll(ready, child->in_open() ? 2 : 1, static_cast<int>(wait_ms));
  }
  return absl::UnavailableError("a child process prints too much");
}

}  // namespace

absl::StatusOr<std::string> TextOfChild(const ChildOptions& options, absl::string_view input,
                                        absl::Duration limit, size_t most_bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child, ChildProcess::Start(options));
  absl::StatusOr<std::string> text =
      ReadAll(child.get(), input, MonotonicNow() + limit, most_bytes);
  const ChildEnd end = child->End(text.ok() ? kPatience : absl::ZeroDuration());
  HEDDLE_RETURN_IF_ERROR(text.status());
  if (!WIFEXITED(end.wait_status) || WEXITSTATUS(end.wait_status) != 0) {
    const std::string line = child->LastErrLine();
    return absl::UnavailableError(line.empty() ? DescribeEnd(end.wait_status) : line);
  }
  return text;
}

}  // namespace heddle::worker
