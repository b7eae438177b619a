#include "base/files/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle {
namespace {

constexpr int kMaxLinks = 40;  // as many as the kernel follows

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write '", path, "': ", std::strerror(error)));
}

// Follows links, also to a file that is not there yet.
absl::StatusOr<std::string> TargetOf(const std::string& path) {
  std::filesystem::path target = path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks; ++i) {
    if (!std::filesystem::is_symlink(target, error)) return target.string();
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) return CannotWrite(path, error.value());
    target = target.parent_path() / next;  // an absolute `next` replaces the whole
  }
  return CannotWrite(path, ELOOP);
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path) {
  if (path == "-") {
    const int file = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (file < 0) return CannotWrite("standard output", errno);
    return OutputFile("standard output", "", "", file);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string target, TargetOf(path));
  struct stat found {};
  const bool exists = stat(target.c_str(), &found) == 0;
  if (exists && S_ISDIR(found.st_mode)) return CannotWrite(path, EISDIR);
  if (exists && !S_ISREG(found.st_mode)) {
    const int file = open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (file < 0) return CannotWrite(path, errno);
    return OutputFile(path, target, "", file);
  }
  // A file that may not be written must not be replaced, either.
  if (exists && access(target.c_str(), W_OK) != 0) return CannotWrite(path, errno);
  const std::string temporary = absl::StrCat(target, ".", getpid(), ".tmp");
  unlink(temporary.c_str());
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return CannotWrite(path, errno);
  if (exists) (void)fchmod(file, found.st_mode & 07777);
  return OutputFile(path, target, temporary, file);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::exchange(other.file_, -1)) {}

OutputFile::~OutputFile() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status OutputFile::Error(int error) const {
  return absl::InvalidArgumentError(absl::StrCat("cannot write '", path_,
                                                 "': ", std::strerror(error),
                                                 "; free space or choose another place"));
}

absl::Status OutputFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(file_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  int error = !temporary_.empty() && fsync(file_) != 0 ? errno : 0;
  if (close(std::exchange(file_, -1)) != 0 && error == 0) error = errno;
  if (temporary_.empty()) return error == 0 ? absl::OkStatus() : Error(error);
  if (error == 0 && rename(temporary_.c_str(), target_.c_str()) != 0) error = errno;
  if (error != 0) return Error(error);
  temporary_.clear();
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& path) {
  struct stat found {};
  // Opening a pipe would wait for its reader.
  const bool special = path == "-" || (stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) &&
                                       !S_ISDIR(found.st_mode));
  if (!special) return OutputFile::Open(path).status();
  return path == "-" || access(path.c_str(), W_OK) == 0 ? absl::OkStatus()
                                                        : CannotWrite(path, errno);
}

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open(path));
  HEDDLE_RETURN_IF_ERROR(file.Append(bytes));
  return file.Commit();
}

}  // namespace heddle
