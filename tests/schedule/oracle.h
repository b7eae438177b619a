// Runs programs on the interpreter and compares: the oracle of the schedule tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/trace.h"

namespace heddle::schedule {

// Outputs as doubles, one vector per output.
using Outputs = std::vector<std::vector<double>>;

// Runs a scheduled or lowered program of f32 or halves (and, as inputs, i32 and u8) on inputs drawn from the seed. Outputs start
// out as NaN.
absl::StatusOr<Outputs> RunOnRandomInputs(const ir::Program& program, uint64_t seed);

// OK if both agree within measure/compare.h.
absl::Status CompareOutputs(const Outputs& expected, const Outputs& found);

// Replays the trace on the naive program and checks: every step gives back cursors to all that it
// makes, and leaves a program that verifies and whose concurrent loops are independent, the
// unchanged ones too (unless there are guards); the result, and what it is lowered to, compute what
// the naive program computes.
absl::Status CheckTrace(const ir::Program& naive, const Trace& trace, uint64_t seed);

// Leaves out steps as long as the trace still replays and CheckTrace still fails.
Trace Minimise(const ir::Program& naive, Trace trace, uint64_t seed);

// For failures: the seed, the naive program, the minimised trace and the error it gives.
std::string Explain(const ir::Program& naive, const Trace& trace, uint64_t seed);

}  // namespace heddle::schedule
