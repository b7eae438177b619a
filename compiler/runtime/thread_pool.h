// The fixed thread pool that runs a kernel's parallel loops. Idle workers spin briefly, then sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/runtime/abi.h"

namespace heddle::runtime {

// Runs one parallel loop at a time; the calling thread takes part as worker 0. Not reentrant.
class ThreadPool {
 public:
  // Unless `cpus` is empty, worker k is pinned to cpus[k % size]. The affinity of the calling
  // thread does not change.
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
