// Workloads by the names people use in tables.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::bench {

struct Workload {
  std::string name;   // "C2", "1024x1024x1024", "resnet18/0"
  std::string label;  // of the fused operator
  std::string text;   // tensor::WorkloadKey's argument
  double flops = 0;
};

// `name` is an operator (FindOperator), or a model of the zoo, which gives all its tasks, heaviest
// first. NotFound says so.
absl::StatusOr<std::vector<Workload>> FindWorkloads(const std::string& name);

}  // namespace heddle::bench
