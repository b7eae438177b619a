#include "compiler/graph/passes/evaluate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/ir/visit.h"

namespace heddle::graph {
namespace {

absl::StatusOr<tensor::TensorProgram> ExpressAlone(OpKind kind, const Attrs& attrs, Types inputs,
                                                   const TensorType& result) {
  tensor::Builder b(NameOf(kind));
  std::vector<tensor::Tensor> in;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(b.Input(absl::StrCat("p", i), inputs[i].dtype, inputs[i].shape));
  HEDDLE_ASSIGN_OR_RETURN(const tensor::Tensor out, Express(kind, b, in, attrs));
  return b.Build({b.Stored(out, result.dtype)});
}

}  // namespace

absl::StatusOr<std::vector<TensorData>> EvaluateProgram(const tensor::TensorProgram& program,
                                                        std::span<const TensorData> inputs) {
  for (const tensor::Stage& stage : program.stages) {
    for (const auto& [var, extent] : stage.reduce) {
      if (extent == 0)
        return absl::InternalError(absl::StrCat("stage ", stage.out->name, " reduces nothing"));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const ir::Program loops, tensor::LowerToLoops(program));
  std::vector<interpreter::TensorRef> buffers;
  // The interpreter writes only outputs, so the bytes of inputs do not change.
  for (const TensorData& t : inputs)
    buffers.push_back({t.type.dtype, t.type.shape, const_cast<char*>(t.bytes->data())});
  std::vector<std::string> results;
  results.reserve(loops.outputs.size());
  for (const ir::BufferRef& out : loops.outputs) {
    results.emplace_back(static_cast<size_t>(out->SizeBytes()), '\0');
    buffers.push_back({out->dtype, out->shape, results.back().data()});
  }
  // An expression writes every element before it reads one.
  HEDDLE_RETURN_IF_ERROR(interpreter::Interpret(loops, buffers, {.check_uninitialized = false}));
  std::vector<TensorData> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    const ir::Buffer& out = *loops.outputs[i];
    outputs.push_back({{out.dtype, out.shape}, SharedBytes::Of(std::move(results[i]))});
  }
  return outputs;
}

absl::StatusOr<TensorData> EvaluateOp(OpKind kind, const Attrs& attrs,
                                      std::span<const TensorData> inputs) {
  std::vector<TensorType> types;
  for (const TensorData& t : inputs) types.push_back(t.type);
  HEDDLE_ASSIGN_OR_RETURN(const TensorType out, InferType(kind, types, attrs));
  if (NumElements(out) == 0) return TensorData{out, std::make_shared<const std::string>()};
  const OpDef& def = Def(kind);
  if (def.relabels) return TensorData{out, inputs[0].bytes};
  if (def.evaluate) return def.evaluate(inputs, out, OpAttrs(def.attrs, attrs));
  HEDDLE_ASSIGN_OR_RETURN(const tensor::TensorProgram program,
                          ExpressAlone(kind, attrs, types, out));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<TensorData> results, EvaluateProgram(program, inputs));
  return results[0];
}

absl::StatusOr<std::vector<TensorData>> EvaluateGraph(
    const Graph& graph, std::span<const TensorData> inputs,
    const std::function<void(int done, int total)>& progress) {
  if (inputs.size() != graph.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", graph.inputs.size(),
                                                   " inputs, ", inputs.size(), " are given"));
  }
  std::map<ValueId, TensorData> values = graph.constants;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.values[graph.inputs[i]];
    if (inputs[i].type != value.type) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", value.name, "' is ", ToText(value.type), ", not ", ToText(inputs[i].type)));
    }
    values[graph.inputs[i]] = inputs[i];
  }
  const size_t total = graph.nodes.size();
  // Index of the last node that reads it; `total` for outputs of the graph.
  std::map<ValueId, size_t> last_use;
  for (size_t i = 0; i < total; ++i) {
    for (ValueId v : graph.nodes[i].inputs) last_use[v] = i;
  }
  for (ValueId v : graph.outputs) last_use[v] = total;
  for (size_t i = 0; i < total; ++i) {
    const Node& node = graph.nodes[i];
    if (progress) progress(static_cast<int>(i), static_cast<int>(total));
    std::vector<TensorData> operands;
    for (ValueId v : node.inputs) operands.push_back(values.at(v));
    absl::StatusOr<TensorData> result = EvaluateOp(node.kind, node.attrs, operands);
    if (!result.ok()) {
      return absl::Status(result.status().code(),
                          absl::StrCat("node '", node.name, "': ", result.status().message()));
    }
    values[node.outputs[0]] = *std::move(result);
    for (ValueId v : node.inputs) {
      if (last_use[v] == i) values.erase(v);
    }
  }
  if (progress) progress(static_cast<int>(total), static_cast<int>(total));
  std::vector<TensorData> outputs;
  for (ValueId v : graph.outputs) outputs.push_back(values.at(v));
  std::vector<Shape> shapes;
  for (const TensorData& output : outputs) shapes.push_back(output.type.shape);
  for (const OutputLength& l : graph.lengths) {
    int64_t& extent = shapes[l.output][l.axis];
    extent = std::clamp<int64_t>(ToInts(outputs[l.length])[0], 0, extent);
  }
  outputs.resize(graph.NumResults());
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = LeadingPart(outputs[i], shapes[i]);
  return outputs;
}

double EvaluationCost(OpKind kind, const Attrs& attrs, Types inputs) {
  const absl::StatusOr<TensorType> out = InferType(kind, inputs, attrs);
  if (!out.ok()) return INFINITY;
  const OpDef& def = Def(kind);
  if (def.relabels || def.evaluate) return static_cast<double>(NumElements(*out));
  const auto program = ExpressAlone(kind, attrs, inputs, *out);
  if (!program.ok()) return INFINITY;
  double cost = 0;
  for (const tensor::Stage& stage : program->stages) {
    double points = static_cast<double>(stage.out->NumElements()), nodes = 0;
    for (const auto& [var, extent] : stage.reduce) points *= static_cast<double>(extent);
    ir::VisitExpr(stage.value, [&](const ir::Expr&) { ++nodes; });
    cost += points * nodes;
  }
  return cost;
}

}  // namespace heddle::graph
