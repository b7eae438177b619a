// Workloads by the names people use in tables.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"

namespace heddle::bench {

struct Workload {
  std::string name;   // "C2", "1024x1024x1024", "resnet18/0"
  std::string label;  // of the fused operator
  std::string text;   // tensor::WorkloadKey's argument
  double flops = 0;
  std::string layout{};  // of a convolution: "channels last", "channels in blocks of 16"
};

struct WorkloadOptions {
  Target target{};  // what layouts are for
  // A convolution works in the layout that is cheapest for it alone, by the estimates, as if what
  // is around it had that layout too; else channels are last.
  bool free_layout = false;
};

// `name` is an operator (FindOperator), or a model of the zoo, which gives all its tasks, heaviest
// first. NotFound says so.
absl::StatusOr<std::vector<Workload>> FindWorkloads(const std::string& name,
                                                    const WorkloadOptions& options = {});

}  // namespace heddle::bench
