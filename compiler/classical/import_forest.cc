#include "compiler/classical/import_forest.h"

#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/vocabulary/row_blocks.h"
#include "compiler/classical/emit_forest.h"
#include "compiler/classical/sample_values.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/row_blocks.h"
#include "compiler/graph/core/table_names.h"
#include "compiler/graph/core/tensor_data.h"

namespace heddle::classical {
namespace {

using graph::GraphBuilder;
using graph::OpKind;
using graph::Shape;
using graph::ValueId;
using ir::DType;

constexpr const char* kInput = "x";
constexpr const char* kRows = "rows";
constexpr int64_t kProposedRows = 1000;

// The numbers of rows that the graph is for, largest first.
absl::StatusOr<std::vector<int64_t>> BlocksOf(
    const Forest& forest, const std::map<std::string, std::vector<int64_t>>& shapes) {
  for (const auto& [name, shape] : shapes) {
    if (name == kInput) {
      if (shape.size() == 2 && shape[0] > 0 && shape[1] == forest.features)
        return std::vector<int64_t>{shape[0]};
      return absl::InvalidArgumentError(
          absl::StrCat("the shape of input 'x' is [rows, features] with ", forest.features,
                       " features; give it as --shape x=", kProposedRows, "x", forest.features));
    }
    if (name != kRows) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has neither an input nor a dimension '", name,
                       "'; it has the input 'x' and its 'rows'"));
    }
  }
  const auto given = shapes.find(kRows);
  return BlocksOfRows(kRows, given == shapes.end() ? std::vector<int64_t>() : given->second);
}

// i64 [rows]
absl::StatusOr<ValueId> Label(GraphBuilder& out, const Forest& forest, ValueId scores,
                              int64_t rows) {
  ValueId number;
  if (forest.outputs == 1) {
    // XGBClassifier asks whether what Booster.predict gives is above one half, also where that is a margin (binary:logitraw).
    // LGBMClassifier takes the first of two equal probabilities.
    HEDDLE_ASSIGN_OR_RETURN(
        ValueId second,
        out.Add(OpKind::kLess,
                {out.Constant("limit", graph::FromElements<float>({1, 1}, {0.5F})), scores}, {},
                "is_second"));
    HEDDLE_ASSIGN_OR_RETURN(
        second, out.Add(OpKind::kCast, {second}, {{"to", std::string("i64")}}, "second"));
    HEDDLE_ASSIGN_OR_RETURN(
        number, out.Add(OpKind::kReshape, {second}, {{"shape", Shape{rows}}}, "number"));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(
        number, out.Add(OpKind::kArgMax, {scores}, {{"axes", Shape{1}}, {"keepdims", int64_t{0}}},
                        "number"));
  }
  return out.Add(OpKind::kGather,
                 {out.Constant("classes", graph::FromInts(forest.classes)), number},
                 {{"axis", int64_t{0}}}, "class_of");
}

// The classes that the outputs score.
std::vector<std::string> ScoreNames(const Forest& forest) {
  std::vector<std::string> names;
  for (int64_t of : forest.classes) names.push_back(absl::StrCat(of));
  if (forest.outputs == 1 && names.size() == 2) names.erase(names.begin());
  return names;
}

// `samples`: of the forest (SampleValues).
absl::StatusOr<graph::Graph> ImportBlock(const Forest& forest, int64_t rows,
                                         const std::vector<std::vector<float>>& samples,
                                         std::vector<std::string>* warnings) {
  GraphBuilder out;
  const ValueId x = out.Input(kInput, {DType::kF32, {rows, forest.features}});
  HEDDLE_ASSIGN_OR_RETURN(const ValueId margins, EmitMargins(out, x, forest));
  HEDDLE_ASSIGN_OR_RETURN(ValueId scores, EmitTransform(out, margins, forest.transform));
  std::vector<std::pair<std::string, ValueId>> outputs;
  if (!forest.classes.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const ValueId label, Label(out, forest, scores, rows));
    outputs.emplace_back("label", label);
  }
  if (forest.outputs == 1) {
    HEDDLE_ASSIGN_OR_RETURN(
        scores, out.Add(OpKind::kReshape, {scores}, {{"shape", Shape{rows}}}, "row_scores"));
  }
  outputs.insert(outputs.begin(), {"scores", scores});
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, out.Build(outputs));
  graph.tables.independent_rows = true;
  graph.tables.inputs = {{.columns = forest.feature_names, .samples = samples}};
  graph.tables.outputs.resize(outputs.size());
  graph.tables.outputs[0].columns = ScoreNames(forest);
  const std::vector<std::string> dropped = graph::DropNamesOverLimits(&graph);
  if (warnings != nullptr) {
    warnings->insert(warnings->end(), dropped.begin(), dropped.end());
    warnings->insert(warnings->end(), forest.warnings.begin(), forest.warnings.end());
  }
  HEDDLE_RETURN_IF_ERROR(graph::CheckTables(graph));
  return graph;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> BlocksOfRows(const std::string& dimension,
                                                  const std::vector<int64_t>& given) {
  std::set<int64_t, std::greater<>> blocks(given.begin(), given.end());
  if (blocks.empty()) blocks.insert(std::begin(kUsualBlocks), std::end(kUsualBlocks));
  if (*blocks.rbegin() < 1 || blocks.size() > kMostRowBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", dimension, "' is one number of rows or up to ", kMostRowBlocks,
                     " of them, each at least 1; give them as --shape ", dimension, "=",
                     absl::StrJoin(kUsualBlocks, ",")));
  }
  return std::vector<int64_t>(blocks.begin(), blocks.end());
}

absl::StatusOr<graph::Graph> ImportForest(const Forest& forest,
                                          const std::map<std::string, std::vector<int64_t>>& shapes,
                                          std::vector<std::string>* warnings) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> blocks, BlocksOf(forest, shapes));
  const std::vector<std::vector<float>> samples = SampleValues(forest, graph::kMostSamples);
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, ImportBlock(forest, blocks[0], samples, warnings));
  for (size_t b = 1; b < blocks.size(); ++b) {
    HEDDLE_ASSIGN_OR_RETURN(const graph::Graph block,
                            ImportBlock(forest, blocks[b], samples, nullptr));
    HEDDLE_RETURN_IF_ERROR(graph::AddRowBlock(block, &graph));
  }
  return graph;
}

}  // namespace heddle::classical
