// Measures one built candidate in this process: loads it, checks its results, times it. Candidates
// may crash or hang, so callers run this in a disposable child process with limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/machine/cold_timing.h"
#include "compiler/runtime/timing.h"

namespace heddle {

// Before each timed call, the caches are brought to about the state in which a model would leave them
// (MeasureOptions::warm_activations). In a model, other kernels evict a kernel's weights, and the best schedule with warm caches need not be the best with cold ones. ResNet-18 runs in 17.0 ms if tuned with warm
// caches and in 15.7 ms if tuned with cold ones, timed in turns.
//
// Kernels of models of trees (ir::IsTimedWarm) are called and their constants read before each timed call, so both are as warm as
// their size allows, and one that takes less than 5 us is called several times. Such models are small, and called again and again. For one
// row, a kernel takes several times as long with cold code as with warm code, and walks wait for one cold line after the
// other, so what it takes cold says little of it. All kernels of the model are timed warm, those around the trees too. Each form
// of the trees needs another kernel before it, so forms are compared by the sum of both, and a sum of a warm and a cold time would choose the
// wrong form. compiler/plan counts these times as warm.
inline runtime::TimingOptions ColdTiming() {
  runtime::TimingOptions timing;
  timing.flush_bytes = machine::kFlushBytes;
  return timing;
}

struct MeasureOptions {
  // Before each timed call, constants are evicted, dense vector code runs for 2 ms (cache_age.h), and the inputs are read, and the
  // output where it takes the place of one. In a model, weights were last used an inference ago, the memory of workspace and
  // outputs some kernels ago, and the inputs have just been written. Some CPUs cannot evict single lines, and constants may be
  // larger than machine::kFlushBytes. Then that much other memory is touched instead, and workspace, outputs and inputs are read.
  // False: other memory is touched, and nothing is read.
  bool warm_activations = true;
  runtime::TimingOptions timing = ColdTiming();
  int threads = 1;
  std::vector<int> cpus;  // the slot's cores
  std::string device;     // "cuda:0": the device to measure on; empty: the CPU
  // The number of elements of each output that are compared with the program's definition: corners
  // and random ones. The whole outputs of the first candidate that is right there are kept, and all
  // later candidates are compared with them in full.
  int check_points = 256;
};

struct Measurement {
  runtime::Timing timing;
  // The largest |found - expected| / max(|found|, |expected|, 1) at the checked points.
  double max_error = 0;
  int references_replaced = 0;  // how often kept outputs were found to be wrong
};

// The buffers and reference of one workload, reused for all its candidates.
class WorkloadBench {
 public:
  // Makes the inputs and computes the reference points (EvaluatePoints of
  // interpreter/interpreter.h). The inputs are random in [-1, 1] (integers: small) and are
  // determined by the workload's key. InvalidArgument: as ir::ParseWorkload.
  static absl::StatusOr<std::unique_ptr<WorkloadBench>> Create(std::string_view workload,
                                                               const MeasureOptions& options);
  virtual ~WorkloadBench() = default;
  // Checks and times a candidate. One that is surely slower than the fastest candidate before it is timed
  // with fewer calls and samples (runtime::TimingOptions::rival_ns): most candidates are, and precise times of them
  // would take most of the device's time. Outputs are poisoned first, so that elements that are not written
  // are found, and results are checked again after a second run. DataLoss "wrong result: ..." names
  // output, element, expected and found value. DataLoss "suspiciously fast: ...": no machine
  // reaches the time. InvalidArgument: the code does not load. Aborted, on a GPU: this process can
  // no longer use the GPU (runtime/cuda/driver.h), perhaps because of an earlier candidate.
  virtual absl::StatusOr<Measurement> Run(const codegen::Artifact& artifact) = 0;
};

}  // namespace heddle
