#include "compiler/onnx/import.h"

#include <climits>
#include <exception>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "compiler/onnx/lower.h"
#include "compiler/onnx/node.h"
#include "onnx/checker.h"
#include "onnx/defs/schema.h"
#include "onnx/shape_inference/implementation.h"

namespace heddle::graph {
namespace {

// libonnx reports over several lines; ours is one.
std::string OneLine(std::string text) {
  constexpr size_t kLongest = 600;
  text = absl::StrReplaceAll(text, {{"\n\n", "; "}, {"\n", " "}, {"\r", " "}});
  while (!text.empty() && (text.back() == ' ' || text.back() == ';')) text.pop_back();
  if (text.size() > kLongest) text = text.substr(0, kLongest) + " ..";
  return text;
}

absl::StatusOr<onnx::ModelProto> ParseModel(std::string_view bytes) {
  if (bytes.empty()) return BadInput("the model is empty");
  if (bytes.size() > INT_MAX)
    return BadInput("the model is larger than 2 GiB, which ONNX files cannot be");
  onnx::ModelProto model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return BadInput(
        absl::StrCat("not an ONNX model, or a truncated one (", bytes.size(), " bytes)"));
  }
  if (!model.has_ir_version() || !model.has_graph() || model.graph().output_size() == 0) {
    return BadInput(absl::StrCat("not an ONNX model (", bytes.size(), " bytes without a graph)"));
  }
  return model;
}

// ---- Refusals that must come before libonnx looks at the model ----

bool IsExternal(const onnx::TensorProto& t) {
  return t.data_location() == onnx::TensorProto::EXTERNAL || t.external_data_size() != 0;
}

// The name of a tensor that lies outside of the file, wherever it hides; empty if there is none.
std::string FindExternal(const onnx::GraphProto& graph);

std::string FindExternal(const onnx::AttributeProto& a) {
  if (a.has_t() && IsExternal(a.t())) return a.name();
  for (const auto& t : a.tensors()) {
    if (IsExternal(t)) return a.name();
  }
  const auto sparse = [&](const onnx::SparseTensorProto& s) {
    return IsExternal(s.values()) || IsExternal(s.indices());
  };
  if (a.has_sparse_tensor() && sparse(a.sparse_tensor())) return a.name();
  for (const auto& s : a.sparse_tensors()) {
    if (sparse(s)) return a.name();
  }
  if (a.has_g()) return FindExternal(a.g());
  for (const auto& g : a.graphs()) {
    if (auto found = FindExternal(g); !found.empty()) return found;
  }
  return "";
}

template <typename Nodes>
std::string FindExternalInNodes(const Nodes& nodes) {
  for (const auto& node : nodes) {
    for (const auto& a : node.attribute()) {
      if (auto found = FindExternal(a); !found.empty()) return found;
    }
  }
  return "";
}

std::string FindExternal(const onnx::GraphProto& graph) {
  for (const auto& t : graph.initializer()) {
    if (IsExternal(t)) return t.name();
  }
  for (const auto& s : graph.sparse_initializer()) {
    if (IsExternal(s.values()) || IsExternal(s.indices())) return s.values().name();
  }
  return FindExternalInNodes(graph.node());
}

absl::Status RefuseExternalData(const onnx::ModelProto& model) {
  std::string found = FindExternal(model.graph());
  for (const auto& f : model.functions()) {
    if (found.empty()) found = FindExternalInNodes(f.node());
  }
  if (found.empty()) return absl::OkStatus();
  return BadInput(absl::StrCat("tensor '", found,
                               "' is stored in another file; save the model with its weights "
                               "inside (external data is refused)"));
}

std::string Described(const onnx::NodeProto& node, int opset) {
  const bool standard =
      node.domain().empty() || node.domain() == "ai.onnx" || node.domain() == kNewerDomain;
  const std::string op = standard ? node.op_type() : node.domain() + "." + node.op_type();
  const std::string name = !node.name().empty()     ? node.name()
                           : node.output_size() > 0 ? node.output(0)
                                                    : "";
  return absl::StrCat(op, " (node '", name, "', opset ", opset, ")");
}

absl::Status UnsupportedOps(const std::vector<std::string>& listed) {
  return absl::UnimplementedError(absl::StrCat(
      "unsupported operator", listed.size() == 1 ? ": " : "s: ", absl::StrJoin(listed, ", ")));
}

int OpsetOf(const onnx::ModelProto& model, const std::string& domain) {
  for (const auto& opset : model.opset_import()) {
    const std::string d = opset.domain() == "ai.onnx" ? "" : opset.domain();
    if (d == (domain == "ai.onnx" ? "" : domain)) return static_cast<int>(opset.version());
  }
  return 1;
}

absl::Status RefuseUnknownOps(const onnx::ModelProto& model) {
  std::vector<std::string> listed;
  for (const auto& node : model.graph().node()) {
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    if (!standard || !Translations().count(node.op_type()))
      listed.push_back(Described(node, OpsetOf(model, node.domain())));
  }
  return listed.empty() ? absl::OkStatus() : UnsupportedOps(listed);
}

// ---- Shapes of inputs ----

std::string DimText(const onnx::TensorShapeProto::Dimension& d) {
  if (d.has_dim_value() && d.dim_value() > 0) return absl::StrCat(d.dim_value());
  return d.has_dim_param() && !d.dim_param().empty() ? d.dim_param() : "?";
}

std::string DeclaredShape(const onnx::ValueInfoProto& input) {
  const auto& type = input.type().tensor_type();
  if (!type.has_shape()) return "[unknown rank]";
  std::vector<std::string> dims;
  for (const auto& d : type.shape().dim()) dims.push_back(DimText(d));
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

// Makes every dimension of an input a number: the model's, or the one given for it.
absl::Status FixShape(onnx::ValueInfoProto& input, const ImportOptions& options) {
  auto* type = input.mutable_type()->mutable_tensor_type();
  auto given = options.shapes.find(input.name());
  if (given == options.shapes.end()) {
    Shape example;
    bool fixed = type->has_shape();
    for (const auto& d : type->shape().dim()) {
      const bool known = d.has_dim_value() && d.dim_value() > 0;
      fixed &= known;
      example.push_back(known ? d.dim_value() : 1);
    }
    if (fixed) return absl::OkStatus();
    return BadInput(absl::StrCat("input '", input.name(), "' has the dynamic shape ",
                                 DeclaredShape(input), "; fix it with --shape ", input.name(), "=",
                                 example.empty() ? "1x3x224x224" : ShapeText(example)));
  }
  const Shape& shape = given->second;
  bool fits = !type->has_shape() || type->shape().dim_size() == static_cast<int>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    fits &= shape[i] > 0;
    if (!fits || !type->has_shape()) continue;
    const auto& d = type->shape().dim(static_cast<int>(i));
    fits = !d.has_dim_value() || d.dim_value() <= 0 || d.dim_value() == shape[i];
  }
  if (!fits) {
    return BadInput(absl::StrCat("shape ", ShapeText(shape), " does not fit input '", input.name(),
                                 "', which the model declares as ", DeclaredShape(input)));
  }
  type->mutable_shape()->clear_dim();
  for (int64_t d : shape) type->mutable_shape()->add_dim()->set_dim_value(d);
  return absl::OkStatus();
}

absl::Status FixShapes(onnx::ModelProto& model, const ImportOptions& options,
                       const std::set<std::string>& initialized) {
  std::set<std::string> known;
  for (auto& input : *model.mutable_graph()->mutable_input()) {
    if (initialized.count(input.name())) continue;
    known.insert(input.name());
    if (!input.type().has_tensor_type()) {
      return absl::UnimplementedError(
          absl::StrCat("input '", input.name(),
                       "' is not a tensor (sequences, maps and optionals are not supported)"));
    }
    HEDDLE_RETURN_IF_ERROR(FixShape(input, options));
  }
  for (const auto& [name, shape] : options.shapes) {
    if (known.count(name)) continue;
    return BadInput(
        absl::StrCat("the model has no input '", name, "'; it has ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

absl::Status CheckByLibrary(onnx::ModelProto& model, const std::string& what,
                            void (*check)(onnx::ModelProto&)) {
  // libonnx reports by exceptions.
  try {
    check(model);
  } catch (const std::exception& e) {
    return BadInput(absl::StrCat(what, OneLine(e.what())));
  }
  return absl::OkStatus();
}

// ---- Translation ----

class Importer {
 public:
  Importer(const onnx::ModelProto& model, const ImportOptions& options)
      : model_(model), opset_(OpsetOf(model, "")), budget_(options.constant_bytes) {}

  absl::StatusOr<Graph> Run() {
    for (const auto& t : model_.graph().initializer()) {
      auto data = FromOnnxTensor(t);
      if (!data.ok())
        return absl::Status(data.status().code(), absl::StrCat("initializer '", t.name(),
                                                               "': ", data.status().message()));
      values_[t.name()] = builder_.Constant(t.name(), *std::move(data));
    }
    if (model_.graph().sparse_initializer_size() != 0)
      return absl::UnimplementedError("sparse initializers are not supported");
    for (const auto& input : model_.graph().input()) {
      if (values_.count(input.name())) continue;  // an initializer with a declared type
      const auto& type = input.type().tensor_type();
      auto dtype = FromOnnxType(type.elem_type());
      if (!dtype.ok())
        return absl::Status(dtype.status().code(),
                            absl::StrCat("input '", input.name(), "': ", dtype.status().message()));
      Shape shape;
      for (const auto& d : type.shape().dim()) shape.push_back(d.dim_value());
      HEDDLE_RETURN_IF_ERROR(CheckSize({*dtype, shape}));
      for (int64_t d : shape) {
        if (d > INT_MAX)
          return BadInput(absl::StrCat("input '", input.name(), "' has the impossible extent ", d));
      }
      values_[input.name()] = builder_.Input(input.name(), {*dtype, shape});
    }
    for (const auto& node : model_.graph().node()) HEDDLE_RETURN_IF_ERROR(Translate(node));
    if (!unsupported_.empty()) return UnsupportedOps(unsupported_);
    return Finish();
  }

 private:
  // Unsupported nodes are collected, and what depends on them is skipped, so that all are named at
  // once.
  absl::Status Translate(const onnx::NodeProto& node) {
    for (const std::string& input : node.input()) {
      if (!broken_.count(input)) continue;
      broken_.insert(node.output().begin(), node.output().end());
      return absl::OkStatus();
    }
    NodeImport import(node, opset_, builder_, values_, budget_);
    Translations().at(node.op_type()).run(import);
    if (import.status().code() == absl::StatusCode::kUnimplemented) {
      unsupported_.push_back(
          absl::StrCat(Described(node, opset_), ": ", import.status().message()));
      broken_.insert(node.output().begin(), node.output().end());
      return absl::OkStatus();
    }
    if (!import.ok())
      return BadInput(absl::StrCat(Described(node, opset_), ": ", import.status().message()));
    return absl::OkStatus();
  }

  absl::StatusOr<Graph> Finish() {
    std::vector<std::pair<std::string, ValueId>> outputs;
    for (const auto& output : model_.graph().output()) {
      auto it = values_.find(output.name());
      if (it == values_.end())
        return BadInput(absl::StrCat("output '", output.name(), "' is not computed by any node"));
      if (NumElements(builder_.Type(it->second)) == 0) {
        return absl::UnimplementedError(
            absl::StrCat("output '", output.name(), "' has no elements"));
      }
      outputs.emplace_back(output.name(), it->second);
    }
    HEDDLE_ASSIGN_OR_RETURN(Graph graph, builder_.Build(outputs));
    graph = RemoveDead(graph);
    // Translations check what they emit; what is still wrong here the model brought along.
    if (absl::Status s = CheckGraph(graph); !s.ok()) {
      return BadInput(absl::StrCat("the model does not make a legal graph (", s.message(),
                                   "); check it with onnx.checker and simplify it"));
    }
    return graph;
  }

  const onnx::ModelProto& model_;
  int opset_;
  GraphBuilder builder_;
  std::map<std::string, ValueId> values_;
  ConstantBudget budget_;
  std::set<std::string> broken_;
  std::vector<std::string> unsupported_;
};

}  // namespace

absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(onnx::ModelProto model, ParseModel(bytes));
  HEDDLE_RETURN_IF_ERROR(RefuseExternalData(model));
  HEDDLE_RETURN_IF_ERROR(RefuseUnknownOps(model));
  LowerToCheckedOpset(model);
  const int opset = OpsetOf(model, "");
  const std::string invalid =
      opset <= NewestOpset() ? "not a valid ONNX model: "
                             : absl::StrCat("opset ", opset, " is checked as ", NewestOpset(),
                                            ", to which onnx.version_converter brings a model: ");
  HEDDLE_RETURN_IF_ERROR(
      CheckByLibrary(model, invalid, [](onnx::ModelProto& m) { onnx::checker::check_model(m); }));
  std::set<std::string> initialized;
  for (const auto& t : model.graph().initializer()) initialized.insert(t.name());
  HEDDLE_RETURN_IF_ERROR(FixShapes(model, options, initialized));
  HEDDLE_ASSIGN_OR_RETURN(Graph graph, Importer(model, options).Run());
  // After our own inference, which has refused what libonnx's would loop over for hours (strides of
  // zero, huge extents).
  HEDDLE_RETURN_IF_ERROR(
      CheckByLibrary(model, "shapes or types contradict each other: ", [](onnx::ModelProto& m) {
        onnx::shape_inference::InferShapes(m, onnx::OpSchemaRegistry::Instance(),
                                           onnx::ShapeInferenceOptions{true, 1, false});
      }));
  return graph;
}

}  // namespace heddle::graph
