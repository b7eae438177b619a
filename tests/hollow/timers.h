// Runs functions after a time, all on one thread.
#pragma once

#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace heddle::hollow {

class Timers {
 public:
  Timers();
  ~Timers();  // like Stop
  // The function must not block.
  void After(absl::Duration wait, std::function<void()> run);
  // Waits for the function that runs. Afterwards nothing is taken and nothing runs.
  void Stop();

 private:
  void Loop();

  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::multimap<absl::Time, std::function<void()>> due_ ABSL_GUARDED_BY(mutex_);  // monotonic
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::hollow
