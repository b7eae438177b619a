// Runs a module. A run in steady state allocates nothing and takes no lock, apart from the barriers
// of the thread pool.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/module.h"
#include "compiler/runtime/timing.h"

namespace heddle::runtime {

class ExecutorBackend;

class Executor {
 public:
  struct Options {
    int threads = 0;        // 0: the module's number
    std::vector<int> cpus;  // cores to which the pool's workers are pinned
    int gpu = 0;            // number of the device, for GPU modules
  };
  // FailedPrecondition: the code needs CPU features (named in the message) or a GPU that this
  // machine lacks.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module, const Options& options);
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module) {
    return Create(std::move(module), Options());
  }
  ~Executor();

  const Manifest& manifest() const;
  // Dense row-major host memory, owned by the executor and valid for its lifetime. Write the
  // inputs, call Run, then read the outputs. An output whose extents depend on data is there with
  // its largest shape.
  void* InputData(int index);
  const void* OutputData(int index) const;
  // The shape that an output has after the last run.
  std::vector<int64_t> OutputShape(int index) const;
  // The elements of that shape, densely.
  std::string Output(int index) const;
  void CopyOutput(int index, char* to) const;
  // Runs the model. On a GPU this includes the copies of inputs and outputs. Fails only on a GPU.
  absl::Status Run();
  // The median time in nanoseconds of each call (one entry per manifest().calls) over `rounds`
  // runs. On a GPU, the copies are not included. Empty after a failure.
  std::vector<double> ProfileNs(int rounds);
  // The first failure of any run so far.
  const absl::Status& status() const;

 private:
  Executor(Manifest manifest, std::unique_ptr<ExecutorBackend> backend);
  const Manifest manifest_;
  const std::unique_ptr<ExecutorBackend> backend_;
  absl::Status status_;
};

}  // namespace heddle::runtime
