#include "compiler/onnx/pipelines/maps.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::AttributeProto;
using onnx::NodeProto;
using onnx::TensorProto;

constexpr int64_t kMostColumns = int64_t{1} << 16;
constexpr int kAnyOpset = 13;  // that has Identity and Cast

int64_t IntOf(const NodeProto& node, std::string_view name, int64_t fallback) {
  const AttributeProto* a = FindAttribute(node, name);
  return a == nullptr ? fallback : a->i();
}

std::string TextOf(const NodeProto& node, std::string_view name, const std::string& fallback) {
  const AttributeProto* a = FindAttribute(node, name);
  return a == nullptr ? fallback : a->s();
}

// The keys that a node looks up in maps with keys of this type. Empty: it does not look up keys that are known.
std::vector<std::string> KeysOf(const NodeProto& node, int key_type) {
  std::vector<std::string> keys;
  const std::string op = onnx::OperatorKey(node);
  if (op == "ai.onnx.ml.DictVectorizer") {
    const bool strings = key_type == TensorProto::STRING;
    const AttributeProto* list =
        FindAttribute(node, strings ? "string_vocabulary" : "int64_vocabulary");
    if (list == nullptr) return {};
    keys.assign(list->strings().begin(), list->strings().end());
    for (const int64_t key : list->ints()) keys.push_back(absl::StrCat(key));
  } else if (op == "ai.onnx.ml.CastMap" && key_type == TensorProto::INT64 &&
             TextOf(node, "map_form", "DENSE") == "SPARSE") {
    const int64_t count = IntOf(node, "max_map", 1);
    for (int64_t key = 0; key < count && count <= kMostColumns; ++key)
      keys.push_back(absl::StrCat(key));
  }
  const bool distinct = std::set<std::string>(keys.begin(), keys.end()).size() == keys.size();
  return distinct && static_cast<int64_t>(keys.size()) <= kMostColumns ? keys
                                                                       : std::vector<std::string>();
}

// The element type to which a node casts the values of its map; nullopt: to strings.
std::optional<int> CastOf(const NodeProto& node, int value_type) {
  if (node.op_type() != "CastMap") return value_type;
  const std::string to = TextOf(node, "cast_to", "TO_FLOAT");
  if (to == "TO_FLOAT") return TensorProto::FLOAT;
  return to == "TO_INT64" ? std::optional<int>(TensorProto::INT64) : std::nullopt;
}

// The node gives out a table, in this element type.
void MakeCast(NodeProto& node, int to) {
  node.set_op_type("Cast");
  node.clear_domain();
  node.set_opset(kAnyOpset);
  node.clear_attribute();
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("to");
  attribute.set_type(AttributeProto::INT);
  attribute.set_i(to);
}

class Taker {
 public:
  explicit Taker(onnx::GraphProto& graph) : graph_(graph) {
    for (const TensorProto& t : graph.initializer()) constants_.insert(t.name());
    for (const auto& output : graph.output()) others_.insert(output.name());
    for (const NodeProto& node : graph.node()) {
      others_.insert(node.input().begin() + std::min(node.input_size(), 1), node.input().end());
      ForEachSubgraph(node, [&](const onnx::GraphProto& body) { others_.merge(NamesRead(body)); });
    }
  }

  MapColumns Run() {
    MapColumns taken;
    for (onnx::ValueInfoProto& input : *graph_.mutable_input()) {
      if (!input.type().has_map_type() || others_.contains(input.name())) continue;
      std::vector<std::string> keys = Take(input);
      if (!keys.empty()) taken[input.name()] = std::move(keys);
    }
    return taken;
  }

 private:
  // The keys of an input that has become a table; empty if it stays.
  std::vector<std::string> Take(onnx::ValueInfoProto& input) {
    const onnx::TypeProto::Map& map = input.type().map_type();
    const int value = map.value_type().tensor_type().elem_type();
    if (!FromOnnxType(value).ok()) return {};
    std::vector<std::string> keys;
    std::vector<NodeProto*> readers;
    for (NodeProto& node : *graph_.mutable_node()) {
      if (node.input_size() == 0 || node.input(0) != input.name()) continue;
      std::vector<std::string> of_node = KeysOf(node, map.key_type());
      if (of_node.empty() || (!keys.empty() && of_node != keys) || !CastOf(node, value)) return {};
      keys = std::move(of_node);
      readers.push_back(&node);
    }
    if (keys.empty()) return {};
    for (NodeProto* node : readers) MakeCast(*node, *CastOf(*node, value));
    onnx::TypeProto::Tensor& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(value);
    *type.mutable_shape()->add_dim() = Rows();
    type.mutable_shape()->add_dim()->set_dim_value(static_cast<int64_t>(keys.size()));
    return keys;
  }

  onnx::TensorShapeProto::Dimension Rows() const {
    for (const onnx::ValueInfoProto& input : graph_.input()) {
      const auto& dims = input.type().tensor_type().shape().dim();
      if (!constants_.contains(input.name()) && !dims.empty()) return dims[0];
    }
    return {};
  }

  onnx::GraphProto& graph_;
  std::set<std::string> constants_,
      others_;  // initializers; what is read as anything but a first operand
};

}  // namespace

MapColumns TakeMaps(onnx::GraphProto& graph) { return Taker(graph).Run(); }

}  // namespace heddle::graph
