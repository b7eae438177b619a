#include "worker/supervisor/blob_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace heddle::worker {
namespace {

constexpr int kMaxWorkers = 64;  // that share a folder
constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<BlobCache>> BlobCache::Open(const std::string& folder,
                                                           int64_t limit_bytes) {
  for (int k = 0; k < kMaxWorkers; ++k) {
    const std::string own = absl::StrCat(folder, "/", k);
    std::error_code error;
    std::filesystem::create_directories(own, error);
    const std::string lock_path = own + "/lock";
    const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0) return absl::ErrnoToStatus(errno, lock_path);
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
      close(lock);
      continue;  // another worker's
    }
    absl::StatusOr<std::unique_ptr<BlobStore>> store = BlobStore::Open(own);
    if (!store.ok()) {
      close(lock);
      return store.status();
    }
    return std::unique_ptr<BlobCache>(new BlobCache(own, lock, *std::move(store), limit_bytes));
  }
  return absl::UnavailableError(absl::StrCat(folder, " is used by ", kMaxWorkers, " workers"));
}

BlobCache::BlobCache(std::string folder, int lock, std::unique_ptr<BlobStore> store,
                     int64_t limit_bytes)
    : folder_(std::move(folder)), lock_(lock), store_(std::move(store)), limit_bytes_(limit_bytes) {
  absl::MutexLock lock_entries(&mutex_);
  for (const BlobStore::Entry& found : store_->List()) {
    Entry& entry = entries_[found.digest];
    entry.bytes = found.size_bytes;
    entry.stored = true;
    entry.used = found.used;
  }
}

BlobCache::~BlobCache() { close(lock_); }

bool BlobCache::IsIntact(const std::string& digest) const {
  const absl::StatusOr<std::unique_ptr<BlobStore::Reader>> reader = store_->NewReader(digest);
  if (!reader.ok()) return false;
  while (true) {
    const absl::StatusOr<std::string> piece = (*reader)->Next(kReadBytes);
    if (!piece.ok()) return false;  // the reader has removed it
    if (piece->empty()) return true;
  }
}

absl::StatusOr<std::unique_ptr<BlobCache::Fetch>> BlobCache::Begin(
    const google::protobuf::RepeatedPtrField<v1::BlobRef>& blobs) {
  std::unique_ptr<Fetch> fetch(new Fetch(this));
  std::vector<std::string> unchecked;
  {
    absl::MutexLock lock(&mutex_);
    for (const v1::BlobRef& blob : blobs) {
      if (!IsDigest(blob.sha256()) || blob.bytes() < 0)
        return absl::InvalidArgumentError("a blob is named by no digest, or has a negative size");
      Entry& entry = entries_[blob.sha256()];
      entry.used = absl::Now();
      ++entry.pins;  // nobody removes it from now on
      fetch->pinned_.push_back(blob.sha256());
      if (entry.stored && !store_->Has(blob.sha256(), blob.bytes())) entry.stored = false;
      if (entry.stored && !entry.checked) unchecked.push_back(blob.sha256());
      entry.bytes = blob.bytes();
    }
  }
  for (const std::string& digest : unchecked) {
    const bool intact = IsIntact(digest);
    absl::MutexLock lock(&mutex_);
    entries_[digest].stored = entries_[digest].checked = intact;
  }
  absl::MutexLock lock(&mutex_);
  int64_t missing_bytes = 0;
  for (const v1::BlobRef& blob : blobs) {
    const bool here = entries_[blob.sha256()].stored;
    ++(here ? hits_ : misses_);
    if (here) continue;
    *fetch->wanted_.add_blobs() = blob;
    missing_bytes += blob.bytes();
  }
  HEDDLE_RETURN_IF_ERROR(MakeRoom(missing_bytes));
  return fetch;
}

BlobCache::Counts BlobCache::counts() {
  absl::MutexLock lock(&mutex_);
  Counts counts{.hits = hits_, .misses = misses_, .free_bytes = store_->FreeBytes()};
  for (const auto& [digest, entry] : entries_) counts.bytes += entry.stored ? entry.bytes : 0;
  return counts;
}

absl::Status BlobCache::MakeRoom(int64_t bytes) {
  int64_t total = bytes;
  for (const auto& [digest, entry] : entries_) total += entry.stored ? entry.bytes : 0;
  while (total > limit_bytes_) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.pins == 0 &&
          (oldest == entries_.end() || it->second.used < oldest->second.used))
        oldest = it;
    }
    if (oldest == entries_.end()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the parts of running models need ", total >> 20, " MiB, this worker keeps at most ",
          limit_bytes_ >> 20, " MiB (heddle-worker --blob-cache-mib)"));
    }
    HEDDLE_RETURN_IF_ERROR(store_->Remove(oldest->first));
    if (oldest->second.stored) total -= oldest->second.bytes;
    entries_.erase(oldest);
  }
  if (bytes > store_->FreeBytes()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk of ", folder_, " is too full for ", bytes >> 20,
        " MiB of a model; free some space, or start heddle-worker with another --blob-cache"));
  }
  return absl::OkStatus();
}

absl::Status BlobCache::Fetch::Take(const v1::Chunk& chunk) {
  if (complete() || chunk.name() != wanted_.blobs(arrived_).sha256())
    return absl::InvalidArgumentError("a chunk is not of the blob that was wanted next");
  const v1::BlobRef& blob = wanted_.blobs(arrived_);
  if (writer_ == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(writer_, cache_->store_->NewWriter());
  }
  if (writer_->size_bytes() + static_cast<int64_t>(chunk.data().size()) > blob.bytes())
    return absl::InvalidArgumentError("a blob is longer than it was said to be");
  HEDDLE_RETURN_IF_ERROR(writer_->Append(chunk.data()));
  if (!chunk.last()) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(writer_->Commit(blob.sha256()).status());
  writer_.reset();
  ++arrived_;
  absl::MutexLock lock(&cache_->mutex_);
  Entry& entry = cache_->entries_[blob.sha256()];
  entry.stored = entry.checked = true;
  return absl::OkStatus();
}

BlobCache::Fetch::~Fetch() {
  absl::MutexLock lock(&cache_->mutex_);
  for (const std::string& digest : pinned_) {
    const auto entry = cache_->entries_.find(digest);
    entry->second.used = absl::Now();
    if (--entry->second.pins == 0 && !entry->second.stored) cache_->entries_.erase(entry);
  }
}

}  // namespace heddle::worker
