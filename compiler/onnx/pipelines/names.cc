#include "compiler/onnx/pipelines/names.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/passes/independent_rows.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/pipelines/row_counts.h"
#include "compiler/onnx/standard/standard.h"

namespace heddle::graph {
namespace {

using onnx::AttributeProto;
using onnx::NodeProto;

// The classes of a classifier or a ZipMap. Null: it has none.
StringList ClassesOf(const NodeProto& node) {
  std::vector<std::string> classes;
  for (const char* name : {"classlabels_strings", "classlabels_ints", "classlabels_int64s"}) {
    const AttributeProto* a = FindAttribute(node, name);
    if (a == nullptr || !classes.empty()) continue;
    classes.assign(a->strings().begin(), a->strings().end());
    for (const int64_t number : a->ints()) classes.push_back(absl::StrCat(number));
  }
  if (classes.empty()) return nullptr;
  return std::make_shared<const std::vector<std::string>>(std::move(classes));
}

// Whether a support vector machine gives a score for each pair of classes instead of each class.
bool ScoresPairs(const NodeProto& node) {
  const AttributeProto* probabilities = FindAttribute(node, "prob_a");
  const AttributeProto* vectors = FindAttribute(node, "support_vectors");
  return node.op_type() == "SVMClassifier" && vectors != nullptr && vectors->floats_size() > 0 &&
         (probabilities == nullptr || probabilities->floats_size() == 0);
}

// Whether column c of the first result is made of column c of the operands, and of what all columns have in common.
bool KeepsColumns(const NodeProto& node) {
  static const auto* ops = new std::set<std::string_view>{
      "Identity", "Cast", "Softmax", "LogSoftmax", "Sigmoid", "Exp", "Log", "Neg", "Abs", "Sqrt",
      "Clip",     "Add",  "Sub",     "Mul",        "Div",     "Max", "Min", "Sum", "Mean"};
  if (onnx::IsStandard(node.domain())) return ops->count(node.op_type()) > 0;
  return onnx::OperatorKey(node) == "ai.onnx.ml.Normalizer";
}

// What the columns of the operands are called, if those that have names agree.
StringList CommonNames(const NodeProto& node, const StringLists& columns) {
  StringList names;
  for (const std::string& input : node.input()) {
    const auto found = columns.find(input);
    if (found == columns.end()) continue;
    if (names != nullptr && *names != *found->second) return nullptr;
    names = found->second;
  }
  return names;
}

// Names of the columns of scores, by value.
StringLists ScoreNames(const onnx::GraphProto& model) {
  StringLists columns;
  for (const NodeProto& node : model.node()) {
    const bool of_ml = node.domain() == onnx::kMlDomain;
    const std::string& op = node.op_type();
    int output = 0;
    StringList names;
    if (of_ml &&
        (op == "LinearClassifier" || op == "SVMClassifier" || op == "TreeEnsembleClassifier")) {
      output = 1;
      names = ClassesOf(node);
      if (names != nullptr && names->size() > 2 && ScoresPairs(node)) names = nullptr;
    } else if (of_ml && op == "ZipMap") {
      names = ClassesOf(node);
    } else if (KeepsColumns(node)) {
      names = CommonNames(node, columns);
    }
    if (names != nullptr && output < node.output_size()) columns[node.output(output)] = names;
  }
  return columns;
}

// The model's shape of an input, without the bytes of texts.
Shape ShapeOf(const Graph& graph, const StringInputs& strings, ValueId input) {
  const Value& value = graph.values[input];
  Shape shape = value.type.shape;
  if (strings.count(value.name)) shape.pop_back();
  return shape;
}

bool IsTable(const Graph& graph, const StringInputs& strings) {
  const auto fits = [](const Shape& shape) { return shape.size() == 1 || shape.size() == 2; };
  return !graph.inputs.empty() && graph.lengths.empty() &&
         std::all_of(graph.inputs.begin(), graph.inputs.end(),
                     [&](ValueId v) { return fits(ShapeOf(graph, strings, v)); }) &&
         std::all_of(graph.outputs.begin(), graph.outputs.end(),
                     [&](ValueId v) { return fits(graph.values[v].type.shape); });
}

}  // namespace

bool IsPipeline(const Model& model) {
  return model.of_tables() && CountRows(model.graph()).are_shapes;
}

Tables TablesOf(const Model& of, const StringInputs& strings, const StringLists& lists,
                const Graph& graph) {
  const onnx::GraphProto& model = of.graph();
  Tables tables;
  tables.inputs.resize(graph.inputs.size());
  tables.outputs.resize(graph.outputs.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    tables.inputs[i].text = strings.count(graph.values[graph.inputs[i]].name) > 0;
  const bool is_table = IsTable(graph, strings);
  const StringLists columns = is_table ? ScoreNames(model) : StringLists();
  // Behind the model's outputs stand those that only hold lengths.
  for (int i = 0; i < model.output_size(); ++i) {
    const std::string& name = model.output(i).name();
    const TensorType& type = graph.values[graph.outputs[i]].type;
    if (const auto list = lists.find(name); list != lists.end() && ir::IsInteger(type.dtype))
      tables.outputs[i].labels = *list->second;
    const auto names = columns.find(name);
    if (names != columns.end() && type.shape.size() == 2 &&
        type.shape[1] == static_cast<int64_t>(names->second->size()))
      tables.outputs[i].columns = *names->second;
  }
  if (!is_table) return tables;
  for (size_t i = 0; i < graph.inputs.size() && graph.inputs.size() > 1; ++i) {
    const Shape shape = ShapeOf(graph, strings, graph.inputs[i]);
    if (shape.size() == 1 || shape[1] == 1)
      tables.inputs[i].columns = {graph.values[graph.inputs[i]].name};
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto of_map = of.map_columns().find(graph.values[graph.inputs[i]].name);
    if (of_map != of.map_columns().end()) tables.inputs[i].columns = of_map->second;
  }
  tables.independent_rows = IsPipeline(of) && graph.values[graph.inputs[0]].type.shape[0] > 1 &&
                            HasIndependentRows(graph);
  return tables;
}

}  // namespace heddle::graph
