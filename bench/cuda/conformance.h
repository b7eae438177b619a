// The conformance suite on a GPU: what its code computes against the interpreter, and schedules of
// whole operators against their definitions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/target.h"
#include "bench/common/workloads.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::bench {

// tests/cases/conformance, which every back end runs, and conformance_gpu, programs with the
// threads of GPUs; carried in the program (conformance_cases.cmake).
struct ConformanceText {
  const char* name;
  const char* text;
};
const std::vector<ConformanceText>& ConformanceTexts();

// Every operator of the IR and every conversion, of every type that has it, by two blocks of
// threads.
std::vector<ir::Program> OperatorPrograms();

// All of these, with names of their own.
absl::StatusOr<std::vector<ir::Program>> ConformancePrograms();

// What became of each program: OK, or why it does not compile, load or run, or the first element
// that differs by more than runtime/numerics.h allows. Compiles on the cores `build_cpus`, a child for
// each, and runs in children, one at a time: one that spoils its process's use of the GPU costs
// itself alone. What there is no time for until `deadline` is Cancelled.
std::vector<absl::Status> CheckConformance(const std::vector<ir::Program>& programs,
                                           const Target& target, const std::string& device,
                                           const std::vector<int>& build_cpus,
                                           absl::Time deadline = absl::InfiniteFuture());

// The default and some random schedules of a workload, likewise. Those beyond the architecture's
// limits are left out.
struct CheckedSchedule {
  std::string trace;
  absl::Status status;
};
std::vector<CheckedSchedule> CheckSchedules(const Workload& workload,
                                            const machine::TargetInfo& target,
                                            const std::string& device,
                                            const std::vector<int>& build_cpus,
                                            absl::Time deadline = absl::InfiniteFuture());

}  // namespace heddle::bench
