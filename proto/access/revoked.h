// Whom a lab no longer trusts, although what they show has not expired: a lost certificate, or a
// person who left.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/access/identity.h"
#include "proto/access/watched_file.h"

namespace heddle {

// A file `revoked` in a --tls-dir, with one "ROLE/NAME" a line; '#' begins a comment. A daemon refuses each
// of them, whatever certificate or token of that name it shows. What they signed does not count any more
// (seal.h). Thread-safe.
class RevokedList {
 public:
  // The file need not exist. Changes of it count within a second or two. While it cannot be used (a
  // malformed line, a file that others can write or of more than 1 MiB), everybody is refused.
  explicit RevokedList(std::string path) : file_(std::move(path), kMaxBytes) {}

  // Unauthenticated if the identity is revoked, or the list cannot be used; the message says what to do.
  absl::Status Check(const Identity& identity) const;
  // Whether the identity is revoked. Otherwise the list cannot be used, and the message says why.
  absl::StatusOr<bool> Has(const Identity& identity) const;

  using Names = std::set<std::string>;  // "user/ann"
  // InvalidArgument names the line.
  static absl::StatusOr<Names> Parse(const std::string& text);

 private:
  static constexpr size_t kMaxBytes = size_t{1} << 20;  // some thirty thousand names

  mutable absl::Mutex mutex_;
  mutable WatchedFile file_ ABSL_GUARDED_BY(mutex_);
  mutable absl::StatusOr<Names> names_ ABSL_GUARDED_BY(mutex_) = Names();
};

}  // namespace heddle
