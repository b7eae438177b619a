#include "compiler/onnx/labels.h"

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
    const onnx::AttributeProto* a = FindAttribute(node, list);
    if (a == nullptr) return {};
    if (a->strings_size() > 0) return {a->strings().begin(), a->strings().end()};
    if (a->t().data_type() != TensorProto::STRING) return {};
    return {a->t().string_data().begin(), a->t().string_data().end()};
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
          (node.op_type() == "LabelEncoder" && FindAttribute(node, "classes_strings") != nullptr));
}

// Whether the node picks elements of its first operand by its second one.
bool Picks(const NodeProto& node) {
  return onnx::OperatorKey(node) == "Gather" ||
         onnx::OperatorKey(node) == "ai.onnx.ml.ArrayFeatureExtractor";
}

// The list of which a node moves elements; null if there is none. Elements of two lists have no list in common.
StringList MovedList(const NodeProto& node, const StringLists& lists) {
  if (!MovesElements(node) || node.input_size() == 0) return nullptr;
  const auto first = lists.find(node.input(0));
  if (first == lists.end()) return nullptr;
  if (node.op_type() != "Concat") return first->second;
  for (const std::string& input : node.input()) {
    const auto other = lists.find(input);
    if (other == lists.end() || *other->second != *first->second) return nullptr;
  }
  return first->second;
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
    if (MapsStrings(node) && node.input_size() > 0 && lists.count(node.input(0)))
      problems.Unsupported(node, model.Opset(node), "labels that the model gives");
    if (const StringList moved = MovedList(node, lists); moved != nullptr) {
      for (const std::string& output : node.output()) {
        if (!output.empty()) lists[output] = moved;
      }
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
