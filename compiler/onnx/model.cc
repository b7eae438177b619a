#include "compiler/onnx/model.h"

#include <algorithm>
#include <climits>

#include "absl/strings/str_cat.h"
#include "compiler/onnx/pipelines/maps.h"
#include "compiler/onnx/random.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

absl::Status Refused(const std::string& what) { return absl::InvalidArgumentError(what); }

bool IsOfTables(const onnx::ModelProto& model) {
  const auto& nodes = model.graph().node();
  return model.producer_name() == "skl2onnx" ||
         std::any_of(nodes.begin(), nodes.end(),
                     [](const onnx::NodeProto& node) { return node.domain() == onnx::kMlDomain; });
}

// Tools leave the rows of a pipeline's inputs without a number and without a name.
void NameRows(onnx::GraphProto& graph) {
  for (onnx::ValueInfoProto& input : *graph.mutable_input()) {
    if (input.type().tensor_type().shape().dim_size() == 0) continue;
    auto& rows = *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0);
    const bool fixed = rows.has_dim_value() && rows.dim_value() >= 0;
    if (!fixed && rows.dim_param().empty()) rows.set_dim_param("rows");
  }
}

}  // namespace

void ForEachSubgraph(const onnx::NodeProto& node,
                     absl::FunctionRef<void(const onnx::GraphProto&)> visit) {
  for (const onnx::AttributeProto& a : node.attribute()) {
    if (a.has_g()) visit(a.g());
    for (const onnx::GraphProto& g : a.graphs()) visit(g);
  }
}

void ForEachSubgraph(onnx::NodeProto& node, absl::FunctionRef<void(onnx::GraphProto&)> visit) {
  for (onnx::AttributeProto& a : *node.mutable_attribute()) {
    if (a.has_g()) visit(*a.mutable_g());
    for (onnx::GraphProto& g : *a.mutable_graphs()) visit(g);
  }
}

void ForEachNode(const Nodes& nodes, absl::FunctionRef<void(const onnx::NodeProto&)> visit) {
  for (const onnx::NodeProto& node : nodes) {
    visit(node);
    ForEachSubgraph(node, [&](const onnx::GraphProto& g) { ForEachNode(g.node(), visit); });
  }
}

const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node, std::string_view name) {
  for (const onnx::AttributeProto& a : node.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

onnx::AttributeProto* FindAttribute(onnx::NodeProto& node, std::string_view name) {
  for (onnx::AttributeProto& a : *node.mutable_attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

void DropAttribute(onnx::NodeProto& node, std::string_view name) {
  auto& attributes = *node.mutable_attribute();
  attributes.erase(std::remove_if(attributes.begin(), attributes.end(),
                                  [&](const onnx::AttributeProto& a) { return a.name() == name; }),
                   attributes.end());
}

void MakeInts(onnx::AttributeProto& a, const std::string& name,
              const std::vector<int64_t>& values) {
  a.Clear();
  a.set_name(name);
  a.set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) a.add_ints(value);
}

bool MovesElements(const onnx::NodeProto& node) {
  static const auto* ops = new std::set<std::string_view>{
      "Concat", "Expand", "Flatten", "Gather", "Identity",  "Reshape",
      "Slice",  "Split",  "Squeeze", "Tile",   "Transpose", "Unsqueeze"};
  if (onnx::IsStandard(node.domain())) return ops->count(node.op_type()) > 0;
  return onnx::OperatorKey(node) == "ai.onnx.ml.ArrayFeatureExtractor";
}

std::set<std::string> NamesRead(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  const auto outputs = [&](const onnx::GraphProto& g) {
    for (const onnx::ValueInfoProto& output : g.output()) names.insert(output.name());
  };
  outputs(graph);
  ForEachNode(graph.node(), [&](const onnx::NodeProto& node) {
    names.insert(node.input().begin(), node.input().end());
    ForEachSubgraph(node, outputs);
  });
  return names;
}

absl::StatusOr<Model> Model::Parse(std::string_view bytes) {
  if (bytes.empty()) return Refused("the model is empty");
  if (bytes.size() > INT_MAX)
    return Refused("the model is larger than 2 GiB, which ONNX files cannot be");
  Model model;
  if (!model.proto_.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Refused(
        absl::StrCat("not an ONNX model, or a truncated one (", bytes.size(), " bytes)"));
  }
  const onnx::ModelProto& m = model.proto_;
  if (!m.has_ir_version() || !m.has_graph() || m.graph().output_size() == 0)
    return Refused(absl::StrCat("not an ONNX model (", bytes.size(), " bytes without a graph)"));
  bool marked = false;
  const auto look = [&](const onnx::NodeProto& node) { marked |= node.has_opset(); };
  ForEachNode(m.graph().node(), look);
  for (const onnx::FunctionProto& f : m.functions()) ForEachNode(f.node(), look);
  if (marked) return Refused("not an ONNX model: a node has a field that no version of ONNX has");
  model.seed_input_ = AddSeedInput(model.proto_);
  model.of_tables_ = IsOfTables(m);
  if (model.of_tables_) {
    model.map_columns_ = TakeMaps(*model.proto_.mutable_graph());
    NameRows(*model.proto_.mutable_graph());
  }
  return model;
}

int Model::Opset(std::string_view domain) const {
  for (const auto& opset : proto_.opset_import()) {
    if (opset.domain() == domain || (onnx::IsStandard(domain) && onnx::IsStandard(opset.domain())))
      return static_cast<int>(std::clamp<int64_t>(opset.version(), 0, INT_MAX));
  }
  // The first versions of the format had no opsets.
  constexpr int64_t kFirstWithOpsets = 3;
  return onnx::IsStandard(domain) && proto_.ir_version() < kFirstWithOpsets ? 1 : 0;
}

int Model::Opset(const onnx::NodeProto& node) const {
  if (!node.has_opset()) return Opset(node.domain());
  return static_cast<int>(std::clamp<int64_t>(node.opset(), 0, INT_MAX));
}

}  // namespace heddle::graph
