// Runs a module. In steady state it allocates nothing and takes no lock, apart from the barriers of
// the thread pool.
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
    int threads = 0;        // 0: the module's
    std::vector<int> cpus;  // pinning of the pool's workers
    int gpu = 0;            // for GPU modules: the device's number
  };
  // FailedPrecondition if the code needs CPU features (named in the message) or a GPU that this
  // machine lacks.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module, const Options& options);
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module) {
    return Create(std::move(module), Options());
  }
  ~Executor();

  const Manifest& manifest() const;
  // Dense row-major host memory, owned by the executor and valid for its lifetime. Write inputs,
  // call Run, read outputs.
  void* InputData(int index);
  const void* OutputData(int index) const;
  // Fails only on a GPU. There it includes the copies of inputs and outputs.
  absl::Status Run();
  // Per-call times (one entry per manifest().calls), `rounds` runs, medians in nanoseconds. On a
  // GPU without the copies; empty after a failure.
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
