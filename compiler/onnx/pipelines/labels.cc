#include "compiler/onnx/pipelines/labels.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
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

// Whether the node is an encoder that may read strings. Some read numbers, with the same attributes.
bool MayReadStrings(const NodeProto& node) {
  if (node.domain() != onnx::kMlDomain) return false;
  for (const char* keys : {"cats_strings", "classes_strings", "keys_strings", "keys_tensor"}) {
    if (FindAttribute(node, keys) != nullptr) return true;
  }
  return false;
}

// Gives the node an attribute that is a list of integers. One of the same name is replaced.
void SetInts(NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  DropAttribute(node, name);
  MakeInts(*node.add_attribute(), name, values);
}

// A list out of which a value has strings, and what stands for place -1, the default of an encoder.
struct Strings {
  const std::vector<std::string>& list;
  const std::string* fallback;  // null: there is no default
};

// The places at which a string stands, last ones last.
std::vector<int64_t> PlacesOf(const Strings& strings, const std::string& text) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < strings.list.size(); ++i) {
    if (strings.list[i] == text) places.push_back(static_cast<int64_t>(i));
  }
  if (strings.fallback != nullptr && *strings.fallback == text) places.push_back(-1);
  return places;
}

constexpr int64_t kNoPlace = -2;

// Makes a OneHotEncoder of strings one of their places. False: a category stands at several places.
bool EncodePlaces(const Strings& strings, NodeProto& node) {
  const onnx::AttributeProto* categories = FindAttribute(std::as_const(node), "cats_strings");
  std::vector<int64_t> places;
  for (const std::string& category : categories->strings()) {
    const std::vector<int64_t> found = PlacesOf(strings, category);
    if (found.size() > 1) return false;
    // No element has these.
    places.push_back(found.empty() ? kNoPlace - static_cast<int64_t>(places.size()) : found[0]);
  }
  DropAttribute(node, "cats_strings");
  SetInts(node, "cats_int64s", places);
  return true;
}

// Makes an encoder that looks up strings a LabelEncoder that looks up their places. False: its keys are a tensor, or its values are.
bool LookUpPlaces(const Strings& strings, NodeProto& node) {
  const auto* keys = FindAttribute(std::as_const(node), "keys_strings");
  const bool maps = keys == nullptr;  // a CategoryMapper, or a LabelEncoder of opset 1
  for (const char* name : {"cats_strings", "classes_strings"}) {
    if (keys == nullptr) keys = FindAttribute(std::as_const(node), name);
  }
  if (keys == nullptr) return false;
  std::vector<int64_t> places, of;  // the place of a string, and that of its value
  for (int k = 0; k < keys->strings_size(); ++k) {
    for (const int64_t place : PlacesOf(strings, keys->strings(k))) {
      places.push_back(place);
      of.push_back(k);
    }
  }
  if (places.empty() && keys->strings_size() > 0) places.push_back(kNoPlace), of.push_back(0);
  const auto picked = [&](const auto& values) {
    std::vector<std::decay_t<decltype(values[0])>> out;
    for (const int64_t k : of) {
      if (k < values.size()) out.push_back(values[static_cast<int>(k)]);
    }
    return out;
  };
  const char* ints = maps ? "cats_int64s" : "values_int64s";
  if (auto* a = FindAttribute(node, ints); a != nullptr) {
    SetInts(node, "values_int64s", picked(a->ints()));
  } else if (auto* b = FindAttribute(node, "values_floats"); b != nullptr) {
    const std::vector<float> values = picked(b->floats());
    b->clear_floats();
    for (const float value : values) b->add_floats(value);
  } else if (node.op_type() == "LabelEncoder" &&
             (FindAttribute(node, "classes_strings") || FindAttribute(node, "values_strings"))) {
    SetInts(node, "values_int64s", of);  // strings are their places, and -1 for the default
    DropAttribute(node, "values_strings");
    if (!maps) DropAttribute(node, "default_int64");
  } else {
    return false;
  }
  for (const char* name : {"cats_strings", "cats_int64s", "classes_strings", "keys_strings"})
    DropAttribute(node, name);
  DropAttribute(node, "default_string");
  SetInts(node, "keys_int64s", places);
  if (maps) node.set_opset(2);  // which has keys and values in two lists
  node.set_op_type("LabelEncoder");
  return true;
}

// What an encoder gives instead of a string of its list.
std::string DefaultOf(const NodeProto& node) {
  const onnx::AttributeProto* a = FindAttribute(node, "default_string");
  return a == nullptr ? "_Unused" : a->s();
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
StringLists ListsOf(const onnx::GraphProto& graph) {
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

void NumberStrings(TensorProto& list) {
  const int64_t count = list.string_data_size();
  list.clear_string_data();
  list.set_data_type(TensorProto::INT64);
  for (int64_t i = 0; i < count; ++i) list.add_int64_data(i);
}

}  // namespace

StringLists NumberLabels(Model& model, Problems& problems) {
  onnx::GraphProto& graph = model.mutable_graph();
  StringLists lists = ListsOf(graph);
  for (TensorProto& t : *graph.mutable_initializer()) {
    if (lists.count(t.name())) NumberStrings(t);
  }
  std::map<std::string, std::string> defaults;  // of encoders, by the name of a value
  for (NodeProto& node : *graph.mutable_node()) {
    if (node.output_size() == 0) continue;
    const auto read = node.input_size() == 0 ? lists.end() : lists.find(node.input(0));
    const auto fallback = node.input_size() == 0 ? defaults.end() : defaults.find(node.input(0));
    if (const StringList moved = MovedList(node, lists); moved != nullptr) {
      for (const std::string& output : node.output()) {
        if (output.empty()) continue;
        lists[output] = moved;
        if (fallback != defaults.end()) defaults[output] = fallback->second;
      }
      continue;
    }
    std::vector<std::string> list = ListOf(node);
    const std::string own_default = DefaultOf(node);
    if (read != lists.end() && MayReadStrings(node)) {
      const Strings strings{*read->second,
                            fallback == defaults.end() ? nullptr : &fallback->second};
      // A CategoryMapper, or a LabelEncoder of opset 1, makes numbers of strings.
      if (FindAttribute(node, "values_strings") == nullptr) list.clear();
      const bool one_hot = node.op_type() == "OneHotEncoder";
      if (!(one_hot ? EncodePlaces(strings, node) : LookUpPlaces(strings, node)))
        problems.Unsupported(node, model.Opset(node),
                             "strings that the model gives, with keys or values in a tensor, or a "
                             "category that has two labels");
    }
    if (list.empty()) continue;
    if (node.op_type() == "LabelEncoder" || node.op_type() == "CategoryMapper")
      defaults[node.output(0)] = own_default;
    lists[node.output(0)] = std::make_shared<const std::vector<std::string>>(std::move(list));
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
