#include "compiler/onnx/import.h"

#include <climits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "compiler/classical/import_forest.h"
#include "compiler/graph/core/row_blocks.h"
#include "compiler/graph/core/table_names.h"
#include "compiler/onnx/bounded.h"
#include "compiler/onnx/check.h"
#include "compiler/onnx/external.h"
#include "compiler/onnx/inline.h"
#include "compiler/onnx/input_values.h"
#include "compiler/onnx/model.h"
#include "compiler/onnx/node.h"
#include "compiler/onnx/pipelines/labels.h"
#include "compiler/onnx/pipelines/names.h"
#include "compiler/onnx/pipelines/row_counts.h"
#include "compiler/onnx/pipelines/strings.h"
#include "compiler/onnx/problems.h"
#include "compiler/onnx/samples.h"
#include "compiler/onnx/shapes.h"

namespace heddle::graph {
namespace {

// Translates a checked model, node by node. A node that cannot be translated is reported, and nodes
// that depend on it are skipped, so that all problems of a model are found.
class Importer {
 public:
  Importer(Model& model, const ElementsByName& elements, const ElementTypesByGraph& types,
           const StringInputs& strings, const StringLists& lists, const ImportOptions& options,
           Problems& problems)
      : model_(model),
        options_(options),
        elements_(elements),
        strings_(strings),
        lists_(lists),
        types_by_graph_(types),
        scopes_({&types.at(&model.graph())}),
        budget_(options.constant_bytes),
        problems_(problems),
        used_(NamesRead(model.graph())),
        filled_(model.of_tables() ? CountRows(model.graph()).filled : std::set<std::string>()) {
    used_.insert(model.seed_input());
  }

  absl::StatusOr<Graph> Run() {
    AddInitializers();
    AddInputs();
    if (!model_.seed_input().empty()) random_.seed = values_[model_.seed_input()].tensor;
    for (const auto& node : model_.graph().node()) Translate(node);
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
      initializers_.insert(name);
      const auto elsewhere = elements_.find(name);
      auto data = elsewhere == elements_.end() ? FromOnnxTensor(std::move(t))
                                               : FromOnnxTensor(t, elsewhere->second);
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
      // An initializer may stand among the inputs, too, which gives an input a default value.
      if (initializers_.count(input.name()) || broken_.count(input.name())) continue;
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
      else if (const auto keys = strings_.find(input.name()); keys != strings_.end())
        AddStrings(input.name(), shape, keys->second);
      else if (dtype.ok())
        values_[input.name()] = builder_.Input(input.name(), {*dtype, shape});
      // The input belongs to the model's interface, and nodes read a constant instead.
      if (dtype.ok() && values_.count(input.name()) && NumElements({*dtype, shape}) == 0)
        values_[input.name()] =
            builder_.Constant(input.name(), {{*dtype, shape}, SharedBytes::Of("")});
      if (!values_.count(input.name())) broken_.insert(input.name());
    }
  }

  // An input of strings, whose name means their codes to the nodes of the model.
  void AddStrings(const std::string& name, Shape shape, const StringKeys& keys) {
    const bool empty = NumElements({ir::DType::kU8, shape}) == 0;
    shape.push_back(keys.Width());
    if (empty || !CheckSize({ir::DType::kU8, shape}).ok()) {
      problems_.Invalid(absl::StrCat("input '", name, "' of strings has the impossible shape ",
                                     ShapeText(shape), ", with bytes last"));
      return;
    }
    const ValueId bytes = builder_.Input(name, {ir::DType::kU8, shape});
    const absl::StatusOr<ValueId> codes = EmitCodes(builder_, bytes, keys);
    if (codes.ok())
      values_[name] = *codes;
    else if (const std::string what =
                 absl::StrCat("input '", name, "': ", codes.status().message());
             absl::IsUnimplemented(codes.status()))
      problems_.Unsupported(what);
    else
      problems_.Invalid(what);
  }

