#include "compiler/onnx/pipelines/strings.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/tensor_data.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::AttributeProto;
using onnx::NodeProto;
using onnx::TensorProto;
using onnx::ValueInfoProto;

constexpr size_t kMostKeyBytes = 4096;  // of one key
constexpr int64_t kMostTableBytes = int64_t{1}
                                    << 26;  // of the keys of one input, each as wide as the longest
// Entries of all sets and maps of the Coder: with many inputs and many keys, a small file could ask for their product.
constexpr size_t kMostEntries = size_t{1} << 21;
constexpr const char* kWayOut =
    "; strings may be moved about and read by OneHotEncoder, LabelEncoder and CategoryMapper; "
    "encode them as numbers before the "
    "model";

bool IsString(const ValueInfoProto& info) {
  return info.type().tensor_type().elem_type() == TensorProto::STRING;
}

void DeclareCodes(ValueInfoProto& info) {
  info.mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::INT64);
}

class Coder {
 public:
  Coder(Model& model, Problems& problems) : model_(model), problems_(problems) {}

  StringInputs Run() {
    onnx::GraphProto& graph = model_.mutable_graph();
    std::set<std::string> constants;
    for (const TensorProto& t : graph.initializer()) constants.insert(t.name());
    for (ValueInfoProto& input : *graph.mutable_input()) {
      if (!IsString(input) || constants.count(input.name())) continue;
      sources_[input.name()] = {input.name()};
      // No text is empty but "", so every input has a key.
      inputs_[input.name()].codes[""] = CodeOf("");
    }
    if (inputs_.empty()) return {};
    for (NodeProto& node : *graph.mutable_node()) Visit(node);
    for (const ValueInfoProto& output : graph.output()) {
      if (sources_.count(output.name()))
        Refuse(absl::StrCat("output '", output.name(),
                            "', which has strings of an input; give out numbers"));
    }
    for (const auto& [name, keys] : inputs_) {
      if (static_cast<int64_t>(keys.codes.size()) > kMostTableBytes / keys.Width())
        Refuse(absl::StrCat("input '", name, "' of strings with ", keys.codes.size(),
                            " keys of up to ", keys.Width() - 1,
                            " bytes; encode them as numbers before the model"));
    }
    if (refused_) {
      for (auto& [node, before] : changed_) *node = std::move(before);
      return {};
    }
    for (auto* values :
         {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
      for (ValueInfoProto& info : *values) {
        if (sources_.count(info.name()) && IsString(info)) DeclareCodes(info);
      }
    }
    return std::move(inputs_);
  }

 private:
  int64_t CodeOf(const std::string& key) {
    return codes_.try_emplace(key, static_cast<int64_t>(codes_.size())).first->second;
  }

  void Refuse(const std::string& what) {
    problems_.Unsupported(what);
    refused_ = true;
  }
  void Refuse(const NodeProto& node, const std::string& what) {
    problems_.Unsupported(node, model_.Opset(node), absl::StrCat(what, kWayOut));
    refused_ = true;
  }

  // Counts new entries. False: there are too many, and the node is refused.
  bool Afford(const NodeProto& node, size_t entries) {
    entries_ += entries;
    if (entries_ <= kMostEntries) return true;
    Refuse(node, "strings of too many inputs, or compared with too many keys");
    return false;
  }

  // The inputs whose strings are elements of a value; null if it has none.
  const std::set<std::string>* SourcesOf(const std::string& value) const {
    const auto found = sources_.find(value);
    return found == sources_.end() ? nullptr : &found->second;
  }

  void Visit(NodeProto& node) {
    bool in_subgraph = false;
    ForEachSubgraph(std::as_const(node), [&](const onnx::GraphProto& g) {
      for (const std::string& name : NamesRead(g)) in_subgraph |= SourcesOf(name) != nullptr;
    });
    if (in_subgraph) Refuse(node, "strings in a branch or loop");
    const auto reads = std::count_if(node.input().begin(), node.input().end(),
                                     [&](const std::string& name) { return SourcesOf(name); });
    if (reads == 0) return;
    const bool all = node.op_type() == "Concat" && onnx::IsStandard(node.domain());
    const bool in_front = SourcesOf(node.input(0)) != nullptr;
    const bool fits = all ? reads == node.input_size() : in_front && reads == 1;
    NodeProto before = node;
    const bool encodes = fits && Encode(node), moves = fits && !encodes && Moves(node);
    changed_.emplace_back(&node, std::move(before));
    if (encodes) return;
    if (!moves) {
      refused_ = true;  // the checker reports operators without a translation
      if (FindTranslation(node) != nullptr) Refuse(changed_.back().second, "strings of an input");
      return;
    }
    std::set<std::string> sources;
    for (const std::string& input : node.input()) {
      const auto* of = SourcesOf(input);
      if (of == nullptr) continue;
      if (!Afford(node, of->size())) return;
      sources.insert(of->begin(), of->end());
    }
    if (!Afford(node, sources.size() * static_cast<size_t>(node.output_size()))) return;
    for (const std::string& output : node.output()) {
      if (!output.empty()) sources_[output] = sources;
    }
  }

  // Whether the results consist of elements of the operands. A cast of strings to strings is an identity from now on.
  static bool Moves(NodeProto& node) {
    if (onnx::OperatorKey(node) != "Cast") return MovesElements(node);
    const AttributeProto* to = FindAttribute(node, "to");
    if (to == nullptr || to->i() != TensorProto::STRING) return false;
    node.set_op_type("Identity");
    node.clear_attribute();
    return true;
  }

  // Whether the node is an encoder of strings, which then is one of their codes.
  bool Encode(NodeProto& node) {
    if (node.domain() != onnx::kMlDomain) return false;
    const std::string& op = node.op_type();
    if (op == "OneHotEncoder") return EncodeKeys(node, "cats_strings", "cats_int64s");
    if (op == "CategoryMapper") {
      AttributeProto* values = FindAttribute(node, "cats_int64s");
      if (values == nullptr || !EncodeKeys(node, "cats_strings", "keys_int64s")) return false;
      values->set_name("values_int64s");
      return MakeLabelEncoder(node);
    }
    if (op != "LabelEncoder") return false;
    if (AttributeProto* tensor = FindAttribute(node, "keys_tensor"); tensor != nullptr) {
      TensorProto& keys = *tensor->mutable_t();
      if (keys.data_type() != TensorProto::STRING) return false;
      const std::vector<int64_t> codes =
          Codes(node, {keys.string_data().begin(), keys.string_data().end()});
      keys.clear_string_data();
      keys.set_data_type(TensorProto::INT64);
      for (const int64_t code : codes) keys.add_int64_data(code);
      return true;
    }
    if (AttributeProto* classes = FindAttribute(node, "classes_strings"); classes != nullptr) {
      std::vector<int64_t> places;
      for (int i = 0; i < classes->strings_size(); ++i) places.push_back(i);
      EncodeKeys(node, "classes_strings", "keys_int64s");
      MakeInts(*node.add_attribute(), "values_int64s", places);
      return MakeLabelEncoder(node);
    }
    return EncodeKeys(node, "keys_strings", "keys_int64s");
  }

  // As of opset 2, where keys and values are two lists.
  static bool MakeLabelEncoder(NodeProto& node) {
    node.set_op_type("LabelEncoder");
    node.set_opset(2);
    DropAttribute(node, "default_string");
    return true;
  }

  // Replaces the list `strings` of a node by a list of codes. False if it has no such list.
  bool EncodeKeys(NodeProto& node, std::string_view strings, const std::string& integers) {
    AttributeProto* list = FindAttribute(node, strings);
    if (list == nullptr || list->strings_size() == 0) return false;
    MakeInts(*list, integers, Codes(node, {list->strings().begin(), list->strings().end()}));
    return true;
  }

  // The codes of the keys with which a node compares its operand.
  std::vector<int64_t> Codes(const NodeProto& node, const std::vector<std::string>& keys) {
    std::vector<int64_t> codes;
    for (const std::string& key : keys) {
      codes.push_back(CodeOf(key));
      if (key.size() > kMostKeyBytes || key.find('\0') != std::string::npos) {
        Refuse(node, absl::StrCat("a key of ", key.size(), " bytes, or with a zero byte"));
        return codes;
      }
      const std::set<std::string>& sources = *SourcesOf(node.input(0));
      if (!Afford(node, sources.size())) return codes;
      for (const std::string& input : sources) inputs_[input].codes[key] = codes.back();
    }
    return codes;
  }

  Model& model_;
  Problems& problems_;
  std::map<std::string, int64_t> codes_;
  StringInputs inputs_;
  std::map<std::string, std::set<std::string>>
      sources_;  // inputs, by the name of a value with their strings
  bool refused_ = false;
  size_t entries_ = 0;
  std::vector<std::pair<NodeProto*, NodeProto>> changed_;  // nodes, and what they were
};

}  // namespace

