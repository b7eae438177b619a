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

// The operators of ResNet-18 (C1..C12) and of MobileNet (D1..D9), as in the TVM paper.
std::vector<std::string> TableNames();

// `name` is one of TableNames(), a matrix product MxNxK or a batched one BxMxNxK (at most 65536
// each), or a model of the zoo, which gives all its tasks, heaviest first. NotFound says so.
absl::StatusOr<std::vector<Workload>> FindWorkloads(const std::string& name);

}  // namespace heddle::bench
