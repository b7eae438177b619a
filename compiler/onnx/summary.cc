#include "compiler/onnx/summary.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/onnx/input_values.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/shapes.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::TensorProto;

// Bits of an element in the file; 0 for strings.
int BitsOf(int type) {
  switch (type) {
    case TensorProto::UINT2:
    case TensorProto::INT2:
      return 2;
    case TensorProto::UINT4:
    case TensorProto::INT4:
    case TensorProto::FLOAT4E2M1:
      return 4;
    case TensorProto::FLOAT6E2M3:
    case TensorProto::FLOAT6E3M2:
      return 6;
    case TensorProto::UINT16:
    case TensorProto::INT16:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return 16;
    case TensorProto::FLOAT:
    case TensorProto::INT32:
    case TensorProto::UINT32:
      return 32;
    case TensorProto::DOUBLE:
    case TensorProto::INT64:
    case TensorProto::UINT64:
    case TensorProto::COMPLEX64:
      return 64;
    case TensorProto::COMPLEX128:
      return 128;
    case TensorProto::STRING:
      return 0;
    default:
      return 8;
  }
}

OnnxSummary::Value Summarize(const onnx::ValueInfoProto& info) {
  const onnx::TypeProto& type = info.type();
  if (type.has_tensor_type())
    return {info.name(), onnx::ElementTypeName(type.tensor_type().elem_type()),
            DeclaredShape(info)};
  const char* kind = type.has_sequence_type()        ? "sequence"
                     : type.has_map_type()           ? "map"
                     : type.has_optional_type()      ? "optional"
                     : type.has_sparse_tensor_type() ? "sparse tensor"
                                                     : "unknown type";
  return {info.name(), kind, ""};
}

class Summarizer {
 public:
  explicit Summarizer(const Model& model) : model_(model.proto()) {
    for (const onnx::FunctionProto& f : model_.functions())
      functions_.emplace(Domain(f.domain()), f.name());
  }

  OnnxSummary Run() {
    out_.producer = model_.producer_name();
    if (!out_.producer.empty() && !model_.producer_version().empty())
      absl::StrAppend(&out_.producer, " ", model_.producer_version());
    out_.ir_version = model_.ir_version();
    for (const auto& opset : model_.opset_import()) {
      const std::string domain = Domain(opset.domain());
      out_.opsets.push_back({domain.empty() ? "ai.onnx" : domain, opset.version()});
    }
    std::set<std::string> initialized;
    for (const TensorProto& t : model_.graph().initializer()) initialized.insert(t.name());
    for (const auto& input : model_.graph().input()) {
      if (!initialized.count(input.name())) out_.inputs.push_back(Summarize(input));
    }
    for (const auto& output : model_.graph().output()) out_.outputs.push_back(Summarize(output));
    out_.functions = model_.functions_size();
    AddGraph(model_.graph());
    for (const onnx::FunctionProto& f : model_.functions()) AddNodes(f.node());
    for (const auto& [key, nodes] : nodes_) AddOperator(key.first, key.second, nodes);
    std::sort(out_.operators.begin(), out_.operators.end(), [](const auto& a, const auto& b) {
      return std::tie(b.nodes, a.domain, a.name) < std::tie(a.nodes, b.domain, b.name);
    });
    return std::move(out_);
  }

 private:
  static std::string Domain(const std::string& domain) {
    return onnx::IsStandard(domain) ? "" : domain;
  }

  void AddGraph(const onnx::GraphProto& graph) {
    for (const TensorProto& t : graph.initializer()) AddTensor(t);
    AddNodes(graph.node());
  }

  template <typename Nodes>
  void AddNodes(const Nodes& nodes) {
    for (const onnx::NodeProto& node : nodes) {
      ++nodes_[{Domain(node.domain()), node.op_type()}];
      for (const onnx::AttributeProto& a : node.attribute()) {
        if (a.has_t()) AddTensor(a.t());
        if (a.has_g()) AddGraph(a.g());
        for (const onnx::GraphProto& g : a.graphs()) AddGraph(g);
      }
    }
  }

  void AddTensor(const TensorProto& t) {
    // As if a shape that cannot be were huge, which only makes the figure wrong.
    constexpr int64_t kMost = int64_t{1} << 50;
    int64_t elements = 1;
    for (const int64_t d : t.dims())
      elements = d <= 0 ? 0 : elements > kMost / d ? kMost : elements * d;
    const int64_t bytes = (elements * BitsOf(t.data_type()) + 7) / 8;
    out_.parameters += elements;
    out_.parameter_bytes += bytes;
    out_.bytes_by_type[onnx::ElementTypeName(t.data_type())] += bytes;
  }

  void AddOperator(const std::string& domain, const std::string& name, int nodes) {
    OnnxSummary::Operator op{name, domain, nodes, functions_.count({domain, name}) > 0, ""};
    const auto translation = Translations().find(onnx::OperatorKey(domain, name));
    if (translation != Translations().end())
      op.known = true, op.limits = translation->second.limits;
    out_.operators.push_back(std::move(op));
  }

  const onnx::ModelProto& model_;
  std::set<std::pair<std::string, std::string>> functions_;   // domain and name
  std::map<std::pair<std::string, std::string>, int> nodes_;  // by domain and operator
  OnnxSummary out_;
};

}  // namespace

absl::StatusOr<OnnxSummary> SummarizeOnnx(std::string_view bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const Model model, Model::Parse(bytes));
  return Summarizer(model).Run();
}

absl::StatusOr<std::map<std::string, std::vector<int64_t>>> LikelyShapes(
    std::string_view bytes, const ImportOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(Model model, Model::Parse(bytes));
  // Independent rows may stay open.
  if (!OpenRows(model, options).empty() && ImportOnnx(bytes, options).ok())
    return std::map<std::string, Shape>();
  HEDDLE_RETURN_IF_ERROR(FixInputValues(model, options));
  return ProposeShapes(model, options);
}

}  // namespace heddle::graph
