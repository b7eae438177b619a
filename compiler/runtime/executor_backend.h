// Runs the calls of a module on the CPU (executor.cc) or another device (device_kind.h). Private to this folder.
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

}  // namespace heddle::runtime
