// The memory of a workload that is measured, and the check of what candidates compute. Internal to
// this folder.
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
  // Inputs from `seed`; MeasureOptions.check_points reference points.
  absl::Status Prepare(uint64_t seed, int check_points);

  const ir::Program& program() const { return program_; }
  // The host's memory of inputs and outputs, by name.
  const MemoryByName& memory() const { return memory_; }
  int references_replaced() const { return checker_.replaced(); }

  // `call` computes the outputs of memory() from its inputs, wherever it does so. Two runs: the
  // first finds what is not written or read before it is written (everything holds NaNs), the
  // second what survives from one call to the next. An integer that is not written holds different
  // values after the two, so it is wrong in one of them. DataLoss, or what `call` gives.
  absl::Status Check(const std::function<absl::Status()>& call, const runtime::Tolerance& tolerance,
                     double* max_error);
  // DataLoss if the times mean more operations a second than `most`.
  absl::Status CheckPlausible(const runtime::Timing& timing, double most) const;

 private:
  const ir::Program program_;
  const double flops_;
  std::vector<runtime::AlignedBuffer> owned_;
  MemoryByName memory_;
  std::vector<void*> outputs_;
  ResultChecker checker_;
};

// A workload's bench on a GPU (options.device), for WorkloadBench::Create. `program` is naive.
absl::StatusOr<std::unique_ptr<WorkloadBench>> CreateCudaBench(ir::Program program, uint64_t seed,
                                                               const MeasureOptions& options);

}  // namespace heddle::internal
