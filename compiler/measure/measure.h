// Measures one built candidate in this process: loads it, checks its results, times it. Candidates
// crash and hang; callers run this in a disposable child process with limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/runtime/timing.h"

namespace heddle {

// Inside a model every kernel finds its weights evicted by the others', and a schedule that is best
// on warm caches need not be best there: ResNet-18 tuned warm ran 17.0 ms, tuned cold 15.7 ms,
// timed in turns. So measurements are cold. The size evicts the second and most of a third-level
// cache.
inline constexpr int64_t kFlushBytes = int64_t{64} << 20;

inline runtime::TimingOptions ColdTiming() {
  runtime::TimingOptions timing;
  timing.flush_bytes = kFlushBytes;
  return timing;
}

struct MeasureOptions {
  runtime::TimingOptions timing = ColdTiming();
  int threads = 1;
  std::vector<int> cpus;  // the slot's cores
  std::string device;     // "cuda:0": the GPU that measures; empty: the cores
  // Elements of each output that are compared with the program's definition: corners and random
  // ones. The first candidate that is right there gives whole outputs, with which all later ones
  // are compared in full.
  int check_points = 256;
};

struct Measurement {
  runtime::Timing timing;
  double max_error =
      0;  // largest |found - expected| / max(|found|, |expected|, 1) over the checked points
  int references_replaced = 0;  // how often whole outputs of an earlier candidate were found wrong
};

// The buffers and reference of one workload, reused for all its candidates.
class WorkloadBench {
 public:
  // Deterministic random inputs in [-1, 1] (integers: small) from the workload's key; the reference
  // points are computed here by EvaluatePoints, once.
  static absl::StatusOr<std::unique_ptr<WorkloadBench>> Create(std::string_view workload,
                                                               const MeasureOptions& options);
  virtual ~WorkloadBench() = default;
  // DataLoss "wrong result: ..." names output, element, expected and found value; outputs are
  // poisoned beforehand, so an unwritten element is found too, and results are checked again after
  // a second run. DataLoss "suspiciously fast: ..." for a time no machine reaches.
  // InvalidArgument if the code does not load. On a GPU also Aborted: the process cannot use it any
  // more (runtime/cuda_driver.h), which the candidate need not be guilty of.
  virtual absl::StatusOr<Measurement> Run(const codegen::Artifact& artifact) = 0;
};

}  // namespace heddle
