#include "tracker/fencing_tokens.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace heddle::tracker {
namespace {

// Grants per write to disk. A restart skips at most this many of the 2^64 tokens.
constexpr uint64_t kBlock = 4096;
constexpr char kHeader[] = "heddle-tracker 1 next-token";

absl::Status Errno(const std::string& what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
}

absl::Status WriteDurably(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Errno("cannot write", draft);
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const absl::Status status = written ? absl::OkStatus() : Errno("cannot write", draft);
  close(fd);
  if (!status.ok()) return status;
  if (rename(draft.c_str(), path.c_str()) != 0) return Errno("cannot replace", path);
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  const int folder_fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) return Errno("cannot open", folder);
  const bool synced = fsync(folder_fd) == 0;
  const absl::Status folder_status = synced ? absl::OkStatus() : Errno("cannot sync", folder);
  close(folder_fd);
  return folder_status;
}

absl::StatusOr<uint64_t> ReadFile(const std::string& path) {
  if (!std::filesystem::exists(path)) return 1;
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line))
    return absl::DataLossError(absl::StrCat(path, " is empty or unreadable"));
  const size_t header = sizeof(kHeader) - 1;
  uint64_t next = 0;
  if (line.compare(0, header, kHeader) != 0 || !absl::SimpleAtoi(line.substr(header), &next) ||
      next == 0) {
    return absl::DataLossError(absl::StrCat(path,
                                            " is no tracker state; put back a copy, or start with "
                                            "a number above every token ever seen: '",
                                            kHeader, " N'"));
  }
  return next;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FencingTokens>> FencingTokens::Open(const std::string& path) {
  if (path.empty()) {
    const uint64_t start = absl::ToUnixMicros(absl::Now());
    return std::unique_ptr<FencingTokens>(new FencingTokens("", start, -1));
  }
  const std::string lock = path + ".lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Errno("cannot open", lock);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is in use by another tracker; end that one, or give this one a --state of its own"));
  }
  absl::StatusOr<uint64_t> next = ReadFile(path);
  if (!next.ok()) {
    close(fd);
    return next.status();
  }
  // A new or lost file starts like a tracker without one, so that tokens granted before stay
  // smaller.
  const uint64_t start = std::max<uint64_t>(*next, absl::ToUnixMicros(absl::Now()));
  std::unique_ptr<FencingTokens> tokens(new FencingTokens(path, start, fd));
  HEDDLE_RETURN_IF_ERROR(tokens->Reserve());
  return tokens;
}

FencingTokens::~FencingTokens() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::StatusOr<uint64_t> FencingTokens::Next() {
  if (next_ >= reserved_) {
    if (absl::Status status = Reserve(); !status.ok())
      return absl::UnavailableError(status.message());
  }
  return next_++;
}

void FencingTokens::SkipTo(uint64_t above) {
  next_ = std::max({next_, above + 1, static_cast<uint64_t>(absl::ToUnixMicros(absl::Now()))});
}

absl::Status FencingTokens::Reserve() {
  const uint64_t end = next_ + kBlock;
  if (!path_.empty()) {
    HEDDLE_RETURN_IF_ERROR(WriteDurably(path_, absl::StrCat(kHeader, " ", end, "\n")));
  }
  reserved_ = end;
  return absl::OkStatus();
}

}  // namespace heddle::tracker
