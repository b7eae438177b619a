#include "client/doctor/run_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "base/clock.h"

namespace heddle::client {
namespace {

constexpr size_t kMostOutputBytes = size_t{64} << 10;
constexpr absl::Duration kPollProgram = absl::Milliseconds(10);

// Waits until the process has ended; -1 if it still runs at `deadline`.
int WaitUntil(pid_t pid, absl::Time deadline) {
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (MonotonicNow() > deadline) return -1;
    absl::SleepFor(kPollProgram);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

absl::StatusOr<ProgramResult> RunProgram(const std::vector<std::string>& words,
                                         absl::Duration limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::UnavailableError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const absl::Cleanup close_reader = [&ends] { close(ends[0]); };
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0)
    return absl::NotFoundError(fmt::format("cannot start {}: {}", words[0], std::strerror(error)));
  const absl::Time deadline = MonotonicNow() + limit;
  ProgramResult result;
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - MonotonicNow());
    pollfd ready = {ends[0], POLLIN, 0};
    if (left_ms <= 0) break;
    const int polled = poll(&ready, 1, static_cast<int>(left_ms));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) break;
    char buffer[4096];
    const ssize_t got = read(ends[0], buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const size_t room = kMostOutputBytes - result.output.size();
    result.output.append(buffer, std::min(room, static_cast<size_t>(got)));
  }
  result.status = WaitUntil(pid, deadline);
  if (result.status >= 0) return result;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return absl::DeadlineExceededError(
      fmt::format("{} did not end within {}", words[0], absl::FormatDuration(limit)));
}

}  // namespace heddle::client
