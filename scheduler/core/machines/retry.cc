#include "scheduler/core/machines/retry.h"

#include <algorithm>
#include <cstdint>

namespace heddle::scheduler {

absl::Duration Backoff(const DispatcherOptions& options, absl::Duration first, int failures) {
  // 2^20 first waits exceed any maximum; the bound keeps the shift defined.
  return std::min(options.max_backoff, first * (int64_t{1} << std::min(failures, 20)));
}

bool Retry(const DispatcherOptions& options, const StageFinished& event, absl::Time now,
           int* failures, absl::Time* not_before) {
  // The slot backs off instead of the work, which goes to another one at once.
  if (Blameless(event) && !event.silent) return true;
  if (!event.silent) *not_before = now + Backoff(options, options.retry_backoff, *failures);
  ++*failures;
  return *failures < options.max_attempts;
}

}  // namespace heddle::scheduler
