// The reference result of a model: the interpreter runs one operator at a time.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/core/operator.h"
#include "compiler/interpreter/interpreter.h"
#include "compiler/tensor/expression.h"

namespace heddle {
namespace {

using graph::ValueId;

int64_t Bytes(const graph::TensorType& type) {
  return graph::NumElements(type) * ir::SizeOf(type.dtype);
}

absl::StatusOr<ir::Program> LoopsOf(const graph::Graph& graph, const graph::Node& node) {
  tensor::Builder builder(graph::NameOf(node.kind));
  std::vector<tensor::Tensor> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const graph::TensorType& type = graph.values[node.inputs[i]].type;
    inputs.push_back(builder.Input(absl::StrCat("x", i), type.dtype, type.shape));
  }
  HEDDLE_ASSIGN_OR_RETURN(tensor::Tensor out,
                          graph::Express(node.kind, builder, inputs, node.attrs));
  // An operator that has nothing to do returns its operand, but an output must be the result of a
  // stage.
  const bool is_operand = std::any_of(inputs.begin(), inputs.end(), [&](const tensor::Tensor& in) {
    return in.buffer() == out.buffer();
  });
  if (is_operand) {
    out = builder.Compute("copy", out.shape(), [&](tensor::Iters i) {
      return out.At({i.begin(), i.end()});
    });
  }
  HEDDLE_ASSIGN_OR_RETURN(const tensor::TensorProgram program, builder.Build({out}));
  return tensor::LowerToLoops(program);
}

class ModelInterpreter {
 public:
  explicit ModelInterpreter(const graph::Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (ValueId v : graph.nodes[i].inputs) last_use_[v] = i;
      for (ValueId v : graph.nodes[i].outputs) last_use_.try_emplace(v, i);
    }
    for (ValueId v : graph.outputs) last_use_[v] = graph.nodes.size();
  }

  absl::Status SetInputs(const std::vector<std::string>& inputs) {
    if (inputs.size() != graph_.inputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the model has ", graph_.inputs.size(),
                                                     " inputs, ", inputs.size(), " are given"));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const graph::Value& value = graph_.values[graph_.inputs[i]];
      const int64_t wanted = Bytes(value.type);
      if (static_cast<int64_t>(inputs[i].size()) != wanted) {
        return absl::InvalidArgumentError(absl::StrCat("input '", value.name, "' is ",
                                                       graph::ToText(value.type), " of ", wanted,
                                                       " bytes, ", inputs[i].size(), " are given"));
      }
      memory_[graph_.inputs[i]] = inputs[i];
    }
    return absl::OkStatus();
  }

  absl::Status RunNode(size_t index) {
    const graph::Node& node = graph_.nodes[index];
    HEDDLE_ASSIGN_OR_RETURN(const ir::Program program, LoopsOf(graph_, node));
    if (program.inputs.size() != node.inputs.size() ||
        program.outputs.size() != node.outputs.size()) {
      return absl::InternalError(absl::StrCat("expression of ", graph::NameOf(node.kind),
                                              " has other arguments than node '", node.name, "'"));
    }
    std::vector<interpreter::TensorRef> buffers;
    for (ValueId v : node.inputs) buffers.push_back(Ref(v));
    for (ValueId v : node.outputs) {
      memory_[v].resize(Bytes(graph_.values[v].type));
      buffers.push_back(Ref(v));
    }
    interpreter::InterpreterOptions options;
    options.check_uninitialized = false;  // the tests of operators check that; here speed counts
    const absl::Status status = interpreter::Interpret(program, buffers, options);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("node '", node.name, "': ", status.message()));
    }
    FreeDead(node, index);
    return absl::OkStatus();
  }

  std::string Output(ValueId v) const {
    const auto constant = graph_.constants.find(v);
    return constant != graph_.constants.end() ? *constant->second.bytes : memory_.at(v);
  }

 private:
  // The interpreter writes only outputs, so the bytes of a constant do not change.
  interpreter::TensorRef Ref(ValueId v) {
    const graph::TensorType& type = graph_.values[v].type;
    const auto constant = graph_.constants.find(v);
    const std::string& bytes =
        constant != graph_.constants.end() ? *constant->second.bytes : memory_.at(v);
    return {type.dtype, type.shape, const_cast<char*>(bytes.data())};
  }

  void FreeDead(const graph::Node& node, size_t index) {
    for (const auto* values : {&node.inputs, &node.outputs}) {
      for (ValueId v : *values) {
        if (last_use_.at(v) == index) memory_.erase(v);
      }
    }
  }

  const graph::Graph& graph_;
  std::map<ValueId, size_t>
      last_use_;  // index of the node; one past the last for the model's outputs
  std::map<ValueId, std::string> memory_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> InterpretModel(
    std::string_view onnx, const ModelOptions& options, const std::vector<std::string>& inputs,
    const std::function<void(int done, int total)>& progress) {
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, graph::ImportOnnx(onnx, options.import));
  ModelInterpreter interpreter(graph);
  HEDDLE_RETURN_IF_ERROR(interpreter.SetInputs(inputs));
  const int total = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < total; ++i) {
    if (progress) progress(i, total);
    HEDDLE_RETURN_IF_ERROR(interpreter.RunNode(i));
  }
  if (progress) progress(total, total);
  std::vector<std::string> outputs;
  for (ValueId v : graph.outputs) outputs.push_back(interpreter.Output(v));
  return outputs;
}

}  // namespace heddle
