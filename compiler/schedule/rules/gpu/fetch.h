// Operands of GPU reductions, and work shared among the threads of a block. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/rules/recorder.h"
#include "compiler/schedule/rules/stage.h"

namespace heddle::schedule {

// A buffer that a reduction loads and that may be copied: inputs with a range (ir::Buffer::below) may not.
struct GpuOperand {
  std::string buffer;
  int64_t element_bytes = 4;
  int64_t row = 1;  // extent of its last dimension
};
std::vector<GpuOperand> OperandsOf(const ir::Block& block);

// Brings the part of the operand that a step (one iteration of loop `step`) reads into shared
// memory. All threads take part, each with up to `lanes` neighbours at a time. If not `shared`,
// each thread reads the operand itself. An injective block that makes the operand is computed
// there. Adds the shared memory that this takes to `bytes`.
absl::Status FetchOperand(const Stage& stage, const GpuOperand& operand, bool shared,
                          const Loop& step, int64_t threads, int64_t lanes, int64_t* bytes,
                          Recorder& out);
// ResourceExhausted where a block of threads asks for more shared memory than there is.
absl::Status CheckShared(int64_t bytes, const machine::TargetInfo& target);

}  // namespace heddle::schedule
