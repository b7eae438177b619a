#include "base/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace heddle {
namespace {

struct Mapping {
  void* start;
  size_t size;
  ~Mapping() { munmap(start, size); }
};

}  // namespace

absl::StatusOr<SharedBytes> MapFile(const std::string& path, int64_t offset, int64_t length) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  const absl::Cleanup close_file = [file] { close(file); };
  struct stat info;
  if (fstat(file, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  if (length < 0) length = info.st_size - offset;
  if (offset < 0 || length < 0 || offset > info.st_size || length > info.st_size - offset) {
    return absl::OutOfRangeError(
        absl::StrCat(path, " has ", info.st_size, " bytes, not ", length, " from byte ", offset));
  }
  if (length == 0) return SharedBytes::Of("");
  const int64_t before = offset % sysconf(_SC_PAGESIZE);  // mappings begin at pages
  const auto size = static_cast<size_t>(before + length);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, offset - before);
  if (start == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", length, " bytes of ", path,
                                                     ": the address space is too small"));
  }
  return SharedBytes(std::make_shared<const Mapping>(start, size),
                     {static_cast<const char*>(start) + before, static_cast<size_t>(length)});
}

}  // namespace heddle
