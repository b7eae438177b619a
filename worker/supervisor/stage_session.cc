#include "worker/supervisor/stage_session.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace heddle::worker {

StageSession::StageSession() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
StageSession::~StageSession() { close(event_fd_); }

void StageSession::Stop(const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    stopped_ = true;
    reason_ = reason;
  }
  Notify();
}

bool StageSession::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

std::string StageSession::reason() const {
  absl::MutexLock lock(&mutex_);
  return reason_;
}

void StageSession::Notify() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event_fd_, &one, sizeof(one));
}

void StageSession::Clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(event_fd_, &count, sizeof(count));
}

}  // namespace heddle::worker
