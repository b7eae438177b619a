// Runs the calls of a module on the CPU (executor.cc) or another device (device_kind.h). Private to this folder.
#pragma once

#include <cstddef>
#include <cstring>
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
  // Makes the calls read or write a tensor there; null: in the memory of InputData or OutputData, which stays
  // what it is. False: the backend cannot, and nothing has changed.
  virtual bool PlaceInput(int index, const void* data) { return data == nullptr; }
  virtual bool PlaceOutput(int index, void* data) { return data == nullptr; }
  // Copies many rows from the caller's memory to that of InputData, or from that of OutputData to the caller's.
  virtual void CopyRows(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
  // Runs the calls of a block (Manifest::CallsOf) on the first rows of the tensors, as many as it has.
  virtual absl::Status Run(size_t block) = 0;
  // The same, and appends the time of every call.
  virtual absl::Status Profile(size_t block, std::vector<double>* ns) = 0;
};

}  // namespace heddle::runtime
