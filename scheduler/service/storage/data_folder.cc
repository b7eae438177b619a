#include "scheduler/service/storage/data_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {

absl::StatusOr<std::unique_ptr<DirectoryLock>> DirectoryLock::Open(const std::string& flag,
                                                                   const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat(flag, directory, ": ", error.message()));
  const std::string path = directory + "/lock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return absl::InvalidArgumentError(absl::StrCat(flag, directory, ": not writable"));
  return std::unique_ptr<DirectoryLock>(new DirectoryLock(file));
}

DirectoryLock::~DirectoryLock() { close(file_); }

bool DirectoryLock::Take() { return flock(file_, LOCK_EX | LOCK_NB) == 0; }

std::string DatabaseOf(const std::string& directory) { return directory + "/heddle.db"; }

}  // namespace heddle::scheduler
