// Builds and measures candidates of one workload, in children that may crash or hang.
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
    absl::Duration limit = absl::Seconds(20);  // of a build, and of a measurement with its check
    std::string device{};                      // "cuda:0": the GPU that measures; empty: `cpus`
    // What is not measured then is Cancelled; building gets half of the time.
    absl::Time deadline = absl::InfiniteFuture();
  };
  // `workload` and `target` must outlive it.
  CandidateRunner(const std::string& workload, const machine::TargetInfo& target, Options options);

  // An artifact of each trace, packed, or why there is none.
  std::vector<absl::StatusOr<std::string>> Build(const std::vector<std::string>& traces) const;
  // Median nanoseconds of each, warm, or what went wrong: of its build, its result or its run.
  std::vector<absl::StatusOr<double>> Measure(
      const std::vector<std::string>& traces,
      const std::vector<absl::StatusOr<std::string>>& artifacts) const;

 private:
  const std::string& workload_;
  const machine::TargetInfo& target_;
  const Options options_;
};

}  // namespace heddle::bench
