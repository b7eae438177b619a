// Fencing tokens that grow over the tracker's whole life, restarts included.
//
// Tokens are reserved in blocks. The end of a block is on disk before its first token is handed
// out, so a restart, even after a crash, continues above it. Tokens never start below the wall
// clock in microseconds, so that a tracker may switch between running with a file and without.
// Without a file, tokens grow over restarts only if the clock does. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace heddle::tracker {

class FencingTokens {
 public:
  // An empty `path` means no file. DataLoss: the file is damaged. FailedPrecondition: another
  // process uses it. Other errors: it cannot be read or written.
  static absl::StatusOr<std::unique_ptr<FencingTokens>> Open(const std::string& path);
  ~FencingTokens();
  FencingTokens(const FencingTokens&) = delete;
  FencingTokens& operator=(const FencingTokens&) = delete;

  // Returns a token greater than all before. Unavailable: the next block cannot be made durable.
  absl::StatusOr<uint64_t> Next();
  // From now on tokens are above this, and not below the wall clock: another tracker has granted some meanwhile.
  void SkipTo(uint64_t above);

 private:
  FencingTokens(std::string path, uint64_t next, int lock_fd)
      : path_(std::move(path)), next_(next), reserved_(next), lock_fd_(lock_fd) {}
  absl::Status Reserve();

  const std::string path_;
  uint64_t next_;
  uint64_t reserved_;  // tokens below this may be handed out
  const int lock_fd_;  // -1 without a file
};

}  // namespace heddle::tracker
