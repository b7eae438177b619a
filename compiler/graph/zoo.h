// The model zoo: published architectures as ONNX bytes with deterministic random weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::graph {

std::vector<std::string> ZooNames();  // mlp, resnet18, mobilenet_v1, mobilenet_v2

// A checked ONNX model (opset 13), the same bytes for the same name and seed on every machine.
// Weights are He-scaled, batch-norm statistics near 0 and 1, so that activations stay finite.
// NotFound lists the names.
absl::StatusOr<std::string> MakeZooModel(std::string_view name, uint64_t seed);

}  // namespace heddle::graph
