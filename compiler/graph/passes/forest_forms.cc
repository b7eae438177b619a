#include "compiler/graph/passes/forest_forms.h"

#include <algorithm>
#include <cmath>
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

constexpr std::string_view kNames[] = {"walk", "select", "ranks"};
// forest_select allows one more, but its code takes a second to compile there.
constexpr int64_t kMostSelectLevels = 7;
constexpr int64_t kMostRanksLevels = 8;
// The rank of a value among so many thresholds is a byte.
constexpr size_t kMostCuts = 255;
// Entries of a table that forest_ranks or digitize needs; larger ones make no sense.
constexpr int64_t kMostEntries = int64_t{1} << 26;

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

// An imported forest whose tables are known: a forest_walk node of f32 with constant operands.
struct Walk {
  int64_t columns = 0, records = 0;
  int64_t groups = 0, trees = 0, nodes = 0, values = 0;
  int64_t steps = 0;
  const int32_t* column = nullptr;
  const float* threshold = nullptr;
  const int32_t* left = nullptr;
  const float* value = nullptr;

  size_t Trees() const { return static_cast<size_t>(groups * trees); }
  // The entry of a tree's node in the tables.
  size_t Entry(size_t tree, int64_t node) const {
    return tree * static_cast<size_t>(nodes) + static_cast<size_t>(node);
  }
  // forest_walk reads the nearest column if there is no such column.
  int64_t Column(size_t entry) const { return std::clamp<int64_t>(column[entry], 0, columns - 1); }
};

// A walk ends in a leaf after as many steps as there are levels if its tables are those of trees: children come after their
// parents, and nothing goes right of a leaf.
bool AreTrees(const Walk& walk) {
  for (size_t t = 0; t < walk.Trees(); ++t) {
    for (int64_t n = 0; n < walk.nodes; ++n) {
      const size_t entry = walk.Entry(t, n);
      const int32_t to = walk.left[entry];
      if (to == n) {
        if (!std::isnan(walk.threshold[entry])) return false;
        continue;
      }
      // Padding behind a tree is never reached, and is full of zeros.
      if (to == 0) continue;
      if (to < n || to + 1 >= walk.nodes) return false;
    }
  }
  return true;
}

std::optional<Walk> KnownWalk(const Graph& graph, const Node& node) {
  const auto type = [&](size_t k) -> const TensorType& {
    return graph.values[static_cast<size_t>(node.inputs[k])].type;
  };
  for (size_t k = 1; k < node.inputs.size(); ++k) {
    if (graph.constants.count(node.inputs[k]) == 0) return std::nullopt;
  }
  if (type(2).dtype != ir::DType::kF32 || type(4).dtype != ir::DType::kF32) return std::nullopt;
  const auto data = [&](size_t k) -> const TensorData& {
    return graph.constants.at(node.inputs[k]);
  };
  Walk walk{.columns = type(0).shape[0],
            .records = type(0).shape[1],
            .groups = type(4).shape[0],
            .trees = type(4).shape[1],
            .nodes = type(4).shape[2],
            .values = type(4).shape[3],
            .steps = AttrsOf(node).Int("steps"),
            .column = ElementsOf<int32_t>(data(1)),
            .threshold = ElementsOf<float>(data(2)),
            .left = ElementsOf<int32_t>(data(3)),
            .value = ElementsOf<float>(data(4))};
  return AreTrees(walk) ? std::optional(walk) : std::nullopt;
}

// ---- Complete trees ----

// Which nodes of a walk stand in complete trees of as many levels as the walk has steps.
struct CompleteTrees {
  static constexpr int32_t kNone = -1;

  explicit CompleteTrees(const Walk& of)
      : walk(of), inner((size_t{1} << of.steps) - 1), leaves(inner + 1) {
    inner_nodes.assign(walk.Trees() * inner, kNone);
    leaf_nodes.assign(walk.Trees() * leaves, 0);
    for (size_t t = 0; t < walk.Trees(); ++t) Complete(t, 0, 0);
  }

  const Walk& walk;
  size_t inner, leaves;              // of one tree
  std::vector<int32_t> inner_nodes;  // level by level; kNone: both sides of it are alike
  std::vector<int32_t> leaf_nodes;   // from left to right

