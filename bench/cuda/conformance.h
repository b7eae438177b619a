// The conformance suite on a GPU: compiled programs against the interpreter, and schedules of whole
// operators against their definitions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/vocabulary/target.h"
#include "bench/common/workloads.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::bench {

// The cases of tests/cases/conformance, which every back end runs, and of conformance_gpu, which
// use GPU threads. They are compiled into the program (conformance_cases.cmake).
struct ConformanceText {
  const char* name;
  const char* text;
};
const std::vector<ConformanceText>& ConformanceTexts();

// Every operator and conversion of the IR, for every type that has it, in two blocks of threads.
std::vector<ir::Program> OperatorPrograms();

// All of these, each with a unique name.
absl::StatusOr<std::vector<ir::Program>> ConformancePrograms();

// The result of each program: OK; why it does not compile, load or run; or the first element that
// differs by more than runtime/numerics.h allows. Compiles in one child for each core of `build_cpus`, and
// runs programs in children one at a time, so that one that makes the GPU unusable for its process
// fails alone. Programs not run by `deadline` are Cancelled.
std::vector<absl::Status> CheckConformance(const std::vector<ir::Program>& programs,
                                           const Target& target, const std::string& device,
                                           const std::vector<int>& build_cpus,
                                           absl::Time deadline = absl::InfiniteFuture());

// The same for the default and some random schedules of a workload. Schedules beyond the limits of
// the architecture are left out.
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
