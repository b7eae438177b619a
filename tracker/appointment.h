// Whether a tracker of several serves now: only while the scheduler that leads appoints it. Pure: time is an argument, by a
// clock that does not jump.
//
// A scheduler appoints by repeating the time that the tracker told in an earlier answer, and the tracker serves for a while from
// that time on. So the scheduler knows when a tracker that does not answer has stopped serving: that while after it received the
// time which it repeated last. It takes no clocks that agree and no limit on how long a message is on its way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle::tracker {

// The clock of appointments: it goes on while the machine is suspended, as others' clocks do. (That of a virtual machine which
// is stopped from outside does not.)
absl::Time ClockOfAppointments();

struct AppointCall {
  std::string holder;  // the service whose scheduler calls
  int64_t epoch = 0;   // of that scheduler's leadership
  // What this tracker's clock showed, as the scheduler repeats it. InfinitePast: it only asks.
  absl::Time echo = absl::InfinitePast();
  absl::Duration duration;  // from `echo` on
};

class Appointment {
 public:
  // `born`: the start of this process. What an earlier one told is repeated in vain.
  explicit Appointment(absl::Time born) : born_(born) {}

  // Returns whether the tracker begins to serve with this call. FailedPrecondition: another service has appointed it now, or
  // a scheduler of a newer epoch has called. InvalidArgument: this process has never told that time.
  absl::StatusOr<bool> Take(const AppointCall& call, absl::Time now);
  // For how long it serves without a further call; zero: it does not.
  absl::Duration Remaining(absl::Time now) const;
  bool Serves(absl::Time now) const { return Remaining(now) > absl::ZeroDuration(); }
  // Since it served last, zero while it does; infinite: it never has.
  absl::Duration Idle(absl::Time now) const { return std::max(absl::ZeroDuration(), now - until_); }

 private:
  const absl::Time born_;
  std::string holder_;  // who called last
  int64_t epoch_ = 0;   // the newest of that service
  absl::Time until_ = absl::InfinitePast();
};

}  // namespace heddle::tracker
