// Runs a module. No allocation and no lock of its own in steady state (the thread pool's barriers
// apart).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/module.h"
#include "compiler/runtime/timing.h"

namespace heddle::runtime {

class Executor {
 public:
  struct Options {
    int threads = 0;        // 0: the module's
    std::vector<int> cpus;  // pinning of the pool's workers
  };
  // FailedPrecondition if the code needs CPU features this machine lacks (names them).
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module, const Options& options);
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Module module) {
    return Create(std::move(module), Options());
  }
  ~Executor();

  const Manifest& manifest() const;
  // Dense row-major memory owned by the executor, valid for its lifetime; write inputs, Run, read
  // outputs.
  void* InputData(int index);
  const void* OutputData(int index) const;
  void Run();
  // Per-call times (one entry per manifest().calls), `rounds` runs, medians in nanoseconds.
  std::vector<double> ProfileNs(int rounds);

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::runtime
