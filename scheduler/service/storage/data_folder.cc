#include "scheduler/service/storage/data_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {

absl::Status LockDirectory(const std::string& flag, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat(flag, directory, ": ", error.message()));
  const std::string path = directory + "/lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return absl::InvalidArgumentError(absl::StrCat(flag, directory, ": not writable"));
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, directory, ": another heddle-scheduler uses it; stop it, or give another directory"));
  }
  return absl::OkStatus();
}

std::string DatabaseOf(const std::string& directory) { return directory + "/heddle.db"; }

}  // namespace heddle::scheduler
