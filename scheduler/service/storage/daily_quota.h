// How much each tenant may take within a day of what the service keeps for ever: jobs, models, imported
// records. Other limits hold for what is there at a time, so without this one a tenant could fill the disk
// by a loop: submit, cancel, submit the next.
//
// A tenant may take a day's worth at once. It comes back evenly over a day. A restart forgets what was
// taken. Callers without a tenant count together. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace heddle::scheduler {

class DailyQuota {
 public:
  // Of each tenant; 0: any amount.
  explicit DailyQuota(int64_t a_day) : a_day_(a_day) {}

  // How long the tenant has to wait until it may take `amount`; zero: it may now. An amount above a day's
  // worth may be taken when nothing else was. Takes nothing.
  absl::Duration Wait(const std::string& tenant, int64_t amount, absl::Time now) const;
  void Take(const std::string& tenant, int64_t amount, absl::Time now);

  // OK, or ResourceExhausted, which says how long to wait: "tenant a WHAT, as much as one may within a
  // day; ..". `what` is such as "submitted 20000 jobs".
  absl::Status Check(const std::string& tenant, int64_t amount, absl::Time now,
                     absl::string_view what) const;

  int64_t a_day() const { return a_day_; }

 private:
  struct Taken {
    double amount = 0;
    absl::Time at;
  };
  // What of it has not come back by `now`.
  double Left(const Taken& taken, absl::Time now) const;

  const int64_t a_day_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Taken> taken_ ABSL_GUARDED_BY(mutex_);
};

// "tenant a", or "callers without a tenant", for messages.
std::string TenantText(const std::string& tenant);

}  // namespace heddle::scheduler
