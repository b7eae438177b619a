#include "worker/supervisor/device_machine.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/vocabulary/limits.h"
#include "worker/process/child_text.h"

namespace heddle::worker {
namespace {

std::filesystem::path FileOf(const DeviceMachineOptions& options) {
  const std::string what = absl::StrCat(options.device_key, "\n", options.target, "\n",
                                        options.version, "\n", options.cores.size());
  return std::filesystem::path(options.folder) / (Sha256Hex(what).substr(0, 16) + ".machine");
}

absl::StatusOr<std::string> Measure(const DeviceMachineOptions& options) {
  ChildOptions child;
  child.command = options.command;
  child.cores = options.cores;
  return TextOfChild(child, "", options.limit, kMaxMachineBytes);
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
