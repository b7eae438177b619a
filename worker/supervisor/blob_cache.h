// Blobs that stages of this worker have used, kept on disk for later ones: the parts of models.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/files/blob_store.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/common.pb.h"

namespace heddle::worker {

// Thread-safe.
class BlobCache {
 public:
  // Uses a subfolder of `folder` that no other process uses. Blobs take at most `limit_bytes` there;
  // those that were not used for the longest time go first.
  static absl::StatusOr<std::unique_ptr<BlobCache>> Open(const std::string& folder,
                                                         int64_t limit_bytes);
  ~BlobCache();

  // The blobs of one stage. They stay until this object ends. Not thread-safe.
  class Fetch {
   public:
    ~Fetch();
    // Those that are not here yet, in the order in which they must arrive.
    const v1::BlobList& wanted() const { return wanted_; }
    bool complete() const { return arrived_ == wanted_.blobs_size(); }
    // The next chunk of the wanted blobs. InvalidArgument: it is not. DataLoss: the digest differs.
    // ResourceExhausted: the disk is full.
    absl::Status Take(const v1::Chunk& chunk);

   private:
    friend class BlobCache;
    explicit Fetch(BlobCache* cache) : cache_(cache) {}
    BlobCache* const cache_;
    std::vector<std::string> pinned_;
    v1::BlobList wanted_;
    int arrived_ = 0;
    std::unique_ptr<BlobStore::Writer> writer_;
  };
  // Finds out which blobs are missing and makes room for them. Blobs that an earlier process left are
  // read and checked before they are used again. InvalidArgument: a digest or size is malformed.
  // ResourceExhausted: the blobs do not fit.
  absl::StatusOr<std::unique_ptr<Fetch>> Begin(
      const google::protobuf::RepeatedPtrField<v1::BlobRef>& blobs);

  const std::string& folder() const { return folder_; }

  struct Counts {
    int64_t hits = 0, misses = 0;  // blobs that stages needed so far, and which were here or not
    int64_t bytes = 0;             // of the blobs that are here now
    int64_t free_bytes = 0;        // on the disk
  };
  Counts counts();

 private:
  struct Entry {
    int64_t bytes = 0;
    int pins = 0;
    bool stored = false;
    bool checked = false;  // this process has computed the digest
    absl::Time used;
  };
  BlobCache(std::string folder, int lock, std::unique_ptr<BlobStore> store, int64_t limit_bytes);
  absl::Status MakeRoom(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIntact(const std::string& digest) const;

  const std::string folder_;
  const int lock_;  // the lock file
  const std::unique_ptr<BlobStore> store_;
  const int64_t limit_bytes_;
  absl::Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::worker
