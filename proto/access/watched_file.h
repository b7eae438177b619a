// A small file of rules that people may change at any time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle {

// Not thread-safe.
class WatchedFile {
 public:
  WatchedFile(std::string path, size_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {}

  // What the file holds if it has changed since the last call, else nullopt. The first call always
  // returns something. It looks at most once a second. NotFound: there is no such file.
  // InvalidArgument: others can write it, or it is larger than `max_bytes`. PermissionDenied or
  // Unavailable: it cannot be read.
  std::optional<absl::StatusOr<std::string>> Changed();

 private:
  absl::StatusOr<std::string> Read() const;

  const std::string path_;
  const size_t max_bytes_;
  absl::Time looked_ = absl::InfinitePast();
  std::optional<std::string> version_;  // of what was returned last
};

}  // namespace heddle
