// Stores models and modules on disk, named by their SHA-256. A blob is stored as a whole or not at
// all, also after a crash or power cut: it is written to a temporary file, synced, and renamed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/sha256.h"

namespace heddle::scheduler {

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
    int64_t size_bytes() const { return size_bytes_; }

   private:
    friend class BlobStore;
    Writer(std::string directory, std::string path, int file);
    std::string directory_, path_;
    int file_;
    int64_t size_bytes_ = 0;
    Sha256 hash_;
  };
  absl::StatusOr<std::unique_ptr<Writer>> NewWriter();

  // Reads a blob piece by piece and checks the digest at the end. Not thread-safe.
  class Reader {
   public:
    ~Reader();
    // The next bytes, at most `limit`; empty at the end. DataLoss at the end if the file does not
    // have the bytes that were written.
    absl::StatusOr<std::string> Next(size_t limit);
    int64_t size_bytes() const { return size_bytes_; }

   private:
    friend class BlobStore;
    Reader(std::string digest, int file, int64_t size_bytes);
    std::string digest_;
    int file_;
    int64_t size_bytes_;
    bool ended_ = false;
    Sha256 hash_;
  };
  // NotFound.
  absl::StatusOr<std::unique_ptr<Reader>> NewReader(const std::string& digest) const;

  // Bytes an unprivileged writer may still add to the disk.
  int64_t FreeBytes() const;

 private:
  explicit BlobStore(std::string directory) : directory_(std::move(directory)) {}
  const std::string directory_;
};

}  // namespace heddle::scheduler
