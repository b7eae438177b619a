// Stores blobs (models, weights, modules) on disk, named by their SHA-256. A blob is stored as a
// whole or not at all, also after a crash or power cut: it is written to a temporary file, synced,
// and renamed. One process uses a directory at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/sha256.h"

namespace heddle {

// The path of a blob in the directory of a store.
std::string BlobPath(const std::string& directory, const std::string& digest);

// Whether the text is 64 lower-case hexadecimal digits.
bool IsDigest(std::string_view text);

// Thread-safe, apart from its writers and readers.
class BlobStore {
 public:
  // Creates the directory if it is missing, and removes temporary files that an earlier crash left.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(const std::string& directory);

  // Writes one blob. Not thread-safe. Destroyed without Commit, it leaves nothing behind.
  class Writer {
   public:
    ~Writer();
    // ResourceExhausted: the disk is full.
    absl::Status Append(std::string_view data);
    // Returns the digest. DataLoss if `expected` is not empty and differs. The blob is durable on
    // return.
    absl::StatusOr<std::string> Commit(const std::string& expected);
    // Whether Commit found the blob there already.
    bool known() const { return known_; }
    int64_t size_bytes() const { return size_bytes_; }

   private:
    friend class BlobStore;
    Writer(std::string directory, std::string path, int file);
    std::string directory_, path_;
    int file_;
    int64_t size_bytes_ = 0;
    bool known_ = false;
    Sha256 hash_;
  };
  absl::StatusOr<std::unique_ptr<Writer>> NewWriter();

  // Reads a blob piece by piece and checks the digest at the end. Not thread-safe.
  class Reader {
   public:
    ~Reader();
    // The next bytes, at most `limit`; empty at the end. DataLoss at the end if the file does not
    // have the bytes that were written; the blob is then removed, so that it can be stored again.
    absl::StatusOr<std::string> Next(size_t limit);
    int64_t size_bytes() const { return size_bytes_; }

   private:
    friend class BlobStore;
    Reader(std::string digest, std::string path, int file, int64_t size_bytes);
    std::string digest_, path_;
    int file_;
    int64_t size_bytes_;
    bool ended_ = false;
    Sha256 hash_;
  };
  // NotFound.
  absl::StatusOr<std::unique_ptr<Reader>> NewReader(const std::string& digest) const;
  // The file of a blob, which may not be there.
  std::string PathOf(const std::string& digest) const { return BlobPath(directory_, digest); }

  // Whether a blob of this size is stored. Marks it as used now.
  bool Has(const std::string& digest, int64_t size_bytes) const;
  // OK if there is no such blob. Readers and mappings that are open go on.
  absl::Status Remove(const std::string& digest);
  // As Remove, but keeps a blob that was stored, or found by Has, at `time` or later. True: removed.
  bool RemoveIfUnusedSince(const std::string& digest, absl::Time time);
  struct Entry {
    std::string digest;
    int64_t size_bytes = 0;
    absl::Time used;  // when it was stored, or when Has last found it
  };
  std::vector<Entry> List() const;

  // Bytes an unprivileged writer may still add to the disk.
  int64_t FreeBytes() const;
  // Files, likewise. Very many where the file system does not count them.
  int64_t FreeFiles() const;

 private:
  explicit BlobStore(std::string directory) : directory_(std::move(directory)) {}
  const std::string directory_;
  mutable absl::Mutex removing_;  // between looking at the age of a blob and removing it
};

}  // namespace heddle
