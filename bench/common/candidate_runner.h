// Builds and measures candidates of one workload in child processes, which may crash or hang.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "compiler/codegen/backend.h"
#include "compiler/machine/target_info.h"
#include "compiler/runtime/timing.h"

namespace heddle::bench {

// An artifact as bytes, to be sent between processes.
std::string Pack(const codegen::Artifact& artifact);
codegen::Artifact Unpack(const std::string& packed);

class CandidateRunner {
 public:
  struct Options {
    std::vector<int> cpus;        // cores of a measurement, as many as the target has threads
    std::vector<int> build_cpus;  // cores to build on, while nothing is measured
    runtime::TimingOptions timing;
    absl::Duration limit = absl::Seconds(20);  // for a build, and for a measurement with its check
    std::string device{};                      // "cuda:0": the GPU that measures; empty: `cpus`
    // Candidates not measured by then are Cancelled. Building gets half of the time.
    absl::Time deadline = absl::InfiniteFuture();
  };
  // `workload` and `target` must outlive it.
  CandidateRunner(const std::string& workload, const machine::TargetInfo& target, Options options);

  // The packed artifact of each trace, or its error.
  std::vector<absl::StatusOr<std::string>> Build(const std::vector<std::string>& traces) const;
  // The median of each in nanoseconds, on warm caches, or the error of its build, check or run.
  std::vector<absl::StatusOr<double>> Measure(
      const std::vector<std::string>& traces,
      const std::vector<absl::StatusOr<std::string>>& artifacts) const;

 private:
  const std::string& workload_;
  const machine::TargetInfo& target_;
  const Options options_;
};

}  // namespace heddle::bench
