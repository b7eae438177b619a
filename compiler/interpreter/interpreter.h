// The oracle: executes any verified program, scheduled or lowered, with the meaning that ir.h gives
// it, and checks every access.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::interpreter {

// Dense row-major memory of one buffer. Does not own it.
struct TensorRef {
  ir::DType dtype;
  std::vector<int64_t> shape;
  void* data = nullptr;
};

struct InterpreterOptions {
  // Tracks which elements were written; reading an unwritten one is an error. Costs about a third
  // of the speed.
  bool check_uninitialized = true;
  int64_t max_steps = int64_t{1} << 42;  // stores executed before giving up with DeadlineExceeded
  // Runs `parallel` loops backwards. The result is the same if iterations are independent.
  bool reverse_parallel = false;
  // For GPU programs with barriers (races.h). It is an error if two threads touch one element of
  // shared memory, or of global memory that the program writes, between two barriers, at least one
  // of them writing; if two blocks of a launch do; or if two threads touch one element of a local
  // buffer. Needs check_uninitialized.
  bool check_races = false;
};

// Runs `program` on `buffers`, inputs then outputs. InvalidArgument if types or shapes differ;
// Internal, with buffer and index, for an out-of-bounds, uninitialised or racing access. Compiles
// to register bytecode and runs tens of millions of inner iterations a second: enough for a ResNet.
absl::Status Interpret(const ir::Program& program, std::span<const TensorRef> buffers,
                       const InterpreterOptions& options = {});

// One element of an output: output number and row-major element number.
struct OutputPoint {
  int output = 0;
  int64_t element = 0;
};
// The values of single elements of the outputs of a naive program (tensor::LowerToLoops), one per
// point. Evaluates each block's definition on demand and ignores the loops, so the result does not
// depend on schedules and costs only what the points need. Remembers intermediate elements.
absl::StatusOr<std::vector<double>> EvaluatePoints(const ir::Program& naive,
                                                   std::span<const TensorRef> inputs,
                                                   std::span<const OutputPoint> points);

}  // namespace heddle::interpreter
