// Internal to this folder.
#pragma once

#include <sched.h>

namespace heddle::internal {

// Pins the calling thread, which is worker 0 of a pool, to one core for the lifetime of the object. A
// core that does not exist pins nothing.
class ScopedPin {
 public:
  explicit ScopedPin(int cpu) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) return;
    if (sched_getaffinity(0, sizeof(before_), &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pinned_ = sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  ~ScopedPin() {
    if (pinned_) sched_setaffinity(0, sizeof(before_), &before_);
  }
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;

 private:
  cpu_set_t before_;
  bool pinned_ = false;
};

}  // namespace heddle::internal
