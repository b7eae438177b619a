// Workloads by the names people use in tables.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"

namespace heddle::bench {

struct Workload {
  std::string name;   // "C2", "1024x1024x1024", "resnet18/0"
  std::string label;  // the fused operator, for people
  std::string text;   // the argument of WorkloadKey
  double flops = 0;
  std::string layout{};  // convolutions only: "channels last", "channels in blocks of 16"
};

struct WorkloadOptions {
  Target target{};  // decides the layout
  // A convolution takes the layout that the estimates find cheapest for it alone, with inputs and
  // outputs already in that layout. Otherwise its channels are last.
  bool free_layout = false;
};

// `name` is an operator (FindOperator) or a model of the zoo. A model gives all its tasks, heaviest
// first. NotFound if it is neither.
absl::StatusOr<std::vector<Workload>> FindWorkloads(const std::string& name,
                                                    const WorkloadOptions& options = {});

}  // namespace heddle::bench
