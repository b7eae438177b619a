// The definition of an operator: everything that passes need to know about it. No operator has a
// hand-written kernel; its tensor expression defines it.
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

// How an operator may fuse (TVM's four classes). Injective operators form chains; they fuse into a
// reduction that reads them, and onto the output of a complex-out-fusable operator. Opaque
// operators never fuse.
enum class FusionClass { kInjective, kReduction, kComplexOutFusable, kOpaque };

// Operators that passes treat alike.
enum class OpFamily {
  kOther,
  kConvolution,            // conv1d..3d
  kTransposedConvolution,  // conv_transpose1d..3d
  kPool,                   // computes each channel separately
  kReduction,              // over "axes", whose dimensions stay if "keepdims" is set
};

// One use of an operator: the types of its operands and of its result, and its attributes.
struct OpUse {
  Types inputs;
  const TensorType& output;
  OpAttrs attrs;
};

// The forms of an operator in other layouts than channels first, the layout of imported graphs.
// There is no other form if neither the first operand nor the result has three dimensions. The
// attributes of a form follow from their roles. The result has the node's layout, too, unless it
// lacks dimensions of the first operand. tests/graph/layout_rule_test.cc proves rules and roles by
// the expressions, and finds operators whose expressions have a form that no rule states.
struct LayoutRule {
  // Which operands have the node's layout. The others stay in the model's layout.
  enum class Operands {
    kFirst,    // the first one
    kAligned,  // all, each broadcast to the rank of the result
  };
  Operands operands = Operands::kFirst;
  // Whether there is a form with channels last. Null: never.
  std::function<bool(const OpUse&)> last = nullptr;
  // Whether there is also a form with channels in blocks of `block` (see Blocks in
  // channel_layout.h). Rules offer fewer of these forms than the expressions allow: those that
  // are useful beside blocked convolutions. Null: never.
  std::function<bool(const OpUse&, int64_t block)> blocked = nullptr;
  // Makes the node's form if it differs by more than the order of dimensions, for instance by the
  // order of weights. The operands of `node` are values of the graph under construction, in the
  // layout that `operands` says, and its attributes are changed by their roles. Null: the node
  // itself is the form.
  struct Change {
    Layout layout = Layout::kChannelsLast;
    int64_t block = 0;  // channels
    int64_t lanes = 1;  // elements in a vector of the target
    // Whether the first operand or the result is blocked.
    bool in_blocks = false, out_blocks = false;
  };
  std::function<absl::StatusOr<Node>(GraphBuilder& out, Node node, const Change& change)> form =
      nullptr;
};

// Laws that hold for an operator whatever the values of its operands are. Substitution rules belong
// here.
struct Laws {
  // Whether the result equals the first operand if their types are equal. Null: no.
  std::function<bool(const OpAttrs&)> copies = nullptr;
  // The dimension of the second operand that runs over the channels (dimension 1) of the result. A
  // factor per channel may then be multiplied into that operand instead of the result. -1 or null:
  // there is none.
  std::function<int(const OpUse&)> channels_of_weights = nullptr;
};

// The definition of an operator. Every operator has exactly one output; an ONNX operator with
// several (Split) becomes several nodes.
struct OpDef {
  OpKind kind{};
  FusionClass fusion = FusionClass::kOpaque;
  // Whether the operator is injective and element i of the output needs only element i of every
  // input that has the output's shape (other inputs are broadcast). Only such operators fuse onto a
  // complex-out-fusable operator, and only they may run in place.
  bool elementwise = false;
  OpFamily family = OpFamily::kOther;
  // Whether the result has the elements of the operand in the same order, so that it may share its
  // memory.
  bool relabels = false;
  std::vector<AttrSpec> attrs = {};
  // The type of the result. InvalidArgument: says what is wrong with the operands or attributes.
  std::function<absl::StatusOr<TensorType>(Types, const OpAttrs&)> infer = nullptr;
  // Adds the operator's stages to the builder and returns its result, which is always the result of
  // a stage.
  std::function<absl::StatusOr<tensor::Tensor>(tensor::Builder&, Tensors, const OpAttrs&)> express =
      nullptr;
  // Twice the number of multiply-accumulates, for operators that have them. Taps on padding count,
  // as in the literature. Null: each element of the output counts once.
  std::function<double(const OpUse&)> flops = nullptr;
  // For each operand, a number that its elements, which are i32 or u8, are expected to lie below, from 0 on; 0: nothing is
  // expected of it. A constant operand that keeps this is marked so in the loop program (ir::Buffer::below), and
  // `express` need not guard indices that it reads there. Null: nothing.
  std::function<std::vector<int64_t>(const OpUse&)> below = nullptr;
  // The result for constant operands, if it can be computed much faster than by the expression. It
  // has the type that `infer` gives. Null: use the expression.
  std::function<TensorData(std::span<const TensorData>, const TensorType&, const OpAttrs&)>
      evaluate = nullptr;
  LayoutRule layout = {};
  Laws laws = {};
  // For each operand, how many places the operator looks up in it where that depends on other operands; 0: it reads all of it.
  // Null: as the fusion class says (plan/roofline.h).
  std::function<std::vector<int64_t>(const OpUse&)> looked_up = nullptr;
  // Adds to `out` the gradients of a loss with respect to each operand of `node`, given
  // `by_result`, the gradient with respect to its result. The entry is -1 for an operand without a
  // gradient, such as an index. Null: the operator cannot be trained through. No operator has a
  // gradient yet.
  std::function<absl::StatusOr<std::vector<ValueId>>(GraphBuilder& out, const Node& node,
                                                     ValueId by_result)>
      gradient = nullptr;

  // Whether the operator moves data and computes nothing.
  bool OnlyMoves() const { return fusion == FusionClass::kInjective && !elementwise; }
};

const OpDef& Def(OpKind kind);

// Def(kind).infer and Def(kind).express, with attributes that are checked first. The result of
// Express has the type of InferType, except that elements of 16-bit floats may still be f32.
absl::StatusOr<TensorType> InferType(OpKind kind, Types inputs, const Attrs& attrs);
absl::StatusOr<tensor::Tensor> Express(OpKind kind, tensor::Builder& b, Tensors inputs,
                                       const Attrs& attrs);

// For a node of a checked graph.
OpAttrs AttrsOf(const Node& node);
std::vector<TensorType> InputTypes(const Graph& graph, const Node& node);
double Flops(const Graph& graph, const Node& node);  // as OpDef::flops; 0 if that is null

}  // namespace heddle::graph
