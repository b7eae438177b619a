// Runs the calls of a module on the CPU (executor.cc) or a GPU (cuda/). Private to this folder.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/module.h"

namespace heddle::runtime {

class ExecutorBackend {
 public:
  virtual ~ExecutorBackend() = default;
  // The host memory of a tensor.
  virtual void* InputData(int index) = 0;
  virtual const void* OutputData(int index) const = 0;
  virtual absl::Status Run() = 0;
  // Runs once and appends the time of every call.
  virtual absl::Status Profile(std::vector<double>* ns) = 0;
};

// `module` must have passed CheckModule. Errors as Executor::Create.
absl::StatusOr<std::unique_ptr<ExecutorBackend>> MakeCudaBackend(const Module& module, int gpu);

}  // namespace heddle::runtime
