// The oracle. It executes any verified program, scheduled or lowered, with the meaning that ir.h
// gives it, and checks every access.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::interpreter {

// Dense row-major memory of one buffer, not owned.
struct TensorRef {
  ir::DType dtype;
  std::vector<int64_t> shape;
  void* data = nullptr;
};

struct InterpreterOptions {
  // Tracks which elements are written, and makes reading an unwritten one an error. Costs about a
  // third of the speed.
  bool check_uninitialized = true;
  int64_t max_steps = int64_t{1} << 42;  // limit on executed stores; DeadlineExceeded beyond it
  // Runs `parallel` loops backwards. The result is the same if iterations are independent.
  bool reverse_parallel = false;
  // For GPU programs with barriers (races.h). These are errors: two threads touch one element of
  // shared memory, or of global memory that the program writes, between two barriers, and one of
  // them writes; two blocks of a launch do so; two threads touch one element of a local buffer.
  // Needs check_uninitialized.
  bool check_races = false;
};

// Runs `program` on `buffers`, inputs then outputs. InvalidArgument: types or shapes differ.
// Internal: an access is out of bounds, uninitialised or racing; the message has buffer and index.
// The program is compiled to register bytecode and runs tens of millions of inner iterations per
// second, enough for a ResNet.
absl::Status Interpret(const ir::Program& program, std::span<const TensorRef> buffers,
                       const InterpreterOptions& options = {});

// One element of an output, by the number of the output and its row-major index.
struct OutputPoint {
  int output = 0;
  int64_t element = 0;
};
// The values of single elements of the outputs of a naive program (tensor::LowerToLoops), one for
// each point. It evaluates the definition of each block on demand and ignores the loops. So the
// result does not depend on schedules, and the cost depends only on the points. Intermediate
// elements are remembered.
absl::StatusOr<std::vector<double>> EvaluatePoints(const ir::Program& naive,
                                                   std::span<const TensorRef> inputs,
                                                   std::span<const OutputPoint> points);

}  // namespace heddle::interpreter