int64_t StringKeys::Width() const {
  size_t longest = 0;
  for (const auto& [key, code] : codes) longest = std::max(longest, key.size());
  return static_cast<int64_t>(longest) + 1;
}

StringInputs CodeStrings(Model& model, Problems& problems) { return Coder(model, problems).Run(); }

absl::StatusOr<ValueId> EmitCodes(GraphBuilder& out, ValueId bytes, const StringKeys& keys) {
  Shape shape = out.Type(bytes).shape;
  const int64_t width = shape.back(), count = static_cast<int64_t>(keys.codes.size());
  const int64_t elements = NumElements(out.Type(bytes));
  if (static_cast<double>(elements) * static_cast<double>(count) > kMostComparisons) {
    return absl::UnimplementedError(absl::StrCat(
        "comparing ", elements / width, " texts with ", count, " keys of up to ", width - 1,
        " bytes; give fewer rows, or encode the texts as numbers before the model"));
  }
  std::string table;
  std::vector<int64_t> codes;
  for (const auto& [key, code] : keys.codes) {
    table += key;
    table.resize((codes.size() + 1) * static_cast<size_t>(width), '\0');
    codes.push_back(code);
  }
  shape.insert(shape.end() - 1, 1);
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  const std::string name = out.Name(bytes);
  const auto named = [&](const char* what) { return absl::StrCat(name, "_", what); };
  const ValueId all = out.Constant(
      named("keys"), {{ir::DType::kU8, {count, width}}, SharedBytes::Of(std::move(table))});
  const ValueId code = out.Constant(named("key_codes"), FromInts(codes));
  const ValueId none = out.Constant(named("no_code"), Filled({ir::DType::kI64, {}}, -1));
  const auto over = [](int64_t axis) {
    return Attrs{{"axes", Shape{axis}}, {"keepdims", int64_t{0}}};
  };
  const auto to = [](const char* type) { return Attrs{{"to", std::string(type)}}; };
  HEDDLE_ASSIGN_OR_RETURN(ValueId v,
                          out.Add(OpKind::kReshape, {bytes}, {{"shape", shape}}, named("texts")));
  HEDDLE_ASSIGN_OR_RETURN(v, out.Add(OpKind::kEqual, {v, all}, {}, named("equal_bytes")));
  HEDDLE_ASSIGN_OR_RETURN(v, out.Add(OpKind::kCast, {v}, to("u8"), named("equal_numbers")));
  HEDDLE_ASSIGN_OR_RETURN(v, out.Add(OpKind::kReduceMin, {v}, over(last), named("equal_texts")));
  HEDDLE_ASSIGN_OR_RETURN(v, out.Add(OpKind::kCast, {v}, to("bool"), named("equal")));
  HEDDLE_ASSIGN_OR_RETURN(v, out.Add(OpKind::kWhere, {v, code, none}, {}, named("found")));
  return out.Add(OpKind::kReduceMax, {v}, over(last - 1), named("codes"));
}

}  // namespace heddle::graph
