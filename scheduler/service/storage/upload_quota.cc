#include "scheduler/service/storage/upload_quota.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "scheduler/service/storage/blob_sweeper.h"

namespace heddle::scheduler {

absl::Status UploadQuota::Upload::Grow(int64_t bytes) {
  HEDDLE_RETURN_IF_ERROR(quota_->Take(tenant_, bytes));
  bytes_ += bytes;
  return absl::OkStatus();
}

void UploadQuota::Upload::Stored(const std::string& digest, bool known) {
  const int64_t bytes = std::exchange(bytes_, 0);
  if (!known) quota_->a_day_.Take(tenant_, bytes, MonotonicNow());
  absl::MutexLock lock(&quota_->mutex_);
  Tenant& tenant = quota_->tenants_[tenant_];
  tenant.arriving_bytes -= bytes;
  if (tenant.stored.emplace(digest, Blob{bytes, MonotonicNow()}).second)
    tenant.stored_bytes += bytes;
}

absl::Status UploadQuota::Take(const std::string& name, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  Tenant& tenant = tenants_[name];
  HEDDLE_RETURN_IF_ERROR(
      a_day_.Check(name, tenant.arriving_bytes + bytes, MonotonicNow(),
                   absl::StrCat("uploaded ", limits_.bytes_a_day >> 20,
                                " MiB (eight times heddle-scheduler --max-model-mib)")));
  const auto full = [&] {
    return tenant.arriving_bytes + tenant.stored_bytes + bytes > limits_.bytes ||
           static_cast<int64_t>(tenant.stored.size()) >= limits_.blobs;
  };
  if (full()) DropMissing(&tenant);
  if (!full()) {
    tenant.arriving_bytes += bytes;
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      TenantText(name), " uploaded ", (tenant.arriving_bytes + tenant.stored_bytes) >> 20,
      " MiB in ", tenant.stored.size(), " blobs that no job refers to, and the limit is ",
      limits_.bytes >> 20, " MiB (twice heddle-scheduler --max-model-mib) and ", limits_.blobs,
      " blobs; submit what they are for, or wait: what no job uses is removed after a day"));
}

void UploadQuota::Return(const std::string& name, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto tenant = tenants_.find(name);
  if (tenant == tenants_.end()) return;
  tenant->second.arriving_bytes -= bytes;
  if (tenant->second.arriving_bytes == 0 && tenant->second.stored.empty()) tenants_.erase(tenant);
}

void UploadQuota::Refer(const std::string& digest) {
  absl::MutexLock lock(&mutex_);
  for (auto& [name, tenant] : tenants_) {
    const auto blob = tenant.stored.find(digest);
    if (blob == tenant.stored.end()) continue;
    tenant.stored_bytes -= blob->second.bytes;
    tenant.stored.erase(blob);
  }
}

void UploadQuota::DropMissing(Tenant* tenant) const {
  const absl::Time begin = MonotonicNow();
  if (begin < tenant->next_look) return;
  // The sweeper looks once an hour.
  const absl::Time kept = begin - kKeepUnused - absl::Hours(2);
  std::erase_if(tenant->stored, [&](const auto& blob) {
    if (blob.second.stored > kept && access(blobs_->PathOf(blob.first).c_str(), F_OK) == 0)
      return false;
    tenant->stored_bytes -= blob.second.bytes;
    return true;
  });
  const absl::Time end = MonotonicNow();
  tenant->next_look = end + 10 * (end - begin);
}

}  // namespace heddle::scheduler
