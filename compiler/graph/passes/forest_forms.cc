#include "compiler/graph/passes/forest_forms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/core/operator.h"
#include "compiler/graph/core/tensor_data.h"

namespace heddle::graph {
namespace {

constexpr std::string_view kNames[] = {"walk", "select", "ranks", "leaves"};
// forest_select allows one more, but its code takes a second to compile there.
constexpr int64_t kMostLevelsOfForm = 7;
constexpr int64_t kMostRanksLevels = 8;
// Each three nodes are a stage, and code of twice as many took minutes to make. A signed byte holds a place among so many.
constexpr int64_t kMostLeavesOfForm = 128;
// The rank of a value among so many thresholds is a byte. A column with more of them is asked as several columns.
constexpr size_t kMostCuts = 255;
constexpr size_t kMostParts = 4;  // of a column; counting more takes longer than walking
// A column with more cuts than this is counted in two steps: whole groups of cuts, and then the cuts of one group. For a single record, the
// rank is found by halving instead.
constexpr size_t kMostCounted = 32;
constexpr int64_t kGroups = 16;  // a table of so many floats lies in one register or two
// Entries of a table that forest_ranks, forest_leaves or digitize needs; larger ones make no sense.
constexpr int64_t kMostEntries = int64_t{1} << 26;

template <typename T>
const T* ElementsOf(const TensorData& data) {
  return reinterpret_cast<const T*>(data.bytes->data());
}

// A forest_walk node of f32 with constant operands.
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

// The tables of a forest. If they are not known, or no tree has levels: nothing, and `why` says which.
std::optional<Walk> WalkOf(const Graph& graph, const Node& node, std::string* why) {
  const auto type = [&](size_t k) -> const TensorType& {
    return graph.values[static_cast<size_t>(node.inputs[k])].type;
  };
  for (size_t k = 1; k < node.inputs.size(); ++k) {
    if (graph.constants.count(node.inputs[k]) > 0) continue;
    *why = "its tables are not constants";
    return std::nullopt;
  }
  if (type(2).dtype != ir::DType::kF32 || type(4).dtype != ir::DType::kF32) {
    *why = "its thresholds and leaves are not f32";
    return std::nullopt;
  }
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
  if (walk.steps < 1) {
    *why = "each of its trees is a leaf";
    return std::nullopt;
  }
  return walk;
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
  // Puts node `from` of the given tree at place `at` of the complete one, and what is below it, too. A leaf that is not deep enough
  // is repeated at all places below it. So is the left child of a node whose threshold is NaN, because no record goes right there.
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

// ---- Trees from left to right ----

// A node that asks, with the leaves of its left subtree.
struct AskedNode {
  int32_t node = 0;
  int32_t span = 0;
};

// The nodes of a tree that ask something, and its leaves, from left to right: node k stands between leaves k and k + 1. What is right
// of a node whose threshold is NaN is not part of the tree, because no record goes there.
struct OrderedTree {
  std::vector<AskedNode> nodes;
  std::vector<int32_t> leaves;  // at least one

  OrderedTree(const Walk& walk, size_t tree) : fits(Add(walk, tree, 0, 0)) {}

  bool fits;  // it has at most kMostLeavesOfForm; otherwise it is not complete

 private:
  bool Add(const Walk& walk, size_t tree, int32_t from, int64_t level) {
    const size_t entry = walk.Entry(tree, from);
    const int32_t left = walk.left[entry];
    if (level == walk.steps || left == from) {
      leaves.push_back(from);
      return std::ssize(leaves) <= kMostLeavesOfForm;
    }
    if (std::isnan(walk.threshold[entry])) return Add(walk, tree, left, level + 1);
    const size_t before = leaves.size();
    if (!Add(walk, tree, left, level + 1)) return false;
    nodes.push_back({from, static_cast<int32_t>(leaves.size() - before)});
    return Add(walk, tree, left + 1, level + 1);
  }
};

// ---- Tables ----

// Makes the tables of a form, or takes them from a memo that knows them.
class TableMaker {
 public:
  // `node` is a forest with constant tables.
  TableMaker(const Graph& graph, const Node& node, FoldMemo& memo) : memo_(memo) {
    for (size_t k = 1; k < node.inputs.size(); ++k) {
      if (const auto found = graph.constants.find(node.inputs[k]); found != graph.constants.end())
        given_.push_back(found->second);
    }
  }

  // `make()` returns `count` tables, which the forest's tables, `kind` and `attrs` determine.
  template <typename Make>
  std::vector<TensorData> Tables(OpKind kind, const Attrs& attrs, int64_t count,
                                 const Make& make) const {
    std::vector<Node> keys;  // no node of a graph has such attributes
    std::vector<TensorData> tables;
    for (int64_t k = 0; k < count; ++k) {
      Node key{kind, "", {}, {}, {}};
      key.attrs = attrs;
      key.attrs.emplace("table", k);
      keys.push_back(std::move(key));
      std::optional<TensorData> known = memo_.Find(keys.back(), given_);
      if (known.has_value()) tables.push_back(*std::move(known));
    }
    if (tables.size() == keys.size()) return tables;
    tables = make();
    for (size_t k = 0; k < keys.size(); ++k)
      tables[k] = memo_.Keep(keys[k], given_, std::move(tables[k]));
    return tables;
  }

 private:
  FoldMemo& memo_;
  std::vector<TensorData> given_;
};

// Whether the tables are those of trees (AreTrees).
bool AreKnownTrees(const Walk& walk, const TableMaker& maker) {
  const std::vector<TensorData> told = maker.Tables(OpKind::kForestWalk, {}, 1, [&] {
    return std::vector<TensorData>{FromElements<uint8_t>({}, {AreTrees(walk)})};
  });
  return *ElementsOf<uint8_t>(told[0]) != 0;
}

// The most nodes of a tree that ask something, but at least one; nothing if a tree has too many leaves.
std::optional<int64_t> MostAsked(const Walk& walk, const TableMaker& maker) {
  const std::vector<TensorData> told =
      maker.Tables(OpKind::kForestLeaves, {{"depth", walk.steps}}, 1, [&] {
        int32_t most = 1;
        for (size_t t = 0; t < walk.Trees() && most > 0; ++t) {
          const OrderedTree tree(walk, t);
          most = tree.fits ? std::max(most, static_cast<int32_t>(tree.nodes.size())) : 0;
        }
        return std::vector<TensorData>{FromElements<int32_t>({}, {most})};
      });
  const int32_t most = *ElementsOf<int32_t>(told[0]);
  return most > 0 ? std::optional<int64_t>(most) : std::nullopt;
}

// ---- Select ----

// Why the forest has no such form; empty: it has.
std::string WhyNoSelect(const Walk& walk) {
  if (walk.values != 1) return absl::StrCat("its leaves have ", walk.values, " values, not one");
  if (walk.steps > kMostLevelsOfForm)
    return absl::StrCat("it has ", walk.steps, " levels, and ", kMostLevelsOfForm, " are the most");
  if (static_cast<int64_t>(walk.Trees()) > kMostEntries >> walk.steps)
    return absl::StrCat("as complete trees of ", walk.steps,
                        " levels its tables would be too large");
  return "";
}

// Trees of one record that stand side by side, in the lanes of vectors of floats, if registers hold its columns. 1: records stand there.
int64_t SelectBlock(const Walk& walk, const machine::TargetInfo& target) {
  const bool one_by_one = walk.records > 1 || walk.columns > machine::kMostLookedUp;
  if (one_by_one || target.execution != machine::Execution::kThreads) return 1;
  const int64_t lanes = std::max(1, target.vector_bytes / 4);
  return walk.trees % lanes == 0 ? lanes : 1;
}

// Columns, thresholds and leaves, as forest_select has them, with `block` trees side by side.
std::vector<TensorData> SelectTables(const Walk& walk, int64_t block) {
  const CompleteTrees trees(walk);
  const auto together = static_cast<size_t>(block);
  // Where entry n of a tree is, each of which has so many.
  const auto at = [&](size_t tree, size_t n, size_t entries) {
    return (tree / together * entries + n) * together + tree % together;
  };
  std::vector<int32_t> columns(trees.inner_nodes.size(), 0);
  std::vector<float> thresholds(trees.inner_nodes.size(), 0), values(trees.leaf_nodes.size());
  for (size_t i = 0; i < trees.inner_nodes.size(); ++i) {
    if (trees.inner_nodes[i] == CompleteTrees::kNone) continue;
    const size_t entry = walk.Entry(i / trees.inner, trees.inner_nodes[i]);
    const size_t to = at(i / trees.inner, i % trees.inner, trees.inner);
    columns[to] = walk.column[entry];
    thresholds[to] = walk.threshold[entry];
  }
  for (size_t i = 0; i < values.size(); ++i) {
    values[at(i / trees.leaves, i % trees.leaves, trees.leaves)] =
        walk.value[walk.Entry(i / trees.leaves, trees.leaf_nodes[i])];
  }
  const auto inner = static_cast<int64_t>(trees.inner);
  Shape nodes{walk.groups, walk.trees / block, inner};
  if (block > 1) nodes.push_back(block);
  return {FromElements(nodes, columns), FromElements(nodes, thresholds),
          FromElements({walk.groups, walk.trees / block, inner + 1, block}, values)};
}

absl::StatusOr<ValueId> MakeSelect(GraphBuilder& out, ValueId x, const Walk& walk,
                                   const TableMaker& maker, const machine::TargetInfo& target,
                                   const std::string& reduce, const std::string& name) {
  const int64_t block = SelectBlock(walk, target);
  const std::vector<TensorData> tables =
      maker.Tables(OpKind::kForestSelect, {{"depth", walk.steps}, {"block", block}}, 3,
                   [&] { return SelectTables(walk, block); });
  return out.Add(
      OpKind::kForestSelect,
      {x, out.Constant(name + "_columns", tables[0]), out.Constant(name + "_thresholds", tables[1]),
       out.Constant(name + "_leaves", tables[2])},
      {{"depth", walk.steps}, {"reduce", reduce}}, name);
}

// ---- Ranks ----

// The different thresholds of each column, sorted.
struct ColumnCuts {
  std::vector<std::vector<float>> of;
  size_t most = 1;  // of a column, but at least one
};

// Nothing if there are too many.
std::optional<ColumnCuts> CutsOf(const Walk& walk) {
  if (walk.columns > kMostEntries) return std::nullopt;
  ColumnCuts cuts;
  cuts.of.resize(static_cast<size_t>(walk.columns));
  for (size_t entry = 0; entry < walk.Trees() * static_cast<size_t>(walk.nodes); ++entry) {
    if (!std::isnan(walk.threshold[entry]))
      cuts.of[static_cast<size_t>(walk.Column(entry))].push_back(walk.threshold[entry]);
  }
  for (std::vector<float>& of : cuts.of) {
    std::sort(of.begin(), of.end());
    // The zeros are one threshold, because they compare as equal.
    of.erase(std::unique(of.begin(), of.end()), of.end());
    of.shrink_to_fit();
    cuts.most = std::max(cuts.most, of.size());
  }
  if (cuts.most > kMostCuts * kMostParts ||
      walk.columns * static_cast<int64_t>(cuts.most) > kMostEntries)
    return std::nullopt;
  return cuts;
}

// A row for each list. What is behind its cuts is NaN, which is never counted.
TensorData TableOf(const std::vector<std::vector<float>>& lists, int64_t entries) {
  std::vector<float> table(lists.size() * static_cast<size_t>(entries),
                           std::numeric_limits<float>::quiet_NaN());
  for (size_t k = 0; k < lists.size(); ++k)
    std::copy(lists[k].begin(), lists[k].end(),
              table.begin() + static_cast<std::ptrdiff_t>(k) * entries);
  return FromElements({std::ssize(lists), entries}, table);
}

// The columns as ranks have them: one with more cuts than a byte counts stands there several times, each time with the next cuts.
struct Cuts {
  std::vector<std::vector<float>> of;  // sorted
  std::vector<int64_t> source;         // the column of the forest
  std::vector<size_t> first;           // of each column of the forest, the first one here
  size_t most = 1;                     // of a column, but at least one

  int64_t Columns() const { return std::ssize(of); }
  // Where a threshold of a column of the forest is: the column here, and the number of its cuts up to there.
  std::pair<size_t, uint8_t> Find(int64_t column, float threshold) const {
    size_t at = first[static_cast<size_t>(column)];
    while (of[at].back() < threshold) ++at;
    const auto cut = std::lower_bound(of[at].begin(), of[at].end(), threshold);
    return {at, static_cast<uint8_t>(cut - of[at].begin() + 1)};
  }
};

// The cuts of CutsOf, or nothing.
std::optional<Cuts> KnownCuts(const Walk& walk, const TableMaker& maker) {
  const std::vector<TensorData> tables =
      maker.Tables(OpKind::kDigitize, {{"columns", walk.columns}}, 1, [&] {
        const ColumnCuts cuts = CutsOf(walk).value_or(ColumnCuts{});
        return std::vector<TensorData>{TableOf(cuts.of, static_cast<int64_t>(cuts.most))};
      });
  const Shape& shape = tables[0].type.shape;
  if (shape[0] == 0) return std::nullopt;  // too many
  Cuts cuts;
  const auto* row = ElementsOf<float>(tables[0]);
  for (int64_t k = 0; k < shape[0]; ++k, row += shape[1]) {
    const float* const end =
        std::find_if(row, row + shape[1], [](float v) { return std::isnan(v); });
    cuts.first.push_back(cuts.of.size());
    const float* begin = row;
    do {
      const float* const part = begin + std::min<std::ptrdiff_t>(end - begin, kMostCuts);
      cuts.of.emplace_back(begin, part);
      cuts.source.push_back(k);
      cuts.most = std::max(cuts.most, cuts.of.back().size());
      begin = part;
    } while (begin != end);
  }
  return cuts;
}

// Why the forest has no such form, whatever its thresholds are; empty: it has.
std::string WhyNoRanks(const Walk& walk, const machine::TargetInfo& target) {
  if (walk.steps > kMostRanksLevels)
    return absl::StrCat("it has ", walk.steps, " levels, and ", kMostRanksLevels, " are the most");
  if (target.execution != machine::Execution::kThreads) return "a GPU has no lanes of bytes";
  const int64_t padded = walk.groups * (walk.trees + std::max(1, target.vector_bytes));
  if (padded > (kMostEntries >> walk.steps) / walk.values)
    return absl::StrCat("as complete trees of ", walk.steps,
                        " levels its tables would be too large");
  return "";
}

// How forest_ranks and forest_leaves have records and trees.
struct BytesLayout {
  int64_t records = 1;  // those behind the model's are padding
  int64_t block = 1;    // trees that stand side by side
  int64_t trees = 1;    // of a group, in whole blocks
  int64_t cuts = 1;     // of a column
  int64_t groups = 1;   // in which they stand; more than one: they are counted in two steps
  bool halves = false;  // they are counted by halving
};

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

BytesLayout BytesLayoutOf(const Walk& walk, const Cuts& cuts, const machine::TargetInfo& target) {
  // So many may be one more, to be odd.
  constexpr int64_t kManyVectors = 16;
  // Where registers are narrower, too many hold the ranks.
  constexpr int64_t kLeastLanes = 32;
  const int64_t lanes = std::max(1, target.vector_bytes);
  BytesLayout layout{.trees = walk.trees, .cuts = static_cast<int64_t>(cuts.most)};
  // The trees of one record stand in the lanes of vectors. They look up its ranks, which a few registers hold.
  if (walk.records == 1 && lanes >= kLeastLanes && cuts.Columns() <= machine::kMostLookedUp &&
      walk.trees > lanes / 4) {
    layout.block = lanes;
    layout.trees = RoundUp(walk.trees, lanes);
    layout.halves = cuts.most > kMostCounted;
    layout.cuts = layout.halves
                      ? static_cast<int64_t>(std::bit_ceil(cuts.most + 1))
                      : RoundUp(layout.cuts, lanes / 4);  // counted in the lanes of vectors
    return layout;
  }
  // Records stand in the lanes. If a power of two divided the number of vectors, the rows of all columns would share few
  // sets of the first-level cache, which takes twice as long.
  int64_t vectors = RoundUp(walk.records, lanes) / lanes;
  if (vectors >= kManyVectors) vectors |= 1;
  layout.records = lanes * vectors;
  if (cuts.most > kMostCounted) {
    const int64_t of_group = (layout.cuts + kGroups - 1) / kGroups;
    layout.groups = (layout.cuts + of_group - 1) / of_group;
    layout.cuts = layout.groups * of_group;
  }
  return layout;
}

// What changes nothing when it is reduced.
float Neutral(const std::string& reduce) {
  if (reduce == "sum") return 0;
  return reduce == "min" ? std::numeric_limits<float>::infinity()
                         : -std::numeric_limits<float>::infinity();
}

// Besides the forest's own tables, what those of forest_ranks and forest_leaves depend on.
Attrs WhatTablesDependOn(const Walk& walk, const BytesLayout& layout, const std::string& reduce) {
  return {{"columns", walk.columns},
          {"depth", walk.steps},
          {"block", layout.block},
          {"reduce", reduce}};
}

// Columns, thresholds and leaves, as forest_ranks has them.
std::vector<TensorData> RanksTables(const Walk& walk, const Cuts& cuts, const BytesLayout& layout,
                                    const std::string& reduce) {
  const CompleteTrees trees(walk);
  const auto of_group = static_cast<size_t>(walk.trees), padded = static_cast<size_t>(layout.trees),
             block = static_cast<size_t>(layout.block), values = static_cast<size_t>(walk.values);
  const size_t all = static_cast<size_t>(walk.groups) * padded;
  std::vector<int32_t> columns(all * trees.inner, 0);
  std::vector<uint8_t> thresholds(all * trees.inner, 0);
  std::vector<float> leaves(all * trees.leaves * values, Neutral(reduce));
  for (size_t tree = 0; tree < walk.Trees(); ++tree) {
    const size_t at = tree / of_group * padded + tree % of_group;
    for (size_t n = 0; n < trees.inner; ++n) {
      const int32_t node = trees.inner_nodes[tree * trees.inner + n];
      if (node == CompleteTrees::kNone) continue;
      const size_t entry = walk.Entry(tree, node);
      const size_t to = (at / block * trees.inner + n) * block + at % block;
      // A value is at least cut j if more than j cuts are not above it.
      const auto [column, rank] = cuts.Find(walk.Column(entry), walk.threshold[entry]);
      columns[to] = static_cast<int32_t>(column);
      thresholds[to] = rank;
    }
    for (size_t n = 0; n < trees.leaves; ++n) {
      const size_t entry = walk.Entry(tree, trees.leaf_nodes[tree * trees.leaves + n]);
      std::copy_n(walk.value + entry * values, values,
                  leaves.begin() + static_cast<std::ptrdiff_t>((at * trees.leaves + n) * values));
    }
  }
  const auto inner = static_cast<int64_t>(trees.inner);
  const Shape nodes{walk.groups, layout.trees / layout.block, inner, layout.block};
  const bool bytes = cuts.Columns() <= 256;
  return {bytes ? FromElements(nodes, std::vector<uint8_t>(columns.begin(), columns.end()))
                : FromElements(nodes, columns),
          FromElements(nodes, thresholds),
          FromElements({walk.groups, layout.trees, inner + 1, walk.values}, leaves)};
}

// What digitize counts the ranks of x by.
std::vector<ValueId> CutTables(GraphBuilder& out, const Cuts& cuts, const BytesLayout& layout,
                               const std::string& name) {
  const TensorData all = TableOf(cuts.of, layout.cuts);
  if (layout.groups == 1) return {out.Constant(name + "_cuts", all)};
  // Of each group but the last one, the last cut; and cut j of all groups side by side.
  const int64_t columns = cuts.Columns(), groups = layout.groups, of_group = layout.cuts / groups;
  const auto* cut = ElementsOf<float>(all);
  std::vector<float> last, side_by_side;
  for (int64_t k = 0; k < columns; ++k, cut += layout.cuts) {
    for (int64_t g = 0; g + 1 < groups; ++g) last.push_back(cut[(g + 1) * of_group - 1]);
    for (int64_t j = 0; j < of_group; ++j) {
      for (int64_t g = 0; g < groups; ++g) side_by_side.push_back(cut[g * of_group + j]);
    }
  }
  return {out.Constant(name + "_group_cuts", FromElements({columns, groups - 1}, last)),
          out.Constant(name + "_cuts", FromElements({columns, of_group, groups}, side_by_side))};
}

// x with that many more records, full of zeros.
absl::StatusOr<ValueId> Padded(GraphBuilder& out, ValueId x, int64_t padding,
                               const std::string& name) {
  if (padding == 0) return x;
  return out.Add(OpKind::kPad, {x}, {{"begin", Shape{0, 0}}, {"end", Shape{0, padding}}},
                 name + "_padded");
}

// The result of this shape: for the model's own records alone.
absl::StatusOr<ValueId> Sliced(GraphBuilder& out, ValueId result, const Shape& shape,
                               const std::string& name) {
  return out.Add(OpKind::kSlice, {result},
                 {{"starts", Shape{0, 0, 0}}, {"steps", Shape{1, 1, 1}}, {"sizes", shape}},
                 name + "_sliced");
}

// Records by which forms that ask x itself pad it. Columns that lie a multiple of a page apart share sets of the first-level cache: for the
// same records, no more of them stay there than it has ways. Two lines more, and 32 columns have sets of their own.
int64_t PaddingOf(ForestForm form, const TensorType& x, const machine::TargetInfo& target) {
  constexpr int64_t kPage = 4096, kWays = 8, kAdded = 128;
  const int64_t size = ir::SizeOf(x.dtype);
  const bool asks_x = form == ForestForm::kWalk || form == ForestForm::kSelect;
  return asks_x && target.execution == machine::Execution::kThreads && x.shape[0] > kWays &&
                 x.shape[1] * size % kPage == 0
             ? kAdded / size
             : 0;
}

// The ranks of x, with as many records as the layout has.
absl::StatusOr<ValueId> RanksOf(GraphBuilder& out, ValueId x, const Walk& walk, const Cuts& cuts,
                                const BytesLayout& layout, const std::string& name) {
  if (cuts.Columns() > walk.columns) {
    HEDDLE_ASSIGN_OR_RETURN(
        x, out.Add(OpKind::kGather, {x, out.Constant(name + "_parts", FromInts(cuts.source))},
                   {{"axis", int64_t{0}}}, name + "_columns_in_parts"));
  }
  HEDDLE_ASSIGN_OR_RETURN(x, Padded(out, x, layout.records - walk.records, name));
  std::vector<ValueId> counted = CutTables(out, cuts, layout, name);
  counted.insert(counted.begin(), x);
  return out.Add(OpKind::kDigitize, counted, {{"sorted", int64_t{layout.halves ? 1 : 0}}},
                 name + "_ranks");
}

// The result without the records that are padding.
absl::StatusOr<ValueId> WithoutPadding(GraphBuilder& out, ValueId result, const Walk& walk,
                                       const BytesLayout& layout, const std::string& name) {
  if (layout.records == walk.records) return result;
  return Sliced(out, result, {walk.groups, walk.values, walk.records}, name);
}

absl::StatusOr<ValueId> MakeRanks(GraphBuilder& out, ValueId x, const Walk& walk, const Cuts& cuts,
                                  const TableMaker& maker, const machine::TargetInfo& target,
                                  const std::string& reduce, const std::string& name) {
  const BytesLayout layout = BytesLayoutOf(walk, cuts, target);
  const std::vector<TensorData> tables =
      maker.Tables(OpKind::kForestRanks, WhatTablesDependOn(walk, layout, reduce), 3,
                   [&] { return RanksTables(walk, cuts, layout, reduce); });
  HEDDLE_ASSIGN_OR_RETURN(const ValueId ranks, RanksOf(out, x, walk, cuts, layout, name));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId result,
                          out.Add(OpKind::kForestRanks,
                                  {ranks, out.Constant(name + "_columns", tables[0]),
                                   out.Constant(name + "_thresholds", tables[1]),
                                   out.Constant(name + "_leaves", tables[2])},
                                  {{"reduce", reduce}}, name));
  return WithoutPadding(out, result, walk, layout, name);
}

// ---- Leaves ----

// Why the forest has no such form; empty: it has. `asked`: MostAsked.
std::string WhyNoLeaves(const Walk& walk, std::optional<int64_t> asked,
                        const machine::TargetInfo& target) {
  if (target.execution != machine::Execution::kThreads) return "a GPU has no lanes of bytes";
  if (!asked.has_value())
    return absl::StrCat("a tree has more than ", kMostLeavesOfForm, " leaves");
  const int64_t padded = walk.groups * (walk.trees + std::max(1, target.vector_bytes));
  if (padded > kMostEntries / (*asked + 1) / walk.values) return "its tables would be too large";
  return "";
}

// Records and trees without ranks, in vectors of floats.
BytesLayout FloatLayout(const Walk& walk, const machine::TargetInfo& target) {
  const int64_t lanes = std::max(1, target.vector_bytes / 4);
  BytesLayout layout{.records = walk.records, .trees = walk.trees};
  if (walk.records > 1 || walk.columns > machine::kMostLookedUp || walk.trees <= lanes / 4)
    return layout;
  layout.block = lanes;
  layout.trees = RoundUp(walk.trees, lanes);
  return layout;
}

BytesLayout LeavesLayout(const Walk& walk, const Cuts* cuts, const machine::TargetInfo& target) {
  return cuts != nullptr ? BytesLayoutOf(walk, *cuts, target) : FloatLayout(walk, target);
}

// A table of numbers that T holds.
template <typename T>
TensorData Narrow(const Shape& shape, const std::vector<int32_t>& numbers) {
  return FromElements(shape, std::vector<T>(numbers.begin(), numbers.end()));
}

// The operands of forest_leaves behind x: columns, thresholds, spans and leaves. With cuts, the thresholds are ranks.
std::vector<TensorData> LeavesTables(const Walk& walk, const Cuts* cuts, const BytesLayout& layout,
                                     int64_t asked, const std::string& reduce) {
  const auto of_group = static_cast<size_t>(walk.trees), padded = static_cast<size_t>(layout.trees),
             block = static_cast<size_t>(layout.block), values = static_cast<size_t>(walk.values),
             inner = static_cast<size_t>(asked);
  const size_t all = static_cast<size_t>(walk.groups) * padded;
  std::vector<int32_t> columns(all * inner, 0), ranks(all * inner, 0), spans(all * inner, 0);
  std::vector<float> thresholds(all * inner, 0);
  std::vector<float> leaves(all * (inner + 1) * values, Neutral(reduce));
  for (size_t t = 0; t < walk.Trees(); ++t) {
    const OrderedTree tree(walk, t);
    const size_t at = t / of_group * padded + t % of_group;
    for (size_t n = 0; n < tree.nodes.size(); ++n) {
      const size_t entry = walk.Entry(t, tree.nodes[n].node);
      const size_t to = (at / block * inner + n) * block + at % block;
      spans[to] = tree.nodes[n].span;
      if (cuts == nullptr) {
        columns[to] = static_cast<int32_t>(walk.Column(entry));
        thresholds[to] = walk.threshold[entry];
        continue;
      }
      const auto [column, rank] = cuts->Find(walk.Column(entry), walk.threshold[entry]);
      columns[to] = static_cast<int32_t>(column);
      ranks[to] = rank;
    }
    // Leaves stand from right to left. Every tree ends at the same place, whatever the number of its nodes.
    for (size_t n = 0; n < tree.leaves.size(); ++n) {
      const size_t entry = walk.Entry(t, tree.leaves[n]);
      std::copy_n(
          walk.value + entry * values, values,
          leaves.begin() + static_cast<std::ptrdiff_t>((at * (inner + 1) + inner - n) * values));
    }
  }
  const Shape nodes{walk.groups, layout.trees / layout.block, asked, layout.block};
  const TensorData leaf_values =
      FromElements({walk.groups, layout.trees, asked + 1, walk.values}, leaves);
  if (cuts == nullptr) {
    return {FromElements(nodes, columns), FromElements(nodes, thresholds),
            FromElements(nodes, spans), leaf_values};
  }
  const bool bytes = cuts->Columns() <= 256;
  return {bytes ? Narrow<uint8_t>(nodes, columns) : FromElements(nodes, columns),
          Narrow<uint8_t>(nodes, ranks), Narrow<int8_t>(nodes, spans), leaf_values};
}

// `cuts`: null if a column has too many; then nodes ask the columns themselves.
absl::StatusOr<ValueId> MakeLeaves(GraphBuilder& out, ValueId x, const Walk& walk, const Cuts* cuts,
                                   int64_t asked, const TableMaker& maker,
                                   const machine::TargetInfo& target, const std::string& reduce,
                                   const std::string& name) {
  const BytesLayout layout = LeavesLayout(walk, cuts, target);
  const std::vector<TensorData> tables =
      maker.Tables(OpKind::kForestLeaves, WhatTablesDependOn(walk, layout, reduce), 4,
                   [&] { return LeavesTables(walk, cuts, layout, asked, reduce); });
  if (cuts != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(x, RanksOf(out, x, walk, *cuts, layout, name));
  }
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId result,
      out.Add(OpKind::kForestLeaves,
              {x, out.Constant(name + "_columns", tables[0]),
               out.Constant(name + "_thresholds", tables[1]),
               out.Constant(name + "_spans", tables[2]), out.Constant(name + "_leaves", tables[3])},
              {{"reduce", reduce}}, name));
  return WithoutPadding(out, result, walk, layout, name);
}

// ---- Choice ----

constexpr double kSumCycles = 16;   // of one record: the lanes in which a column is counted
constexpr double kCutCycles = 1;    // a vector of floats and a cut
constexpr double kGroupCycles = 2;  // the same with a cut that is looked up
constexpr double kHalveCycles = 2;  // the same of one record

// What counting the ranks of one record costs, in cycles of a core.
double CountCycles(const Cuts& cuts, const BytesLayout& layout, double floats) {
  const auto columns = static_cast<double>(cuts.Columns());
  const auto groups = static_cast<double>(layout.groups), all = static_cast<double>(layout.cuts);
  if (layout.halves) return columns * std::log2(all) * kHalveCycles;
  const double cycles = layout.groups == 1
                            ? all * kCutCycles
                            : (groups - 1) * kCutCycles + all / groups * kGroupCycles;
  return columns * (cycles / floats + (layout.block > 1 ? kSumCycles : 0));
}

// What the trees cost for one record, in cycles of a core. `asked`: MostAsked. The cycles of a vector are rough figures for CPUs with AVX-512 and
// about four instructions in a cycle, from the instructions of a node.
double EstimatedCycles(ForestForm form, const Walk& walk, const Cuts* cuts, int64_t asked,
                       const machine::TargetInfo& target) {
  constexpr double kLookups = 3;         // of a step: column, threshold and left child
  constexpr double kSelectCycles = 2.6;  // a vector of floats at a node
  constexpr double kRanksCycles = 1.5;   // a vector of bytes at a node
  constexpr double kTreesCycles = 3;     // the same, of trees: tables and ranks differ by lane
  constexpr double kAskCycles = 2;       // a vector of floats of trees, beside finding columns
  constexpr double kLeavesCycles = 3;    // a vector at a node that rules leaves out
  constexpr double kSpanCycles = 2;      // what the spans add to kTreesCycles
  constexpr double kNodeBytes = 2;       // of a node in tables of bytes; a span is one more
  constexpr double kFloatNodeBytes = 8;  // in tables of columns in 32 bits and of floats
  const auto records = static_cast<double>(walk.records);
  const double nodes = std::exp2(walk.steps) - 1;
  const auto trees = static_cast<double>(walk.Trees());
  const double lookup = 1 / target.graph_core.gathered_per_cycle;
  const double bytes = std::max(4, target.vector_bytes), floats = bytes / 4;
  switch (form) {
    case ForestForm::kWalk:
      return trees * static_cast<double>(walk.steps) * kLookups * lookup;
    case ForestForm::kSelect: {
      const auto block = static_cast<double>(SelectBlock(walk, target));
      if (block == 1) return trees * nodes * kSelectCycles * std::ceil(records / floats) / records;
      // Registers hold the columns if they are few, and a permutation finds those that lie in one. Others are gathered.
      const double find = std::min(static_cast<double>(walk.columns) / floats, block * lookup);
      const double node = std::max((kAskCycles + find) / block,
                                   kFloatNodeBytes / target.graph_core.l2_bytes_per_cycle);
      return trees * nodes * node;
    }
    case ForestForm::kRanks: {
      const BytesLayout layout = BytesLayoutOf(walk, *cuts, target);
      const double padded = static_cast<double>(layout.records) / records;
      const double more_trees = static_cast<double>(layout.trees) / static_cast<double>(walk.trees);
      double node = kRanksCycles / bytes;
      if (layout.block > 1) {
        const double registers = std::ceil(static_cast<double>(cuts->Columns()) / bytes);
        node = std::max(registers * kTreesCycles / bytes,
                        kNodeBytes / target.graph_core.l2_bytes_per_cycle);
      }
      const double tree = nodes * node + static_cast<double>(walk.values) * lookup;
      return padded * (trees * more_trees * tree + CountCycles(*cuts, layout, floats));
    }
    case ForestForm::kLeaves: {
      const BytesLayout layout = LeavesLayout(walk, cuts, target);
      const double lanes = cuts != nullptr ? bytes : floats;
      const double more_trees = static_cast<double>(layout.trees) / static_cast<double>(walk.trees);
      double node = kLeavesCycles / lanes;
      if (layout.block > 1) {
        const auto columns = static_cast<double>(cuts != nullptr ? cuts->Columns() : walk.columns);
        node = std::max((std::ceil(columns / lanes) * kTreesCycles + kSpanCycles) / lanes,
                        (kNodeBytes + 1) * bytes / lanes / target.graph_core.l2_bytes_per_cycle);
      }
      const double tree =
          static_cast<double>(asked) * node + static_cast<double>(walk.values) * lookup;
      const double vectors = std::ceil(static_cast<double>(layout.records) / lanes);
      const double padded = layout.block > 1 ? 1 : vectors * lanes / records;
      const double count = cuts != nullptr ? CountCycles(*cuts, layout, floats) : 0;
      return padded * (trees * more_trees * tree + count);
    }
  }
  return std::numeric_limits<double>::infinity();
}

// The forms of one forest.
class Forms {
 public:
  Forms(const Graph& graph, const Node& node, const machine::TargetInfo& target, FoldMemo& memo)
      : target_(target), walk_(WalkOf(graph, node, &why_none_)), maker_(graph, node, memo) {
    if (!walk_.has_value()) return;
    if (!AreKnownTrees(*walk_, maker_)) {
      walk_.reset();
      why_none_ = "its tables are not those of trees";
      return;
    }
    why_no_ranks_ = WhyNoRanks(*walk_, target);
    asked_ = MostAsked(*walk_, maker_);
    why_no_leaves_ = WhyNoLeaves(*walk_, asked_, target);
    if (!why_no_ranks_.empty() && !why_no_leaves_.empty()) return;
    cuts_ = KnownCuts(*walk_, maker_);
    if (why_no_ranks_.empty() && !cuts_.has_value()) {
      why_no_ranks_ = absl::StrCat("a column has too many different thresholds; ",
                                   kMostCuts * kMostParts, " are the most");
    }
  }