 private:
  // Node `at` of the complete tree is node `from` of the given one. Below a leaf, and below a node that nothing goes right of,
  // whatever is asked leads to the same leaf.
  void Complete(size_t tree, size_t at, int32_t from) {
    const size_t entry = walk.Entry(tree, from);
    if (at >= inner) {
      leaf_nodes[tree * leaves + at - inner] = from;
      return;
    }
    const int32_t left = walk.left[entry];
    const bool asks = !std::isnan(walk.threshold[entry]);
    if (asks) inner_nodes[tree * inner + at] = from;
    Complete(tree, 2 * at + 1, left);
    Complete(tree, 2 * at + 2, asks ? left + 1 : left);
  }
};

// ---- Select ----

bool HasSelect(const Walk& walk) {
  return walk.values == 1 && walk.steps >= 1 && walk.steps <= kMostSelectLevels;
}

absl::StatusOr<ValueId> MakeSelect(GraphBuilder& out, ValueId x, const Walk& walk,
                                   const std::string& reduce, const std::string& name) {
  const CompleteTrees trees(walk);
  std::vector<int32_t> columns(trees.inner_nodes.size(), 0);
  std::vector<float> thresholds(trees.inner_nodes.size(), 0), values(trees.leaf_nodes.size());
  for (size_t i = 0; i < trees.inner_nodes.size(); ++i) {
    if (trees.inner_nodes[i] == CompleteTrees::kNone) continue;
    const size_t entry = walk.Entry(i / trees.inner, trees.inner_nodes[i]);
    columns[i] = walk.column[entry];
    thresholds[i] = walk.threshold[entry];
  }
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = walk.value[walk.Entry(i / trees.leaves, trees.leaf_nodes[i])];
  const auto inner = static_cast<int64_t>(trees.inner);
  const Shape nodes{walk.groups, walk.trees, inner};
  const Shape leaves{walk.groups, walk.trees, inner + 1, 1};
  return out.Add(OpKind::kForestSelect,
                 {x, out.Constant(name + "_columns", Data(ir::DType::kI32, nodes, columns)),
                  out.Constant(name + "_thresholds", Data(ir::DType::kF32, nodes, thresholds)),
                  out.Constant(name + "_leaves", Data(ir::DType::kF32, leaves, values))},
                 {{"depth", walk.steps}, {"reduce", reduce}}, name);
}

// ---- Ranks ----

// The different thresholds of each column, sorted.
struct Cuts {
  std::vector<std::vector<float>> of;
  size_t most = 1;  // of a column, but at least one
};

// Nothing if there are too many.
std::optional<Cuts> CutsOf(const Walk& walk) {
  if (walk.columns > kMostEntries) return std::nullopt;
  Cuts cuts;
  cuts.of.resize(static_cast<size_t>(walk.columns));
  for (size_t entry = 0; entry < walk.Trees() * static_cast<size_t>(walk.nodes); ++entry) {
    const float threshold = walk.threshold[entry];
    if (std::isnan(threshold)) continue;
    std::vector<float>& of = cuts.of[static_cast<size_t>(walk.Column(entry))];
    // The zeros are one threshold, because they compare as equal.
    const auto at = std::lower_bound(of.begin(), of.end(), threshold);
    if (at != of.end() && *at == threshold) continue;
    if (of.size() == kMostCuts) return std::nullopt;
    of.insert(at, threshold);
    cuts.most = std::max(cuts.most, of.size());
  }
  if (walk.columns * static_cast<int64_t>(cuts.most) > kMostEntries) return std::nullopt;
  return cuts;
}

bool HasRanks(const Walk& walk, const machine::TargetInfo& target) {
  if (target.execution != machine::Execution::kThreads)
    return false;  // a GPU has no lanes of bytes
  if (walk.steps < 1 || walk.steps > kMostRanksLevels) return false;
  return static_cast<int64_t>(walk.Trees()) <= (kMostEntries >> walk.steps) / walk.values;
}

// The number of records that forest_ranks computes. Records stand in the lanes of vectors, and two vectors share what is
// read of a node.
int64_t PaddedRecords(int64_t records, const machine::TargetInfo& target) {
  // So many tiles may be one more, to be odd.
  constexpr int64_t kManyTiles = 16;
  const int64_t lanes = std::max(1, target.vector_bytes);
  if (records <= lanes) return lanes;
  int64_t tiles = (records + 2 * lanes - 1) / (2 * lanes);
  // The rows of an even number of tiles would share few sets of the first-level cache.
  if (tiles >= kManyTiles) tiles |= 1;
  return 2 * lanes * tiles;
}

