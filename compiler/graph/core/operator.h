// The operators: for each, its fusion class, its type inference, and its tensor expression. There
// is no hand-written kernel anywhere: an operator is what its expression says.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/tensor/expression.h"

namespace heddle::graph {

// Every operator has exactly one output; what ONNX returns in several (Split) becomes several
// nodes.
//
// How an operator may fuse (TVM's four classes): injective ops chain; injective inputs fuse into a
// reduction; injective ops fuse onto the output of a complex-out-fusable one; opaque never fuses.
enum class FusionClass { kInjective, kReduction, kComplexOutFusable, kOpaque };

struct OpDef {
  std::string_view name;
  FusionClass fusion = FusionClass::kOpaque;
  // Injective, and element i of the output needs only element i of every input that has the
  // output's shape (others are broadcast). Only these fuse onto a complex-out-fusable operator, and
  // only these may run in place.
  bool elementwise = false;
  // Output types from input types and attributes; InvalidArgument says what is wrong with them.
  std::function<absl::StatusOr<std::vector<TensorType>>(std::span<const TensorType>, const Attrs&)>
      infer = nullptr;
  // Adds the operator's stages to the builder and returns its output, which is always a stage's.
  std::function<absl::StatusOr<std::vector<tensor::Tensor>>(
      tensor::Builder&, std::span<const tensor::Tensor>, const Attrs&)>
      express = nullptr;
  // 2 x multiply-accumulates for operators that have them (padding counted as present taps, as in
  // the literature), else null: then elements of the output count once.
  std::function<double(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                       const Attrs&)>
      flops = nullptr;
};

const OpDef* FindOp(std::string_view name);  // null if there is none
std::vector<std::string_view> AllOps();

}  // namespace heddle::graph