  void Translate(const onnx::NodeProto& node) {
    const int opset = model_.Opset(node);
    const Translation* translation = FindTranslation(node);
    const onnx::OperatorRule* rule =
        translation == nullptr ? nullptr : onnx::FindRule(onnx::OperatorKey(node), opset);
    if (rule == nullptr || opset > NewestImportedOpset(node.domain())) {
      // The checker has reported nodes of the model's graph.
      if (InSubgraph() && rule == nullptr) problems_.Unsupported(node, opset);
      return Break(node);
    }
    bool possible = true;
    for (const std::string& input : node.input()) possible &= !broken_.count(input);
    for (const std::string& output : node.output()) possible &= HasKnownType(node, output);
    if (!possible) return Break(node);
    // A loop's constants are made once.
    const bool constant = InSubgraph() && onnx::OperatorKey(node) == "Constant";
    if (constant && subgraph_constants_.count(&node)) {
      values_[node.output(0)] = subgraph_constants_[&node];
      return;
    }
    std::vector<int> types;
    for (const std::string& input : node.input()) types.push_back(ElementType(input));
    NodeImport import(
        node, *rule, opset, std::move(types), builder_, values_, budget_, lengths_, random_,
        samples_,
        [this](const onnx::GraphProto& g, const std::vector<NamedValue>& inputs, bool attempt) {
          if (!attempt) return TranslateSubgraph(g, inputs);
          return AttemptSubgraph(g, inputs);
        });
    CheckLengths(import);
    if (import.ok()) translation->run(import);
    import.CheckAllRead();
    if (!import.ok()) {
      const std::string what(import.status().message());
      if (absl::IsUnimplemented(import.status()))
        problems_.Unsupported(node, opset, what);
      else if (!absl::IsAborted(import.status()))
        problems_.Invalid(node, opset, what);
      return Break(node);
    }
    if (constant) subgraph_constants_[&node] = values_[node.output(0)].tensor;
    if (!InSubgraph() && node.output_size() == 1 && filled_.count(node.output(0)))
      KeepFilled(node.output(0));
    for (int i = 0; i < node.output_size(); ++i) CheckOutput(node, *rule, i);
  }

  // Makes a constant with a row for each row of the model an operator of one element, so that nothing is computed of it at import.
  void KeepFilled(const std::string& name) {
    const auto value = values_.find(name);
    const TensorData* data =
        value == values_.end() ? nullptr : builder_.ConstantData(value->second.tensor);
    if (data == nullptr || NumElements(data->type) < 2) return;
    const auto size = static_cast<size_t>(ir::SizeOf(data->type.dtype));
    const Shape shape = data->type.shape;
    TensorData one{{data->type.dtype, {}},
                   SharedBytes::Of(std::string(data->bytes->substr(0, size)))};
    const ValueId element = builder_.Constant(name, std::move(one));
    const auto all = builder_.Add(OpKind::kExpand, {element}, {{"shape", shape}}, name);
    if (all.ok()) value->second = *all;
  }

  bool InSubgraph() const { return scopes_.size() > 1; }

  // The element type that the checker found for a value; 0 if it found none.
  int ElementType(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = (*scope)->find(name);
      if (found != (*scope)->end()) return found->second;
    }
    return 0;
  }

  // The contract is that of RunSubgraph. The names of the graph are defined while it is translated;
  // those of the graphs around it can be read.
  absl::StatusOr<std::vector<NamedValue>> TranslateSubgraph(const onnx::GraphProto& graph,
                                                            const std::vector<NamedValue>& inputs) {
    // Loops are unrolled, and they may be nested.
    constexpr int64_t kMostNodes = 200000;
    // What is not a node costs, too, and a body without nodes may be the innermost one.
    nodes_in_subgraphs_ += 1 + graph.node_size() + graph.initializer_size() + graph.output_size();
    if (nodes_in_subgraphs_ > kMostNodes) {
      return absl::UnimplementedError(
          absl::StrCat("loops that unroll to more than ", kMostNodes, " nodes"));
    }
    std::map<std::string, std::optional<NamedValue>> hidden;  // what the names meant outside
    const auto hide = [&](const std::string& name) {
      if (name.empty() || hidden.count(name)) return;
      const auto value = values_.find(name);
      hidden[name] = value == values_.end() ? std::nullopt : std::optional(value->second);
      if (value != values_.end()) values_.erase(value);
      broken_.erase(name);
    };
    for (const auto& node : graph.node()) {
      for (const std::string& output : node.output()) hide(output);
    }
    for (const auto& t : graph.initializer()) {
      hide(t.name());
      AddSubgraphConstant(t);
    }
    scopes_.push_back(&types_by_graph_.at(&graph));
    for (int i = 0; i < graph.input_size(); ++i) {
      hide(graph.input(i).name());
      Bind(graph.input(i), inputs[i]);
    }
    for (const auto& node : graph.node()) Translate(node);
    std::vector<NamedValue> results;
    for (const auto& output : graph.output()) {
      const auto value = values_.find(output.name());
      if (value != values_.end() && !broken_.count(output.name())) results.push_back(value->second);
    }
    scopes_.pop_back();
    for (const auto& [name, value] : hidden) {
      values_.erase(name);
      broken_.erase(name);
      if (value) values_[name] = *value;
    }
    if (static_cast<int>(results.size()) != graph.output_size())
      return absl::AbortedError("problems in a subgraph");
    return results;
  }

  // The same, but its problems are the error.
  absl::StatusOr<std::vector<NamedValue>> AttemptSubgraph(const onnx::GraphProto& graph,
                                                          const std::vector<NamedValue>& inputs) {
    Problems others = std::exchange(problems_, Problems());
    auto results = TranslateSubgraph(graph, inputs);
    std::swap(others, problems_);
    if (const absl::Status own = others.Status(); !own.ok())
      return absl::AbortedError(own.message());
    return results;
  }