absl::StatusOr<ValueId> MakeRanks(GraphBuilder& out, ValueId x, const Walk& walk, const Cuts& cuts,
                                  const machine::TargetInfo& target, const std::string& reduce,
                                  const std::string& name) {
  const CompleteTrees trees(walk);
  const int64_t most = static_cast<int64_t>(cuts.most), rows = walk.columns;
  std::vector<float> table(static_cast<size_t>(rows * most),
                           std::numeric_limits<float>::quiet_NaN());  // which is never counted
  for (size_t k = 0; k < cuts.of.size(); ++k)
    std::copy(cuts.of[k].begin(), cuts.of[k].end(), table.begin() + static_cast<int64_t>(k) * most);
  std::vector<int32_t> columns(trees.inner_nodes.size(), 0);
  std::vector<uint8_t> thresholds(trees.inner_nodes.size(), 0);
  for (size_t i = 0; i < trees.inner_nodes.size(); ++i) {
    if (trees.inner_nodes[i] == CompleteTrees::kNone) continue;
    const size_t entry = walk.Entry(i / trees.inner, trees.inner_nodes[i]);
    columns[i] = static_cast<int32_t>(walk.Column(entry));
    const std::vector<float>& of = cuts.of[static_cast<size_t>(columns[i])];
    const auto at = std::lower_bound(of.begin(), of.end(), walk.threshold[entry]);
    // A value is at least cut j if more than j cuts are not above it.
    thresholds[i] = static_cast<uint8_t>(at - of.begin() + 1);
  }
  const auto values = static_cast<size_t>(walk.values);
  std::vector<float> leaves(trees.leaf_nodes.size() * values);
  for (size_t i = 0; i < trees.leaf_nodes.size(); ++i) {
    const size_t entry = walk.Entry(i / trees.leaves, trees.leaf_nodes[i]);
    std::copy_n(walk.value + entry * values, values,
                leaves.begin() + static_cast<std::ptrdiff_t>(i * values));
  }
  const auto inner = static_cast<int64_t>(trees.inner);
  const Shape nodes{walk.groups, walk.trees, inner, 1};
  TensorData column_table = Data(ir::DType::kI32, nodes, columns);
  if (rows <= 256) {
    column_table =
        Data(ir::DType::kU8, nodes, std::vector<uint8_t>(columns.begin(), columns.end()));
  }
  const int64_t padded = PaddedRecords(walk.records, target);
  if (padded != walk.records) {
    HEDDLE_ASSIGN_OR_RETURN(
        x, out.Add(OpKind::kPad, {x},
                   {{"begin", Shape{0, 0}}, {"end", Shape{0, padded - walk.records}}},
                   name + "_padded"));
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId ranks,
      out.Add(OpKind::kDigitize,
              {x, out.Constant(name + "_cuts", Data(ir::DType::kF32, {rows, most}, table))}, {},
              name + "_ranks"));
  const Shape values_shape{walk.groups, walk.trees, inner + 1, walk.values};
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId result,
      out.Add(OpKind::kForestRanks,
              {ranks, out.Constant(name + "_columns", std::move(column_table)),
               out.Constant(name + "_thresholds", Data(ir::DType::kU8, nodes, thresholds)),
               out.Constant(name + "_leaves", Data(ir::DType::kF32, values_shape, leaves))},
              {{"reduce", reduce}}, name));
  if (padded == walk.records) return result;
  return out.Add(OpKind::kSlice, {result},
                 {{"starts", Shape{0, 0, 0}},
                  {"steps", Shape{1, 1, 1}},
                  {"sizes", Shape{walk.groups, walk.values, walk.records}}},
                 name + "_sliced");
}

// ---- Choice ----

