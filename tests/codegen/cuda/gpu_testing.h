// Runs scheduled programs as GPUs would: lowered with barriers, interpreted with race detection,
// compared with the naive program.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/space.h"
#include "tests/codegen/kernel_runner.h"

namespace heddle::testing {

// "cuda -arch=sm_90" with its limits.
machine::TargetInfo GpuTarget(const std::string& arch = "sm_90");

// The trace replayed, verified and lowered for a GPU. The error says at which of these.
absl::StatusOr<ir::Program> LowerForGpu(const ir::Program& naive, const schedule::Trace& trace,
                                        const std::string& arch = "sm_90");

// Runs a lowered GPU program with race detection and compares with the naive program; then again
// with each thread's share of the local buffers in memory of its own, as the back end places it.
absl::Status CheckGpuProgram(const ir::Program& naive, const ir::Program& lowered, uint64_t seed);

// Compiles to sm_90; OK where this machine has no NVRTC.
absl::Status CompileForGpu(const std::vector<ir::Program>& lowered, const std::string& arch);
bool HasNvrtc();

}  // namespace heddle::testing