  void AddSubgraphConstant(const onnx::TensorProto& t) {
    ValueId& known = subgraph_constants_.emplace(&t, -1).first->second;
    if (known < 0) {
      auto data = FromOnnxTensor(t);
      if (!data.ok()) {
        if (absl::IsUnimplemented(data.status()))
          problems_.Unsupported(std::string(data.status().message()));
        else
          problems_.Invalid(absl::StrCat("initializer: ", data.status().message()));
        broken_.insert(t.name());
        return;
      }
      known = builder_.Constant(t.name(), *std::move(data));
    }
    values_[t.name()] = known;
  }

  // Defines an input of a subgraph.
  void Bind(const onnx::ValueInfoProto& input, const NamedValue& value) {
    const int declared = input.type().tensor_type().elem_type();
    if (declared != 0 && value.kind == NamedValue::Kind::kTensor) {
      const auto dtype = FromOnnxType(declared);
      if (!dtype.ok() || *dtype != builder_.Type(value.tensor).dtype) {
        problems_.Invalid(absl::StrCat("input '", input.name(), "' of a subgraph is declared as ",
                                       onnx::ElementTypeName(declared), ", but gets ",
                                       ToText(builder_.Type(value.tensor))));
        broken_.insert(input.name());
        return;
      }
    }
    values_[input.name()] = value;
  }

  // In the model's graph, the checker has reported values of other types.
  bool HasKnownType(const onnx::NodeProto& node, const std::string& output) {
    const int type = ElementType(output);
    if (type == 0) return true;
    const auto dtype = FromOnnxType(type);
    if (!dtype.ok() && InSubgraph())
      problems_.Unsupported(node, model_.Opset(node), std::string(dtype.status().message()));
    return dtype.ok();
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
    const int opset = model_.Opset(node);
    const auto value = values_.find(name);
    if (value == values_.end()) {
      if (name.empty() || !used_.count(name)) return;
      problems_.Unsupported(node, opset,
                            absl::StrCat("the output '", std::string(rule.Output(i)->name), "'"));
      broken_.insert(name);
      return;
    }
    const int wanted = ElementType(name);
    if (wanted == 0) return;
    if (value->second.kind != NamedValue::Kind::kTensor) return;
    if (*FromOnnxType(wanted) == builder_.Type(value->second.tensor).dtype) return;
    problems_.Unsupported(node, opset,
                          absl::StrCat("a result of type ", onnx::ElementTypeName(wanted)));
    broken_.insert(name);
  }

  // Appends an output for each length of an output. Outputs may share a length.
  std::vector<OutputLength> AddLengths(std::vector<std::pair<std::string, ValueId>>& outputs) {
    std::vector<OutputLength> lengths;
    std::map<ValueId, int> places;
    for (size_t i = 0, results = outputs.size(); i < results; ++i) {
      for (const auto& [dimension, length] : lengths_.Of(outputs[i].second)) {
        const auto [place, is_new] = places.try_emplace(length, static_cast<int>(outputs.size()));
        if (is_new) outputs.emplace_back(absl::StrCat("length of ", outputs[i].first), length);
        lengths.push_back({static_cast<int>(i), dimension, place->second});
      }
    }
    return lengths;
  }

