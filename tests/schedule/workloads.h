// The operators that schedules are judged by, as naive programs (names of the project's list of
// workloads).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::schedule {

// C1..C12: convolution, bias and ReLU, NHWC activations, HWIO weights, with padding. D1..D9: the
// same, depthwise. M1: a vector times a matrix, M2: a matrix product, MT: one with the second
// operand transposed. S: softmax of rows. P: global average pooling. E: an elementwise chain.
// Any other convolution is named by its numbers, 56x24-144k1s1: size, input and output channels (0:
// depthwise), kernel, stride. Weights and biases are const.
std::vector<std::string> WorkloadNames();
absl::StatusOr<ir::Program> MakeWorkload(const std::string& name);

// The widest CPU, a machine with threads.
machine::TargetInfo Wide();
// The narrowest, and Wide().
std::vector<machine::TargetInfo> Targets();

}  // namespace heddle::schedule
