#include "compiler/onnx/lower.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "compiler/onnx/node.h"
#include "onnx/defs/schema.h"

namespace heddle::graph {
namespace {

using onnx::NodeProto;

int AttributeIndex(const NodeProto& node, const std::string& name) {
  for (int i = 0; i < node.attribute_size(); ++i) {
    if (node.attribute(i).name() == name) return i;
  }
  return -1;
}

void Drop(NodeProto& node, const std::string& name) {
  const int i = AttributeIndex(node, name);
  if (i >= 0) node.mutable_attribute()->DeleteSubrange(i, 1);
}

void DropIfInt(NodeProto& node, const std::string& name, int64_t value) {
  const int i = AttributeIndex(node, name);
  if (i >= 0 && node.attribute(i).i() == value) Drop(node, name);
}

bool TakesAxesAsOperandSince18(const std::string& type) {
  static constexpr const char* kOps[] = {"ReduceMean",   "ReduceMax",       "ReduceMin",
                                         "ReduceProd",   "ReduceL1",        "ReduceL2",
                                         "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"};
  return std::find(std::begin(kOps), std::end(kOps), type) != std::end(kOps);
}

class Lowering {
 public:
  Lowering(onnx::GraphProto& graph, int64_t opset) : graph_(graph), opset_(opset) {
    for (const auto& t : graph.initializer()) constants_[t.name()] = &t;
    for (const NodeProto& node : graph.node()) {
      const int value = node.op_type() == "Constant" ? AttributeIndex(node, "value") : -1;
      if (value >= 0 && node.output_size() == 1)
        constants_[node.output(0)] = &node.attribute(value).t();
    }
  }

  void Run() {
    for (NodeProto& node : *graph_.mutable_node()) {
      const std::string& type = node.op_type();
      if (TakesAxesAsOperandSince18(type)) AxesToAttribute(node);
      if (type == "Split") Drop(node, "num_outputs");  // equal parts, as without
      if (type == "Cast" || type == "CastLike" || type == "QuantizeLinear")
        Drop(node, "saturate");  // of 8-bit floats, which are refused
      if (type == "Resize") {
        DropIfInt(node, "antialias", 0);
        const int policy = AttributeIndex(node, "keep_aspect_ratio_policy");
        if (policy >= 0 && node.attribute(policy).s() == "stretch")
          Drop(node, "keep_aspect_ratio_policy");
      }
      if (type == "AveragePool") DropDilations(node);
      HideIfNewer(node);
    }
  }
  bool hidden() const { return hidden_; }

 private:
  void AxesToAttribute(NodeProto& node) {
    DropIfInt(node, "noop_with_empty_axes", 0);
    if (node.input_size() < 2) return;
    if (!node.input(1).empty()) {
      const auto axes = constants_.find(node.input(1));
      if (axes == constants_.end()) return;
      const auto data = FromOnnxTensor(*axes->second);
      if (!data.ok()) return;
      const Shape values = ToInts(*data);
      if (values.empty()) return;
      onnx::AttributeProto* attribute = node.add_attribute();
      attribute->set_name("axes");
      attribute->set_type(onnx::AttributeProto::INTS);
      for (int64_t axis : values) attribute->add_ints(axis);
    }
    node.mutable_input()->DeleteSubrange(1, node.input_size() - 1);
  }

  static void DropDilations(NodeProto& node) {
    const int i = AttributeIndex(node, "dilations");
    if (i < 0) return;
    const auto& ints = node.attribute(i).ints();
    if (std::all_of(ints.begin(), ints.end(), [](int64_t d) { return d == 1; }))
      Drop(node, "dilations");
  }

  void HideIfNewer(NodeProto& node) {
    const auto found = Translations().find(node.op_type());
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    if (found == Translations().end() || !standard) return;
    if (found->second.since <= NewestOpset() || found->second.since > opset_) return;
    node.set_domain(kNewerDomain);
    hidden_ = true;
  }

  onnx::GraphProto& graph_;
  const int64_t opset_;
  bool hidden_ = false;
  std::map<std::string, const onnx::TensorProto*> constants_;
};

}  // namespace

int NewestOpset() {
  return onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second;
}

void LowerToCheckedOpset(onnx::ModelProto& model) {
  model.set_ir_version(std::min<int64_t>(model.ir_version(), onnx::IR_VERSION));
  bool hidden = false;
  for (const auto& opset : model.opset_import()) {
    const bool standard = opset.domain().empty() || opset.domain() == "ai.onnx";
    if (!standard || opset.version() <= NewestOpset()) continue;
    Lowering lowering(*model.mutable_graph(), opset.version());
    lowering.Run();
    hidden |= lowering.hidden();
  }
  if (!hidden) return;
  auto* domain = model.add_opset_import();
  domain->set_domain(kNewerDomain);
  domain->set_version(1);
}

}  // namespace heddle::graph
