// The scheduler's data folder: whose it is, and where its database lies.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace heddle::scheduler {

// The lock of a data folder: that of the scheduler that uses it, for as long as its process lives. It tells at
// once that this process has ended; whether a scheduler may write is for the leadership to say.
class DirectoryLock {
 public:
  // Makes the folder. InvalidArgument: it cannot be made or written. `flag` is what the user gave it with.
  static absl::StatusOr<std::unique_ptr<DirectoryLock>> Open(const std::string& flag,
                                                             const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  // Whether this process has the lock, now or from an earlier call. Thread-safe.
  bool Take();

 private:
  explicit DirectoryLock(int file) : file_(file) {}
  const int file_;
};

// The SQLite file of a scheduler without --store.
std::string DatabaseOf(const std::string& directory);

}  // namespace heddle::scheduler