  // Shapes that the model states for results are not read: the nodes decide, as in ONNX Runtime,
  // since files of real tools state wrong ones. The checker has compared the element types.
  absl::StatusOr<Graph> Finish() {
    std::vector<std::pair<std::string, ValueId>> outputs;
    for (const auto& output : model_.graph().output()) {
      auto it = values_.find(output.name());
      if (it == values_.end())
        return BadInput(absl::StrCat("output '", output.name(), "' is not computed by any node"));
      const ValueId value = it->second.tensor;
      if (it->second.kind != NamedValue::Kind::kTensor) {
        return absl::UnimplementedError(
            absl::StrCat("output '", output.name(),
                         "' is a sequence or an optional; give out its tensors one by one"));
      }
      outputs.emplace_back(output.name(), value);
    }
    const std::vector<OutputLength> lengths = AddLengths(outputs);
    HEDDLE_ASSIGN_OR_RETURN(Graph graph, builder_.Build(outputs));
    graph.lengths = lengths;
    // What might draw may turn out not to, such as a branch that is not taken.
    if (random_.streams == 0) std::erase(graph.inputs, random_.seed);
    graph = RemoveDead(graph);
    graph.tables = TablesOf(model_, strings_, lists_, graph);
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Value& input = graph.values[graph.inputs[i]];
      graph.tables.inputs[i].samples = samples_.Of(input.name, input.type);
    }
    for (std::string& dropped : DropNamesOverLimits(&graph)) {
      if (options_.warnings != nullptr) options_.warnings->push_back(std::move(dropped));
    }
    if (absl::Status s = CheckTables(graph); !s.ok())
      return BadInput(absl::StrReplaceAll(s.message(), {{"\n", " "}, {"\r", " "}}));
    // Each translation checks what it emits, so an error here comes from the model itself.
    if (absl::Status s = CheckGraph(graph); !s.ok()) {
      return BadInput(absl::StrCat("the model does not make a legal graph (", s.message(),
                                   "); check it with onnx.checker and simplify it"));
    }
    return graph;
  }

  Model& model_;
  const ImportOptions& options_;
  const ElementsByName& elements_;  // of initializers that are not in the file
  const StringInputs& strings_;     // inputs of strings, which are bytes of the module
  const StringLists& lists_;        // of values that hold places of strings
  const ElementTypesByGraph& types_by_graph_;
  // Of the graph whose nodes are translated, and before it those around it.
  std::vector<const ElementTypesByName*> scopes_;
  GraphBuilder builder_;
  NamedValues values_;
  ConstantBudget budget_;
  LengthTable lengths_;
  RandomNumbers random_;
  SampleTable samples_;
  Problems& problems_;
  std::set<std::string> used_;          // names that a node reads, or that are outputs; the seed
  std::set<std::string> initializers_;  // also those that nothing reads
  std::set<std::string> broken_;        // values that a reported problem leaves undefined
  const std::set<std::string> filled_;  // RowCounts::filled
  int64_t nodes_in_subgraphs_ = 0;
  // Initializers and constants of subgraphs, by their part of the model.
  std::map<const void*, ValueId> subgraph_constants_;
};

absl::StatusOr<Graph> ImportParsed(Model model, const ImportOptions& options) {
  HEDDLE_RETURN_IF_ERROR(FixInputValues(model, options));
  ElementsByName elements;
  if (options.external) {
    HEDDLE_ASSIGN_OR_RETURN(elements, TakeExternal(model, options.external));
  }
  Problems problems;
  InlineFunctions(model, problems);
  const StringInputs strings = CodeStrings(model, problems);
  const StringLists lists = NumberLabels(model, problems);
  const ElementTypesByGraph types = CheckModel(model, problems);
  if (problems.HasInvalid()) return problems.Status();
  const absl::Status fixed = FixShapes(model, options);
  if (!fixed.ok()) return problems.empty() ? fixed : problems.Status();
  return Importer(model, elements, types, strings, lists, options, problems).Run();
}

// One graph for several numbers of rows, which `dimension` counts. Nothing if the model's rows are not independent.
absl::StatusOr<std::optional<Graph>> ImportBlocks(std::string_view bytes,
                                                  const std::string& dimension,
                                                  const std::vector<int64_t>& blocks,
                                                  const ImportOptions& options) {
  ImportOptions of_block = options;
  std::optional<Graph> graph;
  for (const int64_t rows : blocks) {
    of_block.shapes[dimension] = {rows};
    HEDDLE_ASSIGN_OR_RETURN(Model model, Model::Parse(bytes));
    absl::StatusOr<Graph> made = ImportParsed(std::move(model), of_block);
    if (!made.ok()) {
      // Whether fewer rows would help.
      of_block.shapes[dimension] = {blocks.back()};
      HEDDLE_ASSIGN_OR_RETURN(Model again, Model::Parse(bytes));
      HEDDLE_RETURN_IF_ERROR(ImportParsed(std::move(again), of_block).status());
      return absl::Status(
          made.status().code(),
          absl::StrCat(made.status().message(), "; this is of ", rows,
                       " rows at once, and --shape ", dimension, "=1,16 takes fewer"));
    }
    of_block.warnings = nullptr;  // the other blocks would warn again
    if (!graph.has_value()) {
      if (!made->tables.independent_rows) return std::nullopt;
      graph = *std::move(made);
    } else if (const absl::Status added = AddRowBlock(*made, &*graph); !added.ok()) {
      return std::nullopt;  // one row is broadcast to several, for instance
    }
  }
  return graph;
}

}  // namespace

absl::StatusOr<Graph> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(Model model, Model::Parse(bytes));
  const std::string dimension = OpenRows(model, options);
  if (dimension.empty()) return ImportParsed(std::move(model), options);
  const auto given = options.shapes.find(dimension);
  const bool asked = given != options.shapes.end();
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> blocks,
                          classical::BlocksOfRows(dimension, asked ? given->second : Shape()));
  HEDDLE_ASSIGN_OR_RETURN(std::optional<Graph> graph,
                          ImportBlocks(bytes, dimension, blocks, options));
  if (graph.has_value()) return *std::move(graph);
  return ImportParsed(std::move(model), options);  // says that the number of rows has to be one
}

}  // namespace heddle::graph
