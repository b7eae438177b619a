#include "tracker/appointment.h"

#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace heddle::tracker {

absl::Time ClockOfAppointments() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return absl::TimeFromTimespec(time);
}

absl::StatusOr<bool> Appointment::Take(const AppointCall& call, absl::Time now) {
  const bool served = Serves(now);
  if (served && call.holder != holder_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this tracker serves ", holder_, "; trackers that are appointed belong to one service"));
  }
  if (call.holder == holder_ && call.epoch < epoch_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a scheduler of epoch ", epoch_, " has called since; this call is of epoch ", call.epoch));
  }
  const bool appoints = call.echo != absl::InfinitePast();
  if (appoints && (call.echo < born_ || call.echo > now))
    return absl::InvalidArgumentError("this process of the tracker has not told that time");
  holder_ = call.holder;
  epoch_ = call.epoch;
  // A call that comes too late does not change since when it has not served.
  if (appoints && call.echo + call.duration > now)
    until_ = std::max(until_, call.echo + call.duration);
  return !served && Serves(now);
}

absl::Duration Appointment::Remaining(absl::Time now) const {
  return std::max(absl::ZeroDuration(), until_ - now);
}

}  // namespace heddle::tracker
