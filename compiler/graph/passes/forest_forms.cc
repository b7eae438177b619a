#include "compiler/graph/passes/forest_forms.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"

namespace heddle::graph {
namespace {

constexpr std::string_view kNames[] = {"walk", "select"};
// forest_select allows one more, but its code takes a second to compile there.
constexpr int64_t kMostLevels = 7;

template <typename T>
const T* ElementsOf(const TensorData& data) {
  return reinterpret_cast<const T*>(data.bytes->data());
}

template <typename T>
TensorData Data(ir::DType dtype, Shape shape, const std::vector<T>& elements) {
  std::string bytes(elements.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return {{dtype, std::move(shape)}, SharedBytes::Of(std::move(bytes))};
}

int64_t Steps(const Node& node) { return AttrsOf(node).Int("steps"); }

// Whether the node is an imported forest whose tables are known, and its leaves have one value.
bool HasSelect(const Graph& graph, const Node& node) {
  for (size_t k = 1; k < node.inputs.size(); ++k) {
    if (graph.constants.count(node.inputs[k]) == 0) return false;
  }
  const Shape& values = graph.values[static_cast<size_t>(node.inputs[4])].type.shape;
  const TensorType& thresholds = graph.values[static_cast<size_t>(node.inputs[2])].type;
  return values[3] == 1 && Steps(node) >= 1 && Steps(node) <= kMostLevels &&
         thresholds.dtype == ir::DType::kF32 &&
         graph.values[static_cast<size_t>(node.inputs[4])].type.dtype == ir::DType::kF32;
}

// A node of a complete tree costs a comparison and a selection, a step of a walk three look-ups, which take about as long for
// a vector as there are lanes in it.
ForestForm Estimated(const Graph& graph, const Node& node, const machine::TargetInfo& target) {
  if (!HasSelect(graph, node)) return ForestForm::kWalk;
  const int64_t lanes = std::max<int64_t>(1, target.vector_bytes / 4);
  const int64_t records = graph.values[static_cast<size_t>(node.inputs[0])].type.shape[1];
  if (target.execution != machine::Execution::kThreads || records < lanes) return ForestForm::kWalk;
  const int64_t steps = Steps(node);
  return (int64_t{1} << steps) - 1 <= steps * lanes ? ForestForm::kSelect : ForestForm::kWalk;
}

// The tables of forest_select from those of forest_walk.
class CompleteTrees {
 public:
  CompleteTrees(const Graph& graph, const Node& node)
      : depth_(Steps(node)),
        trees_(graph.values[static_cast<size_t>(node.inputs[1])].type.shape),
        columns_(ElementsOf<int32_t>(graph.constants.at(node.inputs[1]))),
        thresholds_(ElementsOf<float>(graph.constants.at(node.inputs[2]))),
        left_(ElementsOf<int32_t>(graph.constants.at(node.inputs[3]))),
        values_(ElementsOf<float>(graph.constants.at(node.inputs[4]))) {
    const auto trees = static_cast<size_t>(trees_[0] * trees_[1]);
    const size_t inner = (size_t{1} << depth_) - 1;
    made_columns_.assign(trees * inner, 0);
    made_thresholds_.assign(trees * inner, 0);
    made_values_.assign(trees * (inner + 1), 0);
    for (size_t t = 0; t < trees; ++t) Complete(t, 0, 0);
  }

  // In the order of kCompleteTables.
  std::vector<TensorData> Tables() const {
    const int64_t inner = (int64_t{1} << depth_) - 1;
    const Shape nodes{trees_[0], trees_[1], inner}, leaves{trees_[0], trees_[1], inner + 1, 1};
    return {Data(ir::DType::kI32, nodes, made_columns_),
            Data(ir::DType::kF32, nodes, made_thresholds_),
            Data(ir::DType::kF32, leaves, made_values_)};
  }

 private:
  // Node `at` of the complete tree `tree` (level by level) is node `from` of the given one. Below a leaf, whatever is asked
  // leads to the leaf's value.
  void Complete(size_t tree, size_t at, int32_t from) {
    const size_t inner = (size_t{1} << depth_) - 1;
    const size_t entry = tree * static_cast<size_t>(trees_[2]) + static_cast<size_t>(from);
    if (at >= inner) {
      made_values_[tree * (inner + 1) + at - inner] = values_[entry];
      return;
    }
    const bool leaf = left_[entry] == from;
    if (!leaf) {
      made_columns_[tree * inner + at] = columns_[entry];
      made_thresholds_[tree * inner + at] = thresholds_[entry];
    }
    Complete(tree, 2 * at + 1, leaf ? from : left_[entry]);
    Complete(tree, 2 * at + 2, leaf ? from : left_[entry] + 1);
  }

  int64_t depth_;
  Shape trees_;
  const int32_t* columns_;
  const float* thresholds_;
  const int32_t* left_;
  const float* values_;
  std::vector<int32_t> made_columns_;
  std::vector<float> made_thresholds_, made_values_;
};

constexpr const char* kCompleteTables[] = {"columns", "thresholds", "leaves"};

// The tables of forest_select, from `memo` (optional) if it knows them.
std::vector<TensorData> MakeCompleteTables(const Graph& graph, const Node& node, FoldMemo* memo) {
  if (memo == nullptr) return CompleteTrees(graph, node).Tables();
  std::vector<TensorData> given;
  for (size_t k = 1; k < node.inputs.size(); ++k)
    given.push_back(graph.constants.at(node.inputs[k]));
  std::vector<Node> keys;  // no node of a graph has such attributes
  std::vector<TensorData> tables;
  for (const char* table : kCompleteTables) {
    Node key{OpKind::kForestSelect, "", {}, {}, {}};
    key.attrs = {{"depth", Steps(node)}, {"table", std::string(table)}};
    keys.push_back(std::move(key));
    std::optional<TensorData> known = memo->Find(keys.back(), given);
    if (known.has_value()) tables.push_back(*std::move(known));
  }
  if (tables.size() == keys.size()) return tables;
  tables = CompleteTrees(graph, node).Tables();
  for (size_t k = 0; k < keys.size(); ++k)
    tables[k] = memo->Keep(keys[k], given, std::move(tables[k]));
  return tables;
}

// A walk of `steps` steps ends in a leaf if its tables are those of trees; then children come after their parents.
bool AreTrees(const Graph& graph, const Node& node) {
  const Shape& shape = graph.values[static_cast<size_t>(node.inputs[3])].type.shape;
  const int32_t* left = ElementsOf<int32_t>(graph.constants.at(node.inputs[3]));
  const auto trees = static_cast<size_t>(shape[0] * shape[1]);
  for (size_t t = 0; t < trees; ++t) {
    for (int64_t n = 0; n < shape[2]; ++n) {
      const int32_t to = left[t * static_cast<size_t>(shape[2]) + static_cast<size_t>(n)];
      if (to == n) continue;
      // Padding behind a tree is never reached, and is full of zeros.
      if (to == 0) continue;
      if (to < n || to + 1 >= shape[2]) return false;
    }
  }
  return true;
}

}  // namespace

std::string_view ForestFormName(ForestForm form) { return kNames[static_cast<size_t>(form)]; }

std::optional<ForestForm> ForestFormFromName(std::string_view name) {
  for (const ForestForm form : kForestForms) {
    if (ForestFormName(form) == name) return form;
  }
  return std::nullopt;
}

absl::StatusOr<Graph> AssignForestForms(const Graph& graph, const ForestOptions& options,
                                        const machine::TargetInfo& target, FoldMemo* memo) {
  if (options.plan != nullptr) options.plan->clear();
  size_t named = 0;
  HEDDLE_ASSIGN_OR_RETURN(
      Graph made,
      RewriteGraph(
          graph, [&](GraphBuilder& out, const Node& node, const Node& original) -> Replacement {
            if (node.kind != OpKind::kForestWalk) return std::nullopt;
            const bool has_select = HasSelect(graph, original) && AreTrees(graph, original);
            ForestForm form = Estimated(graph, original, target);
            if (options.all.has_value()) form = *options.all;
            if (!has_select) form = ForestForm::kWalk;
            if (const auto fixed = options.fixed.find(original.name);
                fixed != options.fixed.end()) {
              ++named;
              form = fixed->second;
              if (form == ForestForm::kSelect && !has_select)
                return absl::InvalidArgumentError(
                    absl::StrCat("the forest '", original.name, "' has no form 'select'"));
            }
            if (options.plan != nullptr) options.plan->emplace(original.name, form);
            if (form == ForestForm::kWalk) return std::nullopt;
            std::vector<ValueId> inputs{node.inputs[0]};
            const std::vector<TensorData> tables = MakeCompleteTables(graph, original, memo);
            for (size_t k = 0; k < tables.size(); ++k) {
              inputs.push_back(
                  out.Constant(absl::StrCat(original.name, "_", kCompleteTables[k]), tables[k]));
            }
            HEDDLE_ASSIGN_OR_RETURN(
                const ValueId result,
                out.Add(OpKind::kForestSelect, std::move(inputs),
                        {{"depth", Steps(original)}, {"reduce", AttrsOf(original).Text("reduce")}},
                        original.name));
            return result;
          }));
  if (named != options.fixed.size()) {
    for (const auto& [name, form] : options.fixed) {
      const bool known = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
        return node.kind == OpKind::kForestWalk && node.name == name;
      });
      if (!known)
        return absl::InvalidArgumentError(
            absl::StrCat("the plan names a forest '", name, "' that the model does not have"));
    }
  }
  return made;
}

}  // namespace heddle::graph
