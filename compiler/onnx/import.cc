#include "compiler/onnx/import.h"

#include <climits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/onnx/check.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/problems.h"
#include "compiler/onnx/shapes.h"

namespace heddle::graph {
namespace {

// Translates a checked model, node by node. A node that cannot be translated is reported, and nodes
// that depend on it are skipped, so that all problems of a model are found.
class Importer {
 public:
  Importer(Model& model, const ElementTypesByName& types, const ImportOptions& options,
           Problems& problems)
      : model_(model),
        types_(types),
        opset_(model.Opset("")),
        budget_(options.constant_bytes),
        problems_(problems) {}

  absl::StatusOr<Graph> Run() {
    for (const auto& node : model_.graph().node())
      used_.insert(node.input().begin(), node.input().end());
    for (const auto& output : model_.graph().output()) used_.insert(output.name());
    AddInitializers();
    AddInputs();
    for (const auto& node : model_.graph().node()) Translate(node);
    CompareWithDeclarations();
    HEDDLE_RETURN_IF_ERROR(problems_.Status());
    return Finish();
  }

 private:
  // Moves the data of initializers out of the model. Those that nothing reads are only checked.
  void AddInitializers() {
    for (onnx::TensorProto& t : *model_.mutable_graph().mutable_initializer()) {
      if (!FromOnnxType(t.data_type()).ok()) {  // the checker has reported it
        broken_.insert(t.name());
        continue;
      }
      const std::string name = t.name();
      auto data = FromOnnxTensor(std::move(t));
      if (!data.ok()) {
        problems_.Invalid(absl::StrCat("initializer: ", data.status().message()));
        broken_.insert(name);
        continue;
      }
      if (used_.count(name)) values_[name] = builder_.Constant(name, *std::move(data));
    }
  }

  void AddInputs() {
    for (const auto& input : model_.graph().input()) {
      if (values_.count(input.name()) || broken_.count(input.name())) continue;
      const auto& type = input.type().tensor_type();
      const auto dtype = FromOnnxType(type.elem_type());
      Shape shape;
      bool possible = true;
      for (const auto& d : type.shape().dim()) {
        shape.push_back(d.dim_value());
        possible &= d.dim_value() <= INT_MAX;
      }
      if (!possible || !CheckSize({ir::DType::kF32, shape}).ok())
        problems_.Invalid(
            absl::StrCat("input '", input.name(), "' has the impossible shape ", ShapeText(shape)));
      else if (dtype.ok())
        values_[input.name()] = builder_.Input(input.name(), {*dtype, shape});
      if (!values_.count(input.name())) broken_.insert(input.name());
    }
  }

  void Translate(const onnx::NodeProto& node) {
    const onnx::OperatorRule* rule =
        onnx::IsStandard(node.domain()) ? onnx::FindRule(node.op_type(), opset_) : nullptr;
    const auto translation = Translations().find(node.op_type());
    bool possible = rule != nullptr && translation != Translations().end();
    for (const std::string& input : node.input()) possible &= !broken_.count(input);
    for (const std::string& output : node.output()) possible &= HasKnownType(output);
    if (!possible) return Break(node);
    NodeImport import(node, *rule, opset_, builder_, values_, budget_, types_);
    translation->second.run(import);
    import.CheckAllRead();
    if (!import.ok()) {
      const std::string what(import.status().message());
      if (absl::IsUnimplemented(import.status()))
        problems_.Unsupported(node, opset_, what);
      else
        problems_.Invalid(node, opset_, what);
      return Break(node);
    }
    for (int i = 0; i < node.output_size(); ++i) CheckOutput(node, *rule, i);
  }

  // The checker has reported values of other types.
  bool HasKnownType(const std::string& output) const {
    const auto found = types_.find(output);
    return found == types_.end() || found->second == 0 || FromOnnxType(found->second).ok();
  }

  void Break(const onnx::NodeProto& node) {
    broken_.insert(node.output().begin(), node.output().end());
    broken_.erase("");
    for (const std::string& output : node.output()) values_.erase(output);
  }

  // A translation that does not know of an output, or of the standard's rule for its element type,
  // would give a wrong result.
  void CheckOutput(const onnx::NodeProto& node, const onnx::OperatorRule& rule, int i) {
    const std::string& name = node.output(i);
    const auto value = values_.find(name);
    if (value == values_.end()) {
      if (name.empty() || !used_.count(name)) return;
      problems_.Unsupported(node, opset_,
                            absl::StrCat("the output '", std::string(rule.Output(i)->name), "'"));
      broken_.insert(name);
      return;
    }
    const auto wanted = types_.find(name);
    if (wanted == types_.end() || wanted->second == 0) return;
    if (*FromOnnxType(wanted->second) == builder_.Type(value->second).dtype) return;
    problems_.Unsupported(node, opset_,
                          absl::StrCat("a result of type ", onnx::ElementTypeName(wanted->second)));
    broken_.insert(name);
  }

  // Shapes that the model states for results have to be those that its nodes compute.
  void CompareWithDeclarations() {
    for (const auto* list : {&model_.graph().value_info(), &model_.graph().output()}) {
      for (const onnx::ValueInfoProto& info : *list) {
        const auto value = values_.find(info.name());
        if (value == values_.end() || !info.type().has_tensor_type()) continue;
        const Shape& shape = builder_.Type(value->second).shape;
        if (FitsDeclaration(shape, info)) continue;
        problems_.Invalid(absl::StrCat("shapes or types contradict each other: '", info.name(),
                                       "' is declared ", DeclaredShape(info), ", but computed as ",
                                       shape.empty() ? "a scalar" : ShapeText(shape)));
      }
    }
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
    // Each translation checks what it emits, so an error here comes from the model itself.
    if (absl::Status s = CheckGraph(graph); !s.ok()) {
      return BadInput(absl::StrCat("the model does not make a legal graph (", s.message(),
                                   "); check it with onnx.checker and simplify it"));
    }
    return graph;
  }

  Model& model_;
  const ElementTypesByName& types_;
  const int opset_;
  GraphBuilder builder_;
  std::map<std::string, ValueId> values_;
  ConstantBudget budget_;
  Problems& problems_;
  std::set<std::string> used_;    // names that a node reads, or that are outputs
  std::set<std::string> broken_;  // values that a reported problem leaves undefined
};

}  // namespace

absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(Model model, Model::Parse(bytes));
  // Functions, the model's own and those of the standard, will be inlined here: what follows sees
  // operators only.
  Problems problems;
  const ElementTypesByName types = CheckModel(model, problems);
  if (problems.HasInvalid()) return problems.Status();
  const absl::Status fixed = FixShapes(model, options);
  if (!fixed.ok()) return problems.empty() ? fixed : problems.Status();
  return Importer(model, types, options, problems).Run();
}

}  // namespace heddle::graph
