#include "compiler/onnx/labels.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// The strings out of which a node gives some as its first result, from its attributes; empty if it gives none.
std::vector<std::string> ListOf(const NodeProto& node) {
  if (node.domain() != onnx::kMlDomain) return {};
  const auto strings = [&](std::string_view list) -> std::vector<std::string> {
    for (const onnx::AttributeProto& a : node.attribute()) {
      if (a.name() != list) continue;
      if (a.strings_size() > 0) return {a.strings().begin(), a.strings().end()};
      if (a.t().data_type() == TensorProto::STRING)
        return {a.t().string_data().begin(), a.t().string_data().end()};
    }
    return {};
  };
  const std::string& op = node.op_type();
  if (op == "LinearClassifier" || op == "SVMClassifier" || op == "TreeEnsembleClassifier")
    return strings("classlabels_strings");
  // Of these two, those that turn strings of inputs into numbers are other nodes by now (strings.h).
  if (op == "CategoryMapper") return strings("cats_strings");
  if (op != "LabelEncoder") return {};
  for (const char* list : {"classes_strings", "values_strings", "values_tensor"}) {
    if (std::vector<std::string> found = strings(list); !found.empty()) return found;
  }
  return {};
}

// Whether the node maps numbers to strings, or strings to numbers, by one list: which of both, its operand says.
bool MapsStrings(const NodeProto& node) {
  return node.domain() == onnx::kMlDomain &&
         (node.op_type() == "CategoryMapper" ||
          (node.op_type() == "LabelEncoder" &&
           std::any_of(node.attribute().begin(), node.attribute().end(),
                       [](const auto& a) { return a.name() == "classes_strings"; })));
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
StringLists Lists(const onnx::GraphProto& graph) {
  StringLists lists;
  std::set<std::string> others;
  for (const TensorProto& t : graph.initializer()) {
    if (t.data_type() == TensorProto::STRING)
      lists[t.name()] = std::make_shared<const std::vector<std::string>>(t.string_data().begin(),
                                                                         t.string_data().end());
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

StringLists NumberLabels(Model& model, Problems& problems) {
  onnx::GraphProto& graph = model.mutable_graph();
  StringLists lists = Lists(graph);
  for (TensorProto& t : *graph.mutable_initializer()) {
    if (lists.count(t.name())) Number(t);
  }
  for (const NodeProto& node : graph.node()) {
    if (node.output_size() == 0) continue;
    const bool moves = Moves(node) && node.input_size() > 0;
    const auto moved = moves ? lists.find(node.input(0)) : lists.end();
    if (MapsStrings(node) && node.input_size() > 0 && lists.count(node.input(0)))
      problems.Unsupported(node, model.Opset(node), "labels that the model gives");
    if (moved != lists.end()) {
      const StringList list = moved->second;
      lists[node.output(0)] = list;
    } else if (std::vector<std::string> list = ListOf(node); !list.empty()) {
      lists[node.output(0)] = std::make_shared<const std::vector<std::string>>(std::move(list));
    }
  }
  for (auto* values : {graph.mutable_output(), graph.mutable_value_info()}) {
    for (onnx::ValueInfoProto& info : *values) {
      if (lists.count(info.name()) && info.type().tensor_type().elem_type() == TensorProto::STRING)
        info.mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::INT64);
    }
  }
  return lists;
}

}  // namespace heddle::graph
