#include "compiler/onnx/labels.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// Whether a node gives strings out of a list in its attributes, as its first result.
bool GivesLabels(const NodeProto& node) {
  if (node.domain() != onnx::kMlDomain) return false;
  const std::string& op = node.op_type();
  const auto has_strings = [&](std::string_view list) {
    return std::any_of(node.attribute().begin(), node.attribute().end(), [&](const auto& a) {
      return a.name() == list && (a.strings_size() > 0 || a.t().data_type() == TensorProto::STRING);
    });
  };
  if (op == "LinearClassifier" || op == "SVMClassifier" || op == "TreeEnsembleClassifier")
    return has_strings("classlabels_strings");
  // These two also turn strings into numbers; then the result is int64 as it is.
  if (op == "CategoryMapper") return has_strings("cats_strings");
  return op == "LabelEncoder" && (has_strings("classes_strings") || has_strings("values_strings") ||
                                  has_strings("values_tensor"));
}

// Whether the node picks elements of its first operand by its second one.
bool Picks(const NodeProto& node) {
  return onnx::OperatorKey(node) == "Gather" ||
         onnx::OperatorKey(node) == "ai.onnx.ml.ArrayFeatureExtractor";
}

// Whether the elements of the first result are elements of the first operand.
bool Moves(const NodeProto& node) {
  static const auto* ops = new std::set<std::string_view>{
      "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Expand"};
  return Picks(node) || (onnx::IsStandard(node.domain()) && ops->count(node.op_type()) > 0);
}

// The initializers of strings that nodes only pick from.
std::set<std::string> Lists(const onnx::GraphProto& graph) {
  std::set<std::string> lists, others;
  for (const TensorProto& t : graph.initializer()) {
    if (t.data_type() == TensorProto::STRING) lists.insert(t.name());
  }
  for (const onnx::ValueInfoProto& output : graph.output()) others.insert(output.name());
  ForEachNode(graph.node(), [&](const NodeProto& node) {
    for (int i = 0; i < node.input_size(); ++i) {
      if (i > 0 || !Picks(node)) others.insert(node.input(i));
    }
  });
  for (const std::string& name : others) lists.erase(name);
  return lists;
}

void Number(TensorProto& list) {
  const int64_t count = list.string_data_size();
  list.clear_string_data();
  list.set_data_type(TensorProto::INT64);
  for (int64_t i = 0; i < count; ++i) list.add_int64_data(i);
}

}  // namespace

void NumberLabels(Model& model) {
  onnx::GraphProto& graph = model.mutable_graph();
  std::set<std::string> labels = Lists(graph);
  for (TensorProto& t : *graph.mutable_initializer()) {
    if (labels.count(t.name())) Number(t);
  }
  for (const NodeProto& node : graph.node()) {
    const bool moved = Moves(node) && node.input_size() > 0 && labels.count(node.input(0)) > 0;
    if (node.output_size() > 0 && (moved || GivesLabels(node))) labels.insert(node.output(0));
  }
  for (auto* values : {graph.mutable_output(), graph.mutable_value_info()}) {
    for (onnx::ValueInfoProto& info : *values) {
      if (labels.count(info.name()) && info.type().tensor_type().elem_type() == TensorProto::STRING)
        info.mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::INT64);
    }
  }
}

}  // namespace heddle::graph
