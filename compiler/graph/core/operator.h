// The definition of an operator: all that passes ask of it. There is no hand-written kernel
// anywhere: an operator is what its tensor expression says.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/attributes.h"
#include "compiler/graph/core/channel_layout.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/core/op_kind.h"
#include "compiler/tensor/expression.h"

namespace heddle::graph {

class GraphBuilder;

using Types = std::span<const TensorType>;
using Tensors = std::span<const tensor::Tensor>;

// How an operator may fuse (TVM's four classes): injective operators chain; they fuse into a
// reduction that reads them, and onto the output of a complex-out-fusable one; opaque operators
// never fuse.
enum class FusionClass { kInjective, kReduction, kComplexOutFusable, kOpaque };

// Operators that passes treat alike.
enum class OpFamily {
  kOther,
  kConvolution,            // conv1d..3d
  kTransposedConvolution,  // conv_transpose1d..3d
  kPool,                   // computes each channel on its own
  kReduction,              // over "axes", whose dimensions "keepdims" keeps
};

// One use of an operator: the types of its operands and of its result, and its attributes.
struct OpUse {
  Types inputs;
  const TensorType& output;
  OpAttrs attrs;
};

// The operator's forms in layouts other than channels first, in which graphs are imported. Those
// whose results or operands have less than three dimensions have no other form. The attributes of a
// form follow from their roles.
struct LayoutRule {
  // Which operands stand in the node's layout; the others stay as the model has them.
  enum class Operands {
    kFirst,    // the first one
    kAligned,  // all, broadcast to the rank of the result
  };
  Operands operands = Operands::kFirst;
  // Whether there is a form with channels last; null: never.
  std::function<bool(const OpUse&)> last = nullptr;
  // Whether, given that, there is one with channels in blocks of so many (as in channel_layout.h,
  // Blocks); null: never.
  std::function<bool(const OpUse&, int64_t block)> blocked = nullptr;
  // Whether the result has the layout, too; null: always. Else it is the model's either way.
  std::function<bool(const OpAttrs&)> result = nullptr;
  // Gives the node its form where renamed dimensions are not all that differs, such as the order of
  // weights. `node` has its operands in the graph under construction, where they stand as
  // `operands` says, and attributes changed by their roles. Null: the node is its own form.
  struct Change {
    Layout layout = Layout::kChannelsLast;
    int64_t block = 0;                           // channels
    int64_t lanes = 1;                           // results in a vector of the target
    bool in_blocks = false, out_blocks = false;  // whether the first operand, the result are
  };
  std::function<absl::StatusOr<Node>(GraphBuilder& out, Node node, const Change& change)> form =
      nullptr;
};

// What holds for an operator whatever its operands hold. Substitution rules are to be stated here.
struct Laws {
  // Whether the result is the first operand if their types are equal; null: no.
  std::function<bool(const OpAttrs&)> copies = nullptr;
  // The dimension of the second operand that runs over the channels (dimension 1) of the result, so
  // that a factor per channel may be multiplied into that operand instead of the result; -1 or
  // null: none.
  std::function<int(const OpUse&)> channels_of_weights = nullptr;
};

// Every operator has exactly one output; what ONNX returns in several (Split) becomes several
// nodes.
struct OpDef {
  OpKind kind{};
  FusionClass fusion = FusionClass::kOpaque;
  // Injective, and element i of the output needs only element i of every input that has the
  // output's shape (others are broadcast). Only these fuse onto a complex-out-fusable operator, and
  // only these may run in place.
  bool elementwise = false;
  OpFamily family = OpFamily::kOther;
  // The result has the elements of the operand in their order, so it may share its memory.
  bool relabels = false;
  std::vector<AttrSpec> attrs = {};
  // The type of the result; InvalidArgument says what is wrong with the operands or attributes.
  std::function<absl::StatusOr<TensorType>(Types, const OpAttrs&)> infer = nullptr;
  // Adds the operator's stages to the builder and returns its result, which is always a stage's.
  std::function<absl::StatusOr<tensor::Tensor>(tensor::Builder&, Tensors, const OpAttrs&)> express =
      nullptr;
  // 2 x multiply-accumulates for operators that have them (padding counted as present taps, as in
  // the literature), else null: then elements of the output count once.
  std::function<double(const OpUse&)> flops = nullptr;
  // The result of constant operands, where that is much faster than by the expression; null: by
  // the expression. Of the type that `infer` gives.
  std::function<TensorData(std::span<const TensorData>, const TensorType&, const OpAttrs&)>
      evaluate = nullptr;
  LayoutRule layout = {};
  Laws laws = {};
  // Adds to `out` the gradients of a loss by each operand of `node`, given that by its result;
  // -1 for an operand that has none (an index). Null: the operator cannot be trained through. No
  // operator has one yet.
  std::function<absl::StatusOr<std::vector<ValueId>>(GraphBuilder& out, const Node& node,
                                                     ValueId by_result)>
      gradient = nullptr;

  // Injective, but computes nothing.
  bool OnlyMoves() const { return fusion == FusionClass::kInjective && !elementwise; }
};

const OpDef& Def(OpKind kind);

// Def(kind).infer and Def(kind).express with attributes that have been checked. The result of
// Express has the type of InferType, save that elements of 16-bit floats may still be f32.
absl::StatusOr<TensorType> InferType(OpKind kind, Types inputs, const Attrs& attrs);
absl::StatusOr<tensor::Tensor> Express(OpKind kind, tensor::Builder& b, Tensors inputs,
                                       const Attrs& attrs);

// Of a node of a checked graph.
OpAttrs AttrsOf(const Node& node);
std::vector<TensorType> InputTypes(const Graph& graph, const Node& node);
double Flops(const Graph& graph, const Node& node);  // as OpDef::flops; 0 if that is null

}  // namespace heddle::graph