  // Why the forest has no such form; empty: it has.
  std::string WhyNot(ForestForm form) const {
    if (form == ForestForm::kWalk) return "";
    if (!walk_.has_value()) return why_none_;
    if (form == ForestForm::kSelect) return WhyNoSelect(*walk_);
    return form == ForestForm::kRanks ? why_no_ranks_ : why_no_leaves_;
  }
  bool Has(ForestForm form) const { return WhyNot(form).empty(); }

  // The cheapest one.
  ForestForm Estimated() const {
    ForestForm best = ForestForm::kWalk;
    if (!walk_.has_value() || target_.execution != machine::Execution::kThreads) return best;
    const int64_t asked = asked_.value_or(0);
    double least = EstimatedCycles(best, *walk_, KnownOrNull(), asked, target_);
    for (const ForestForm form : kForestForms) {
      if (!Has(form)) continue;
      const double cycles = EstimatedCycles(form, *walk_, KnownOrNull(), asked, target_);
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
    if (form == ForestForm::kSelect)
      return MakeSelect(out, x, *walk_, maker_, target_, reduce, name);
    if (form == ForestForm::kRanks)
      return MakeRanks(out, x, *walk_, *cuts_, maker_, target_, reduce, name);
    return MakeLeaves(out, x, *walk_, KnownOrNull(), *asked_, maker_, target_, reduce, name);
  }

 private:
  const Cuts* KnownOrNull() const { return cuts_.has_value() ? &*cuts_ : nullptr; }

  const machine::TargetInfo& target_;
  std::string why_none_, why_no_ranks_, why_no_leaves_;
  std::optional<Walk> walk_;
  TableMaker maker_;
  std::optional<int64_t> asked_;  // MostAsked
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
                                        const machine::TargetInfo& target, FoldMemo* memo) {
  if (options.plan != nullptr) options.plan->clear();
  FoldMemo of_this_graph;  // blocks of rows share the tables
  FoldMemo& known = memo != nullptr ? *memo : of_this_graph;
  size_t named = 0;
  HEDDLE_ASSIGN_OR_RETURN(
      Graph made,
      RewriteGraph(
          graph, [&](GraphBuilder& out, const Node& node, const Node& original) -> Replacement {
            if (node.kind != OpKind::kForestWalk) return std::nullopt;
            const Forms forms(graph, original, target, known);
            ForestForm form = options.all.value_or(forms.Estimated());
            if (!forms.Has(form)) form = ForestForm::kWalk;
            if (const auto fixed = options.fixed.find(original.name);
                fixed != options.fixed.end()) {
              ++named;
              form = fixed->second;
              if (const std::string why = forms.WhyNot(form); !why.empty()) {
                return absl::InvalidArgumentError(absl::StrCat(
                    "the forest '", original.name, "' has no form '",
                    std::string(ForestFormName(form)), "': ", why,
                    "; choose 'walk', which every forest has, or leave its form open"));
              }
            }
            if (options.plan != nullptr) options.plan->emplace(original.name, form);
            const auto type = [&](ValueId v) -> const TensorType& {
              return graph.values[static_cast<size_t>(v)].type;
            };
            const std::string& name = original.name;
            const int64_t padding = PaddingOf(form, type(original.inputs[0]), target);
            if (form == ForestForm::kWalk && padding == 0) return std::nullopt;
            std::vector<ValueId> operands = node.inputs;
            HEDDLE_ASSIGN_OR_RETURN(operands[0], Padded(out, operands[0], padding, name));
            absl::StatusOr<ValueId> result =
                form == ForestForm::kWalk
                    ? out.Add(node.kind, operands, node.attrs, name)
                    : forms.Make(form, out, operands[0], AttrsOf(original).Text("reduce"), name);
            if (padding > 0 && result.ok())
              result = Sliced(out, *result, type(original.outputs[0]).shape, name);
            HEDDLE_RETURN_IF_ERROR(result.status());
            return *result;
          }));
  if (named != options.fixed.size()) {
    for (const auto& [name, form] : options.fixed) {
      const bool exists = std::any_of(
          graph.nodes.begin(), graph.nodes.end(),
          [&](const Node& node) { return node.kind == OpKind::kForestWalk && node.name == name; });
      if (!exists)
        return absl::InvalidArgumentError(
            absl::StrCat("the plan names a forest '", name, "' that the model does not have"));
    }
  }
  return made;
}

}  // namespace heddle::graph
