// How much of the disk blobs may take that a tenant has uploaded: those that no job refers to, and all of
// a day.
//
// Such a blob is kept for a day (blob_sweeper.h), so without a limit one tenant could fill the disk, and
// the service would take no models of anybody. A blob counts from its first byte until a job refers to
// it or it is gone. One that is there after a day is referred to by a job, if not by a call that told of
// it. Blobs that were there before are not counted, and a restart forgets the count.
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/files/blob_store.h"
#include "proto/common.pb.h"
#include "scheduler/service/storage/daily_quota.h"

namespace heddle::scheduler {

class UploadQuota {
 public:
  struct Limits {
    int64_t bytes = int64_t{1} << 35;        // of one tenant
    int64_t blobs = 131'072;                 // likewise; each takes an inode, and memory here
    int64_t bytes_a_day = int64_t{1} << 37;  // of one tenant, whatever jobs refer to them
  };
  UploadQuota(const BlobStore* blobs, Limits limits)
      : blobs_(blobs), limits_(limits), a_day_(limits.bytes_a_day) {}

  // One blob that arrives. Not thread-safe. Destroyed before Stored, it counts no more.
  class Upload {
   public:
    Upload(UploadQuota* quota, std::string tenant) : quota_(quota), tenant_(std::move(tenant)) {}
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
    ~Upload() { quota_->Return(tenant_, bytes_); }
    // ResourceExhausted if so many bytes more are over the limit of the tenant; says what to do.
    absl::Status Grow(int64_t bytes);
    // The blob is stored, and counts for the tenant. `known`: it was there before, so it counts for no day.
    void Stored(const std::string& digest, bool known);

   private:
    UploadQuota* const quota_;
    const std::string tenant_;
    int64_t bytes_ = 0;
  };

  // A job refers to the blob.
  void Refer(const std::string& digest);

 private:
  struct Blob {
    int64_t bytes = 0;
    absl::Time stored;
  };
  struct Tenant {
    int64_t arriving_bytes = 0;
    int64_t stored_bytes = 0;
    std::map<std::string, Blob> stored;           // by digest
    absl::Time next_look = absl::InfinitePast();  // for blobs that are gone
  };
  absl::Status Take(const std::string& tenant, int64_t bytes);
  void Return(const std::string& tenant, int64_t bytes);
  // Drops the blobs that are gone, since the sweeper does not tell, and those that are kept. It looks at
  // each of them, so at most a tenth of the time goes into that.
  void DropMissing(Tenant* tenant) const;

  const BlobStore* const blobs_;
  const Limits limits_;
  DailyQuota a_day_;
  absl::Mutex mutex_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heddle::scheduler
