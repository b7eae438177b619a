// The connection between one RunStage call and the thread that performs it.
#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/worker.pb.h"

namespace heddle::worker {

// Wakes the performing thread and tells it to stop. Thread-safe.
class StageSession {
 public:
  StageSession();
  ~StageSession();
  StageSession(const StageSession&) = delete;
  StageSession& operator=(const StageSession&) = delete;

  // Ends the stage with an infrastructure fault and this reason. The first reason counts.
  void Stop(const std::string& reason);
  bool stopped() const;
  std::string reason() const;

  // Something may have changed: input, cancellation, Stop. Makes event_fd readable until Clear.
  void Notify();
  void Clear();
  int event_fd() const { return event_fd_; }

 private:
  const int event_fd_;
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
};

// The caller of the stage, used only by the performing thread.
class StageCaller {
 public:
  virtual ~StageCaller() = default;
  // Never waits; false if nothing is available now.
  virtual bool Read(v1::StageInput* input) = 0;
  // Whether the input has ended and was read completely.
  virtual bool InputEnded() = 0;
  virtual bool Gone() = 0;
  // Waits, within limits, while the caller is slow to read, and calls `meanwhile` every 50 ms of that; false
  // if the caller is gone.
  virtual bool Write(const v1::StageEvent& event, const std::function<void()>& meanwhile) = 0;
};

}  // namespace heddle::worker