// What the trees cost for one record, in cycles of a core. The cycles of a vector are rough figures for CPUs with AVX-512 and
// four instructions in a cycle, from the instructions of a node: in bytes, the threshold and the column are read for two vectors.
double EstimatedCycles(ForestForm form, const Walk& walk, const Cuts* cuts,
                       const machine::TargetInfo& target) {
  constexpr double kLookups = 3;  // of a step: column, threshold, value; the next node is computed
  constexpr double kSelectCycles =
      2.6;  // of a vector of floats at a node: two loads, a comparison, a selection
  constexpr double kRanksCycles = 1.5;  // of a vector of bytes at a node
  constexpr double kCutCycles = 1;      // of a vector of floats and a cut
  const auto records = static_cast<double>(walk.records);
  const double nodes = std::exp2(walk.steps) - 1;
  const auto trees = static_cast<double>(walk.Trees());
  const double lookups = 1 / target.core.gathered_per_cycle;
  const int64_t lanes = std::max<int64_t>(1, target.vector_bytes / 4);
  switch (form) {
    case ForestForm::kWalk:
      return trees * static_cast<double>(walk.steps) * kLookups * lookups;
    case ForestForm::kSelect: {
      const double vectors = std::ceil(records / static_cast<double>(lanes));
      return trees * nodes * kSelectCycles * vectors / records;
    }
    case ForestForm::kRanks: {
      const double more = static_cast<double>(PaddedRecords(walk.records, target)) / records;
      const double bytes = std::max(1, target.vector_bytes);
      const double counted =
          static_cast<double>(walk.columns) * static_cast<double>(cuts->most) * kCutCycles;
      const double tree = nodes * kRanksCycles / bytes + static_cast<double>(walk.values) * lookups;
      return more * (trees * tree + counted / static_cast<double>(lanes));
    }
  }
  return std::numeric_limits<double>::infinity();
}

// The forms of one forest.
class Forms {
 public:
  Forms(const Graph& graph, const Node& node, const machine::TargetInfo& target)
      : target_(target), walk_(KnownWalk(graph, node)) {
    if (walk_.has_value() && HasRanks(*walk_, target)) cuts_ = CutsOf(*walk_);
  }

  bool Has(ForestForm form) const {
    switch (form) {
      case ForestForm::kWalk:
        return true;
      case ForestForm::kSelect:
        return walk_.has_value() && HasSelect(*walk_);
      case ForestForm::kRanks:
        return cuts_.has_value();
    }
    return false;
  }

  // The cheapest one.
  ForestForm Estimated() const {
    ForestForm best = ForestForm::kWalk;
    if (!walk_.has_value() || target_.execution != machine::Execution::kThreads) return best;
    const Cuts* cuts = cuts_.has_value() ? &*cuts_ : nullptr;
    double least = EstimatedCycles(best, *walk_, cuts, target_);
    for (const ForestForm form : kForestForms) {
      if (!Has(form)) continue;
      const double cycles = EstimatedCycles(form, *walk_, cuts, target_);
      if (cycles < least) {
        least = cycles;
        best = form;
      }
    }
    return best;
  }

  // The forest in a form that it has, other than kWalk.
  absl::StatusOr<ValueId> Make(ForestForm form, GraphBuilder& out, ValueId x,
                               const std::string& reduce, const std::string& name) const {
    return form == ForestForm::kSelect ? MakeSelect(out, x, *walk_, reduce, name)
                                       : MakeRanks(out, x, *walk_, *cuts_, target_, reduce, name);
  }

 private:
  const machine::TargetInfo& target_;
  std::optional<Walk> walk_;
  std::optional<Cuts> cuts_;
};

}  // namespace

std::string_view ForestFormName(ForestForm form) { return kNames[static_cast<size_t>(form)]; }

std::optional<ForestForm> ForestFormFromName(std::string_view name) {
  for (const ForestForm form : kForestForms) {
    if (ForestFormName(form) == name) return form;
  }
  return std::nullopt;
}

absl::StatusOr<Graph> AssignForestForms(const Graph& graph, const ForestOptions& options,
                                        const machine::TargetInfo& target) {
  if (options.plan != nullptr) options.plan->clear();
  size_t named = 0;
  HEDDLE_ASSIGN_OR_RETURN(
      Graph made,
      RewriteGraph(
          graph, [&](GraphBuilder& out, const Node& node, const Node& original) -> Replacement {
            if (node.kind != OpKind::kForestWalk) return std::nullopt;
            const Forms forms(graph, original, target);
            ForestForm form = options.all.value_or(forms.Estimated());
            if (!forms.Has(form)) form = ForestForm::kWalk;
            if (const auto fixed = options.fixed.find(original.name);
                fixed != options.fixed.end()) {
              ++named;
              form = fixed->second;
              if (!forms.Has(form)) {
                return absl::InvalidArgumentError(
                    absl::StrCat("the forest '", original.name, "' has no form '",
                                 std::string(ForestFormName(form)), "'"));
              }
            }
            if (options.plan != nullptr) options.plan->emplace(original.name, form);
            if (form == ForestForm::kWalk) return std::nullopt;
            HEDDLE_ASSIGN_OR_RETURN(const ValueId result,
                                    forms.Make(form, out, node.inputs[0],
                                               AttrsOf(original).Text("reduce"), original.name));
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
