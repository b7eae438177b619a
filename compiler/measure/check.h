// Checks whether the outputs that a candidate wrote are right.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/splitmix.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/ir.h"
#include "compiler/measure/compare.h"
#include "compiler/runtime/aligned_buffer.h"

namespace heddle::internal {

// There are two levels. First, points are computed from the program's definition before any
// candidate runs. Second, the whole outputs of the first candidate that is right at all points are
// kept. If a later candidate differs from these, the definition decides, so that a mistake which
// the points missed cannot condemn later candidates. Floats are compared within the candidate's
// tolerance (measure/compare.h), everything else exactly.
class ResultChecker {
 public:
  // Evaluates `points` elements of every output, corners and random ones. `program` is naive.
  // `program` and the values of `inputs` must outlive the checker.
  absl::Status Prepare(const ir::Program& program, std::vector<interpreter::TensorRef> inputs,
                       int points, SplitMix& random);

  // Checks both levels. `outputs` are the memory of all outputs; `tolerance` is the candidate's.
  // DataLoss "wrong result<when>: ..." names output, element, found and expected value; `when` is
  // "" or " in the second run". Raises *max_error to the largest relative error at the points.
  absl::Status Check(const std::vector<void*>& outputs, const std::string& when,
                     const runtime::Tolerance& tolerance, double* max_error);
  // Checks the points only.
  absl::Status CheckPoints(const std::vector<void*>& outputs, const std::string& when,
                           const runtime::Tolerance& tolerance, double* max_error) const;

  // The largest finite magnitude expected at the points; 0 if there is none.
  double LargestExpected() const;

  // How often kept outputs were found to be wrong and were replaced by those of a later candidate.
  int replaced() const { return replaced_; }

  // "output 0 ('y'), element [1,2]".
  std::string ElementText(int output, int64_t element) const;

 private:
  absl::Status PrepareBetween(int points, SplitMix& random);
  runtime::Tolerance Wider(runtime::Tolerance tolerance) const;
  absl::Status CheckWhole(const std::vector<void*>& outputs, const std::string& when,
                          const runtime::Tolerance& tolerance);
  absl::Status Keep(const std::vector<void*>& outputs, const runtime::Tolerance& tolerance);
  absl::Status Wrong(const std::string& when, interpreter::OutputPoint at, double found,
                     double expected) const;

  const ir::Program* program_ = nullptr;
  std::vector<interpreter::TensorRef> inputs_;
  std::vector<interpreter::OutputPoint> points_;
  std::vector<double> expected_;  // by point
  // A unit in the last place of the largest 16-bit float in an intermediate buffer. Differences
  // that f32 allows may round that float to its neighbour, and later operations may cancel
  // everything but this difference.
  double between_ = 0;
  std::vector<runtime::AlignedBuffer> whole_;  // by output; empty until a candidate is right
  runtime::Tolerance whole_tolerance_;         // tolerance of the candidate that wrote them
  int replaced_ = 0;
};

}  // namespace heddle::internal
