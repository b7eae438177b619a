// The fixed thread pool that runs a kernel's parallel loops: workers spin shortly, then sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/runtime/abi.h"

namespace heddle::runtime {

// One parallel loop at a time; the calling thread takes part as worker 0. Not reentrant.
class ThreadPool {
 public:
  // `cpus` pins worker k to cpus[k % size] when not empty (the caller's own affinity is left
  // alone).
  explicit ThreadPool(int num_workers, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Valid as long as the pool lives.
  const heddle_host* host() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::runtime
