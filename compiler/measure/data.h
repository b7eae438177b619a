// The memory of a measured workload, and the check of candidates' results in it. Internal to this
// folder.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "compiler/measure/check.h"
#include "compiler/measure/compare.h"
#include "compiler/measure/loaded_kernel.h"
#include "compiler/measure/measure.h"
#include "compiler/runtime/aligned_buffer.h"
#include "compiler/runtime/timing.h"

namespace heddle::internal {

class MeasureData {
 public:
  // `program` is naive.
  explicit MeasureData(ir::Program program);
  // Makes inputs from `seed`, and reference points for MeasureOptions.check_points.
  absl::Status Prepare(uint64_t seed, int check_points);

  const ir::Program& program() const { return program_; }
  // The host memory of inputs and outputs, by name.
  const MemoryByName& memory() const { return memory_; }
  // What a kernel of a model finds as it was written a moment ago: its inputs, and the output where that takes the place of one.
  // Constants are not among it.
  std::vector<Memory> Fresh() const;
  int references_replaced() const { return checker_.replaced(); }

  // `call` computes the outputs of memory() from its inputs, on any device. It runs twice. In the
  // first run every output holds NaNs, which reveals elements that are not written or are read too
  // early. The second run reveals state that survives from one call to the next. An integer that is
  // not written holds different values after the two runs, so it is wrong in one of them. DataLoss:
  // a result is wrong. Other errors are those of `call`.
  absl::Status Check(const std::function<absl::Status()>& call, const runtime::Tolerance& tolerance,
                     double* max_error);
  // DataLoss: by these times, the call makes more operations per second than `most`.
  absl::Status CheckPlausible(const runtime::Timing& timing, double most) const;

 private:
  const ir::Program program_;
  const double flops_;
  std::vector<runtime::AlignedBuffer> owned_;
  MemoryByName memory_;
  std::vector<void*> outputs_;
  ResultChecker checker_;
};

// What may be warm when a kernel is called in a model, from what was used longest ago: the workspace, which all kernels of a module
// share; where it writes, which held older values; its inputs, which the kernels before have just written. Constants are not.
std::vector<Memory> WarmByAge(const MeasureData& data, const runtime::AlignedBuffer& workspace);

// The bench of a workload on the GPU cuda:`ordinal`, for WorkloadBench::Create. `program` is naive.
absl::StatusOr<std::unique_ptr<WorkloadBench>> CreateCudaBench(ir::Program program, uint64_t seed,
                                                               int ordinal,
                                                               const MeasureOptions& options);

}  // namespace heddle::internal
