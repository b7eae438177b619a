// Says whether what a candidate wrote into the outputs of a workload is right.
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

// Two levels: points computed from the program's definition before any candidate runs, and the
// whole outputs of the first candidate that was right at all points. Whole outputs decide nothing
// by themselves: where a candidate differs from them, the definition is asked again, so a mistake
// that the points missed cannot condemn those who come later. Floats compare within the tolerance
// of the candidate (tolerance.h), everything else exactly.
class ResultChecker {
 public:
  // `program` is naive; `inputs` hold their values, and both outlive the checker. Corners and
  // random elements, `points` of every output, are evaluated here.
  absl::Status Prepare(const ir::Program& program, std::vector<interpreter::TensorRef> inputs,
                       int points, SplitMix& random);

  // `outputs` are the memory of all outputs, `when` ("" or " in the second run") goes into the
  // DataLoss "wrong result<when>: ..." that names output, element, found and expected value. Keeps
  // the largest relative error at the points in *max_error. `tolerance` is the candidate's.
  absl::Status Check(const std::vector<void*>& outputs, const std::string& when,
                     const runtime::Tolerance& tolerance, double* max_error);
  // The first of the two levels alone.
  absl::Status CheckPoints(const std::vector<void*>& outputs, const std::string& when,
                           const runtime::Tolerance& tolerance, double* max_error) const;

  // The largest finite magnitude expected at the points; 0 if there is none.
  double LargestExpected() const;

  // How often kept outputs turned out wrong and gave way to a later candidate's.
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
  // A unit in the last place of the largest 16-bit float that is stored on the way to the outputs:
  // what f32 allows may round it to its neighbour, and what follows may cancel all but that.
  double between_ = 0;
  std::vector<runtime::AlignedBuffer> whole_;  // by output; empty until a candidate is right
  runtime::Tolerance whole_tolerance_;         // of the candidate that wrote them
  int replaced_ = 0;
};

}  // namespace heddle::internal
