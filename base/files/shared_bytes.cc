#include "base/files/shared_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "absl/cleanup/cleanup.h"

namespace heddle {
namespace {

struct Large {
  std::string folder;
  size_t min_bytes = std::numeric_limits<size_t>::max();
};

Large& Settings() {
  static Large* const settings = new Large();
  return *settings;
}

struct ScratchMapping {
  void* start;
  size_t size;
  ~ScratchMapping() { munmap(start, size); }
};

// Null if the bytes cannot be written or mapped.
SharedBytes InFile(std::string_view bytes) {
  const int file = open(Settings().folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  const absl::Cleanup close_file = [file] { close(file); };
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t written = write(file, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return nullptr;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  void* start = mmap(nullptr, bytes.size(), PROT_READ, MAP_SHARED, file, 0);
  if (start == MAP_FAILED) return nullptr;
  return SharedBytes(std::make_shared<const ScratchMapping>(start, bytes.size()),
                     {static_cast<const char*>(start), bytes.size()});
}

}  // namespace

SharedBytes SharedBytes::Of(std::string text) {
  if (text.size() >= Settings().min_bytes) {
    SharedBytes kept = InFile(text);
    if (!(kept == nullptr)) return kept;
  }
  return SharedBytes(std::make_shared<const std::string>(std::move(text)));
}

SharedBytes SharedBytes::Copy(std::string_view bytes) {
  if (bytes.size() >= Settings().min_bytes) {
    SharedBytes kept = InFile(bytes);
    if (!(kept == nullptr)) return kept;
  }
  return SharedBytes(std::make_shared<const std::string>(bytes));
}

void KeepLargeBytesIn(const std::string& folder, size_t min_bytes) {
  Settings() = {folder, min_bytes};
}

}  // namespace heddle
