#include "scheduler/service/stages/thread_pool.h"

#include <utility>

namespace heddle::scheduler {

ThreadPool::ThreadPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Add(std::function<void()> function) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(function));
}

void ThreadPool::Run() {
  auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty() || stop_; };
  while (true) {
    std::function<void()> next;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&ready));
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next();
  }
}

}  // namespace heddle::scheduler
