// The tokens that people use instead of certificates. `heddle-ca token` makes one: a random text for
// its owner, and a line with its hash for the scheduler.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/access/identity.h"
#include "proto/access/watched_file.h"

namespace heddle {

// A file with one line for each token: "SHA256 ROLE NAME TENANT EXPIRES", where EXPIRES is in Unix
// seconds and SHA256 is that of the token, in hexadecimal. '#' begins a comment. The token itself is
// 256 random bits, so a plain hash does not give it away. Thread-safe.
class TokenFile {
 public:
  // The file need not exist yet. Changes of it count within a second or two; a malformed line, a file
  // that others can write, and a file of more than 1 MiB make all its tokens invalid until it is
  // corrected.
  explicit TokenFile(std::string path) : file_(std::move(path), kMaxBytes) {}

  // Unauthenticated if there is no such token or it has expired; the message says what to do.
  absl::StatusOr<Identity> Find(std::string_view token, absl::Time now) const;

  struct Entry {
    Identity identity;
    absl::Time expires;
  };
  using Entries = std::map<std::string, Entry>;  // by hash
  // InvalidArgument names the line.
  static absl::StatusOr<Entries> Parse(const std::string& text);

 private:
  static constexpr size_t kMaxBytes = size_t{1} << 20;  // some ten thousand tokens

  mutable absl::Mutex mutex_;
  mutable WatchedFile file_ ABSL_GUARDED_BY(mutex_);
  mutable absl::StatusOr<Entries> entries_ ABSL_GUARDED_BY(mutex_) = Entries();
};

}  // namespace heddle
