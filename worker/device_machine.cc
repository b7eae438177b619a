#include "worker/device_machine.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "worker/child_process.h"

namespace heddle::worker {
namespace {

// A child has printed everything when it ends, so this is short.
constexpr absl::Duration kPatience = absl::Seconds(1);

std::filesystem::path FileOf(const DeviceMachineOptions& options) {
  const std::string what = absl::StrCat(options.device_key, "\n", options.target, "\n",
                                        options.version, "\n", options.cores.size());
  return std::filesystem::path(options.folder) / (Sha256Hex(what).substr(0, 16) + ".machine");
}

// All that the child prints until it closes its output.
absl::StatusOr<std::string> ReadAll(ChildProcess* child, absl::Time give_up) {
  std::string text;
  char buffer[4096];
  while (text.size() <= kMaxMachineBytes) {
    child->DrainErr();
    const ssize_t n = read(child->out_fd(), buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n > 0) {
      text.append(buffer, static_cast<size_t>(n));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR)
      return absl::UnavailableError("the output of the process that measures is lost");
    const absl::Duration left = give_up - MonotonicNow();
    if (left <= absl::ZeroDuration())
      return absl::UnavailableError("the measurement takes too long");
    pollfd ready{.fd = child->out_fd(), .events = POLLIN, .revents = 0};
    poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
  }
  return absl::UnavailableError("the process that measures prints too much");
}

absl::StatusOr<std::string> Measure(const DeviceMachineOptions& options) {
  ChildOptions child_options;
  child_options.command = options.command;
  child_options.cores = options.cores;
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child,
                          ChildProcess::Start(child_options));
  child->CloseIn();
  absl::StatusOr<std::string> text = ReadAll(child.get(), MonotonicNow() + options.limit);
  const ChildEnd end = child->End(text.ok() ? kPatience : absl::ZeroDuration());
  HEDDLE_RETURN_IF_ERROR(text.status());
  if (!WIFEXITED(end.wait_status) || WEXITSTATUS(end.wait_status) != 0) {
    const std::string line = child->LastErrLine();
    return absl::UnavailableError(line.empty() ? DescribeEnd(end.wait_status) : line);
  }
  return text;
}

std::string ReadKept(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

// Replaces the file as a whole, so that no worker reads half of one.
bool Keep(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const std::filesystem::path made = absl::StrCat(path.string(), ".", getpid());
  {
    std::ofstream file(made, std::ios::binary | std::ios::trunc);
    if (!(file << text) || !file.flush()) return false;
  }
  std::filesystem::rename(made, path, error);
  return !error;
}

}  // namespace

absl::StatusOr<DeviceMachine> MachineOfDevice(const DeviceMachineOptions& options) {
  const std::filesystem::path path = FileOf(options);
  if (!options.again) {
    const std::string kept = ReadKept(path);
    if (!kept.empty() && options.check(kept).ok()) return DeviceMachine{kept, {}};
  }
  const absl::Time begin = MonotonicNow();
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, Measure(options));
  HEDDLE_RETURN_IF_ERROR(options.check(text));
  if (!Keep(path, text))
    spdlog::warn("cannot write {}: it is measured again next time", path.string());
  return DeviceMachine{text, MonotonicNow() - begin};
}

}  // namespace heddle::worker
