// Keeps the latest simulation of the queue, made on a thread of its own that runs after all others.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "scheduler/page/source.h"

namespace heddle::scheduler {

class WhatIfKeeper {
 public:
  // An answer is made anew at most this often, ...
  static constexpr absl::Duration kInterval = absl::Seconds(5);
  // ... and so that simulations take at most this share of one core.
  static constexpr double kShare = 0.1;

  // `ask` reads what the simulation begins from. Both are called on the keeper's thread.
  WhatIfKeeper(std::function<absl::StatusOr<WhatIfQuestion>()> ask, WhatIfSimulator simulator);
  // Waits for a simulation that runs.
  ~WhatIfKeeper();

  // The latest answer, at once; null: there is none yet. Asks for a newer one, so nothing is simulated
  // where nobody looks.
  std::shared_ptr<const views::WhatIf> Latest();

 private:
  void Run();

  const std::function<absl::StatusOr<WhatIfQuestion>()> ask_;
  const WhatIfSimulator simulator_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const views::WhatIf> latest_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace heddle::scheduler
