// A fixed number of threads that run functions in the order in which they were added.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace heddle::scheduler {

class ThreadPool {
 public:
  // The threads have the priority of the calling thread (base/thread_priority.h).
  explicit ThreadPool(int threads);
  // Runs what was added before, then ends.
  ~ThreadPool();

  // Does not wait. A function that runs may add others, but not after the destructor was called. The queue has no limit, so
  // the caller must bound what it adds.
  void Add(std::function<void()> function);

 private:
  void Run();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace heddle::scheduler
