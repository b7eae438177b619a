// Runs the calls of a module on the CPU (executor.cc) or another device (device_kind.h). Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/abi.h"
#include "compiler/runtime/module.h"

namespace heddle::runtime {

class ExecutorBackend {
 public:
  virtual ~ExecutorBackend() = default;
  // How many threads may run blocks of rows at once, each in memory of its own.
  virtual int RowThreads() const { return 1; }
  // The host memory of a tensor. That of thread 0 is used by Run, too; thread < RowThreads().
  virtual void* InputData(int index, int thread) = 0;
  virtual const void* OutputData(int index, int thread) const = 0;
  // Makes the calls of Run read or write a tensor there; null: in the memory of InputData or OutputData, which stays
  // what it is. False: the backend cannot, and nothing has changed.
  virtual bool PlaceInput(int index, const void* data) { return data == nullptr; }
  virtual bool PlaceOutput(int index, void* data) { return data == nullptr; }
  // Runs a loop by all threads (heddle_host::parallel_for). Its workers are numbers below RowThreads() if that is more than 1.
  virtual void ParallelFor(int64_t n, heddle_parallel_body body, void* closure) {
    body(closure, 0, n, 0);
  }
  // Runs the calls of a block (Manifest::CallsOf) on the first rows of the tensors, as many as it has.
  virtual absl::Status Run(size_t block) = 0;
  // The same, in the memory of a thread and by the calling thread alone. Threads may run at once. Only if RowThreads() > 1.
  virtual void RunAlone(size_t /*block*/, int /*thread*/) {}
  // The same, and appends the time of every call.
  virtual absl::Status Profile(size_t block, std::vector<double>* ns) = 0;
};

}  // namespace heddle::runtime
