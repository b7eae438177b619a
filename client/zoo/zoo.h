// The model zoo: published architectures as ONNX bytes with deterministic random weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::zoo {

// mlp, resnet18, resnet50, mobilenet_v1, mobilenet_v2, squeezenet (1.0), inception_v3, resnext50
// (32x4d), nasnet_a (mobile width, one normal cell a stage), dqn, dcgan (the generator), lstm_lm,
// nasrnn, bert_base.
std::vector<std::string> ZooNames();

// A checked ONNX model (opset 13), the same bytes for the same name and seed on every machine.
// Weights are He-scaled (of half that variance where no rectifier follows), batch-norm statistics
// near 0 and 1, so that activations stay finite. Models have up to 440 MB.
// NotFound lists the names.
absl::StatusOr<std::string> MakeZooModel(std::string_view name, uint64_t seed);

}  // namespace heddle::zoo
