#include "tests/hollow/timers.h"

#include <utility>

#include "base/clock.h"

namespace heddle::hollow {

Timers::Timers() : thread_([this] { Loop(); }) {}

Timers::~Timers() { Stop(); }

void Timers::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void Timers::After(absl::Duration wait, std::function<void()> run) {
  absl::MutexLock lock(&mutex_);
  if (stop_) return;
  const auto at = due_.emplace(MonotonicNow() + wait, std::move(run));
  if (at == due_.begin()) changed_.Signal();
}

void Timers::Loop() {
  absl::MutexLock lock(&mutex_);
  while (!stop_) {
    if (due_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const absl::Duration wait = due_.begin()->first - MonotonicNow();
    if (wait > absl::ZeroDuration()) {
      changed_.WaitWithTimeout(&mutex_, wait);
      continue;
    }
    std::function<void()> run = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    mutex_.Unlock();
    run();
    run = nullptr;
    mutex_.Lock();
  }
}

}  // namespace heddle::hollow
