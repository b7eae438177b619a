// The oracle: executes any verified program, scheduled or lowered, as ir.h says it means, with
// every access checked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::interpreter {

// Dense row-major memory of one buffer; not owned.
struct TensorRef {
  ir::DType dtype;
  std::vector<int64_t> shape;
  void* data = nullptr;
};

struct InterpreterOptions {
  // Track which elements were written; reading an unwritten one is an error. Costs about a third of
  // the speed.
  bool check_uninitialized = true;
  int64_t max_steps = int64_t{1} << 42;  // stores executed before giving up with DeadlineExceeded
  // Runs `parallel` loops backwards: a program whose iterations are independent, as it claims,
  // gives the same result.
  bool reverse_parallel = false;
  // GPU programs that have their barriers: two threads that touch one element of shared memory (or
  // of global memory that the program writes) between two barriers, at least one writing, are an
  // error; so are two blocks of a launch that do, and two threads that touch one element of a local
  // buffer. Wants check_uninitialized.
  bool check_races = false;
};

// Runs `program` on `buffers` (inputs, then outputs; types and shapes must match: InvalidArgument).
// Out-of-bounds, uninitialised and racing accesses are Internal errors naming buffer and index.
// Fast enough to run a ResNet (compiles to register bytecode; tens of millions of inner iterations
// a second).
absl::Status Interpret(const ir::Program& program, std::span<const TensorRef> buffers,
                       const InterpreterOptions& options = {});

// The value of single elements of the outputs, by demand-driven evaluation of a naive program
// (LowerToLoops): nothing of the loops is used, only each block's definition, so it is independent
// of schedules and costs only what the elements need. points[k] = {output, linear element index}.
// Returns one double per point. Memoises intermediate elements.
struct OutputPoint {
  int output = 0;
  int64_t element = 0;
};
absl::StatusOr<std::vector<double>> EvaluatePoints(const ir::Program& naive,
                                                   std::span<const TensorRef> inputs,
                                                   std::span<const OutputPoint> points);

}  // namespace heddle::interpreter
