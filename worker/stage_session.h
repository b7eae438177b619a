// Between one RunStage call and the thread that performs it.
#pragma once

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

  // Ends the stage with an infrastructure fault that says `reason`. The first reason stays.
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

// Who asked for the stage. Used by the performing thread alone.
class StageCaller {
 public:
  virtual ~StageCaller() = default;
  // Never waits: false when there is nothing right now.
  virtual bool Read(v1::StageInput* input) = 0;
  // Nothing will come any more, and everything that came was read.
  virtual bool InputEnded() = 0;
  virtual bool Gone() = 0;
  // Waits as long as the caller is slow to read, within limits; false when it is gone.
  virtual bool Write(const v1::StageEvent& event) = 0;
};

}  // namespace heddle::worker
