#include "scheduler/service/storage/daily_quota.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);

}  // namespace

double DailyQuota::Left(const Taken& taken, absl::Time now) const {
  const double back = static_cast<double>(a_day_) * absl::FDivDuration(now - taken.at, kDay);
  return std::max(0.0, taken.amount - back);
}

absl::Duration DailyQuota::Wait(const std::string& tenant, int64_t amount, absl::Time now) const {
  if (a_day_ == 0) return absl::ZeroDuration();
  absl::MutexLock lock(&mutex_);
  const auto taken = taken_.find(tenant);
  if (taken == taken_.end()) return absl::ZeroDuration();
  const double over =
      Left(taken->second, now) + static_cast<double>(std::min(amount, a_day_) - a_day_);
  return kDay * std::max(0.0, over / static_cast<double>(a_day_));
}

void DailyQuota::Take(const std::string& tenant, int64_t amount, absl::Time now) {
  if (a_day_ == 0) return;
  absl::MutexLock lock(&mutex_);
  Taken& taken = taken_.try_emplace(tenant, Taken{0, now}).first->second;
  taken = {Left(taken, now) + static_cast<double>(amount), now};
}

absl::Status DailyQuota::Check(const std::string& tenant, int64_t amount, absl::Time now,
                               absl::string_view what) const {
  const absl::Duration wait = Wait(tenant, amount, now);
  if (wait <= absl::ZeroDuration()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      TenantText(tenant), " ", what, ", as much as one may within a day; try again after ",
      absl::FormatDuration(absl::Ceil(wait, absl::Seconds(1)))));
}

std::string TenantText(const std::string& tenant) {
  return tenant.empty() ? "callers without a tenant" : absl::StrCat("tenant ", tenant);
}

}  // namespace heddle::scheduler
