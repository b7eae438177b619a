#include "proto/access/watched_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace heddle {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);

}  // namespace

std::optional<absl::StatusOr<std::string>> WatchedFile::Changed() {
  const absl::Time now = MonotonicNow();
  if (now - looked_ < kLookEvery) return std::nullopt;
  looked_ = now;
  struct stat info = {};
  const bool exists = stat(path_.c_str(), &info) == 0;
  const int error = exists ? 0 : errno;
  // A change of the owner changes only the ctim.
  const std::string version =
      exists ? absl::StrCat(info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec, " ",
                            info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, " ",
                            info.st_ctim.tv_nsec, " ", info.st_mode)
             : absl::StrCat("error ", error);
  if (version_ == version) return std::nullopt;
  version_ = version;
  if (error == ENOENT) return absl::NotFoundError("it is not there");
  if (!exists) {
    return absl::PermissionDeniedError(absl::StrCat("it cannot be looked at (", strerror(error),
                                                    "); let the daemon's user enter its folder"));
  }
  if ((info.st_mode & 022) != 0)
    return absl::InvalidArgumentError("others can write it; chmod 600");
  return Read();
}

absl::StatusOr<std::string> WatchedFile::Read() const {
  std::ifstream file(path_, std::ios::binary);
  if (!file.is_open())
    return absl::PermissionDeniedError("it cannot be read; chown it to the daemon's user");
  std::string text(max_bytes_ + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::UnavailableError("it cannot be read; see whether it is a file");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > max_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has more than ", max_bytes_ >> 10, " KiB; remove lines"));
  }
  return text;
}

}  // namespace heddle
