#include "compiler/classical/emit_forest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/graph/core/tensor_data.h"

namespace heddle::classical {
namespace {

using graph::Attrs;
using graph::FromElements;
using graph::GraphBuilder;
using graph::OpKind;
using graph::Shape;
using graph::TensorType;
using graph::ValueId;
using ir::DType;

// Trees are added to each group until its number is a multiple of this, so that vectors may run over them.
constexpr int64_t kTreesTogether = 16;
// Entries of all tables of a forest together: 2^28 of 4 bytes are 1 GiB.
constexpr int64_t kMostEntries = int64_t{1} << 28;

ValueId Scalar(GraphBuilder& out, const std::string& name, float value) {
  return out.Constant(name, FromElements({1, 1}, std::vector<float>{value}));
}

// ---- Columns ----

// Columns with a value come first in x', then those of members; each in the order of the features, so that these need not be
// turned about.
struct ColumnOrder {
  std::vector<int> values, members;  // numbers of columns
  std::vector<int32_t> place;        // of each column in x'
};

ColumnOrder OrderOf(const Forest& forest) {
  ColumnOrder order;
  for (size_t k = 0; k < forest.columns.size(); ++k) {
    (forest.columns[k].kind == Column::Kind::kValue ? order.values : order.members)
        .push_back(static_cast<int>(k));
  }
  order.place.resize(forest.columns.size());
  int32_t next = 0;
  for (auto* part : {&order.values, &order.members}) {
    std::stable_sort(part->begin(), part->end(), [&](int a, int b) {
      return forest.columns[static_cast<size_t>(a)].feature <
             forest.columns[static_cast<size_t>(b)].feature;
    });
    for (const int k : *part) order.place[static_cast<size_t>(k)] = next++;
  }
  return order;
}

// The features of these columns, [rows, columns].
absl::StatusOr<ValueId> Pick(GraphBuilder& out, ValueId x, const Forest& forest,
                             const std::vector<int>& columns) {
  std::vector<int64_t> features;
  bool all = static_cast<int>(columns.size()) == forest.features;
  for (size_t i = 0; i < columns.size(); ++i) {
    features.push_back(forest.columns[static_cast<size_t>(columns[i])].feature);
    all &= features.back() == static_cast<int64_t>(i);
  }
  if (all) return x;
  return out.Add(OpKind::kGather, {x, out.Constant("features", graph::FromInts(features))},
                 {{"axis", int64_t{1}}}, "columns");
}

// Where a value is missing. Null (-1) if no column has the rule.
absl::StatusOr<ValueId> IsMissing(GraphBuilder& out, ValueId x, const Forest& forest,
                                  const std::vector<int>& columns) {
  HEDDLE_ASSIGN_OR_RETURN(ValueId missing, out.Add(OpKind::kIsnan, {x}, {}, "is_nan"));
  // The largest magnitude that counts as zero, for each column.
  std::vector<float> zero;
  bool any = false;
  for (const int k : columns) {
    const bool with_zero =
        forest.columns[static_cast<size_t>(k)].missing == Column::Missing::kNanOrZero;
    any |= with_zero;
    zero.push_back(with_zero ? 1e-35F : -1.0F);
  }
  if (!any) return missing;
  HEDDLE_ASSIGN_OR_RETURN(const ValueId size, out.Add(OpKind::kAbs, {x}, {}, "magnitude"));
  const ValueId least =
      out.Constant("zero", FromElements({1, static_cast<int64_t>(zero.size())}, zero));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId small,
                          out.Add(OpKind::kLessEqual, {size, least}, {}, "is_zero"));
  return out.Add(OpKind::kOr, {missing, small}, {}, "is_missing");
}

std::vector<float> Instead(const Forest& forest, const std::vector<int>& columns) {
  std::vector<float> instead;
  for (const int k : columns) instead.push_back(forest.columns[static_cast<size_t>(k)].instead);
  return instead;
}

absl::StatusOr<ValueId> ValueColumns(GraphBuilder& out, ValueId x, const Forest& forest,
                                     const std::vector<int>& columns) {
  HEDDLE_ASSIGN_OR_RETURN(const ValueId picked, Pick(out, x, forest, columns));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId missing, IsMissing(out, picked, forest, columns));
  const ValueId instead = out.Constant(
      "instead", FromElements({1, static_cast<int64_t>(columns.size())}, Instead(forest, columns)));
  return out.Add(OpKind::kWhere, {missing, instead, picked}, {}, "values");
}

// Where a column counts from 0, what is below 0 becomes -1, which is no member; elsewhere -0.5 is truncated to 0.
absl::StatusOr<ValueId> FromZero(GraphBuilder& out, ValueId x, const Forest& forest,
                                 const std::vector<int>& columns) {
  std::vector<float> least;
  bool any = false;
  for (const int k : columns) {
    const bool from_zero = forest.columns[static_cast<size_t>(k)].from_zero;
    any |= from_zero;
    least.push_back(from_zero ? 0.0F : -1.0F);
  }
  if (!any) return x;
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId below,
      out.Add(
          OpKind::kLess,
          {x, out.Constant("least", FromElements({1, static_cast<int64_t>(least.size())}, least))},
          {}, "is_below"));
  return out.Add(OpKind::kWhere, {below, Scalar(out, "no_category", -1), x}, {}, "from_zero");
}

// A table for each column says for 0, 1, .. whether it is a member; what is below or beyond is none.
absl::StatusOr<ValueId> MemberColumns(GraphBuilder& out, ValueId x, const Forest& forest,
                                      const std::vector<int>& columns) {
  const auto n = static_cast<int64_t>(columns.size());
  int64_t most = 0;
  for (const int k : columns) {
    const Column& column = forest.columns[static_cast<size_t>(k)];
    if (!column.members.empty()) most = std::max(most, column.members.back());
  }
  const int64_t entries = most + 3;  // -1 and all below, 0 .. most, most + 1 and all beyond
  if (n * entries > kMostEntries)
    return absl::UnimplementedError(absl::StrCat(
        "the categories of a forest go up to ", most, " in ", n,
        " splits, which makes tables of more than 1 GiB: number the categories from 0 on, "
        "the frequent ones first, and give all rare ones one number"));
  std::vector<float> table(static_cast<size_t>(n * entries), 0);
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < n; ++i) {
    starts.push_back(i * entries + 1);
    for (const int64_t m :
         forest.columns[static_cast<size_t>(columns[static_cast<size_t>(i)])].members)
      table[static_cast<size_t>(starts.back() + m)] = 1;
  }
  HEDDLE_ASSIGN_OR_RETURN(const ValueId picked, Pick(out, x, forest, columns));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId missing, IsMissing(out, picked, forest, columns));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId counted, FromZero(out, picked, forest, columns));
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId bounded,
      out.Add(OpKind::kClip, {counted}, {{"min", -1.0}, {"max", static_cast<double>(most + 1)}},
              "bounded"));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId number, out.Add(OpKind::kCast, {bounded},
                                                        {{"to", std::string("i64")}}, "category"));
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId place,
      out.Add(OpKind::kAdd, {number, out.Constant("starts", FromElements({1, n}, starts))}, {},
              "place"));
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId found,
      out.Add(OpKind::kGather, {out.Constant("members", FromElements({n * entries}, table)), place},
              {{"axis", int64_t{0}}}, "is_member"));
  const ValueId instead =
      out.Constant("member_instead", FromElements({1, n}, Instead(forest, columns)));
  return out.Add(OpKind::kWhere, {missing, instead, found}, {}, "member_columns");
}

// [columns, rows]
absl::StatusOr<ValueId> Columns(GraphBuilder& out, ValueId x, const Forest& forest,
                                const ColumnOrder& order) {
  std::vector<ValueId> parts;
  if (!order.values.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const ValueId part, ValueColumns(out, x, forest, order.values));
    parts.push_back(part);
  }
  if (!order.members.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(const ValueId part, MemberColumns(out, x, forest, order.members));
    parts.push_back(part);
  }
  ValueId columns = parts.empty() ? x : parts[0];  // trees without nodes ask for no column
  if (parts.size() > 1) {
    HEDDLE_ASSIGN_OR_RETURN(columns,
                            out.Add(OpKind::kConcat, parts, {{"axis", int64_t{1}}}, "all_columns"));
  }
  return out.Add(OpKind::kTranspose, {columns}, {{"perm", Shape{1, 0}}}, "by_column");
}

// ---- Trees ----

// What nothing changes when it is aggregated.
float Neutral(Aggregate aggregate) {
  switch (aggregate) {
    case Aggregate::kMin:
      return std::numeric_limits<float>::infinity();
    case Aggregate::kMax:
      return -std::numeric_limits<float>::infinity();
    default:
      return 0;
  }
}

const char* Reduction(Aggregate aggregate) {
  return aggregate == Aggregate::kMin ? "min" : aggregate == Aggregate::kMax ? "max" : "sum";
}

// The tables of forest_walk.
struct Tables {
  int64_t groups = 1, trees = 0, nodes = 1, values = 1;
  int64_t steps = 0;
  std::vector<int32_t> columns, left;
  std::vector<float> thresholds, leaves;
};

// Numbers the nodes of a tree so that siblings lie side by side.
void FillTree(const Tree& tree, const Forest& forest, const ColumnOrder& order, size_t at,
              Tables& tables) {
  const auto values = static_cast<size_t>(tables.values);
  // Children of the tree, by number in the tables. A leaf is a negative number, as in Node.
  std::vector<int> numbered{tree.nodes.empty() ? ~0 : 0};
  for (size_t k = 0; k < numbered.size(); ++k) {
    const size_t entry = at + k;
    const int from = numbered[k];
    if (from >= 0) {
      const Node& node = tree.nodes[static_cast<size_t>(from)];
      tables.columns[entry] = order.place[static_cast<size_t>(node.column)];
      tables.thresholds[entry] = node.threshold;
      tables.left[entry] = static_cast<int32_t>(numbered.size());
      numbered.push_back(node.left);
      numbered.push_back(node.right);
      continue;
    }
    tables.left[entry] = static_cast<int32_t>(k);
    float* leaf = tables.leaves.data() + entry * values;
    const auto number = static_cast<size_t>(~from);
    if (tree.target < 0) {
      std::copy_n(tree.leaves.begin() + static_cast<std::ptrdiff_t>(number * values), values, leaf);
    } else if (values == 1) {
      leaf[0] = tree.leaves[number];
    } else {
      std::fill_n(leaf, values, Neutral(forest.aggregate));
      leaf[tree.target] = tree.leaves[number];
    }
  }
}

absl::StatusOr<Tables> TablesOf(const Forest& forest, const ColumnOrder& order) {
  Tables tables;
  const bool one_target = std::all_of(forest.trees.begin(), forest.trees.end(),
                                      [](const Tree& tree) { return tree.target >= 0; });
  std::vector<std::vector<const Tree*>> groups(one_target ? static_cast<size_t>(forest.outputs)
                                                          : 1);
  for (const Tree& tree : forest.trees) {
    groups[one_target ? static_cast<size_t>(tree.target) : 0].push_back(&tree);
    // One more than there are: nothing is behind the last node, which so may be a left child, too.
    tables.nodes = std::max(tables.nodes, static_cast<int64_t>(2 * tree.nodes.size() + 2));
    tables.steps = std::max(tables.steps, static_cast<int64_t>(Depth(tree)));
  }
  for (const auto& group : groups)
    tables.trees = std::max(tables.trees, static_cast<int64_t>(group.size()));
  tables.trees = std::max<int64_t>(1, tables.trees);
  if (tables.trees >= kTreesTogether)
    tables.trees = (tables.trees + kTreesTogether - 1) / kTreesTogether * kTreesTogether;
  tables.groups = static_cast<int64_t>(groups.size());
  tables.values = one_target ? 1 : forest.outputs;
  // Columns, thresholds and left children have an entry for each node, and so has each value of a leaf.
  const int64_t most_nodes = kMostEntries / (3 + tables.values);
  if (tables.nodes > most_nodes / tables.groups / tables.trees) {
    return absl::UnimplementedError(absl::StrCat(
        "the forest has ", forest.trees.size(), " trees, the largest with ", tables.nodes / 2,
        " nodes; all trees take as much room as the largest, which makes tables of more than 1 "
        "GiB: train fewer trees, or smaller ones (max_depth, max_leaf_nodes, min_samples_leaf)"));
  }
  const int64_t entries = tables.groups * tables.trees * tables.nodes;
  const auto size = static_cast<size_t>(entries);
  tables.columns.assign(size, 0);
  tables.left.assign(size, 0);
  tables.thresholds.assign(size, std::numeric_limits<float>::quiet_NaN());
  tables.leaves.assign(size * static_cast<size_t>(tables.values), Neutral(forest.aggregate));
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t t = 0; t < groups[g].size(); ++t) {
      const size_t at =
          (g * static_cast<size_t>(tables.trees) + t) * static_cast<size_t>(tables.nodes);
      FillTree(*groups[g][t], forest, order, at, tables);
    }
  }
  return tables;
}

absl::StatusOr<ValueId> AddScalar(GraphBuilder& out, OpKind kind, ValueId x, float value,
                                  const std::string& name) {
  return out.Add(kind, {x, Scalar(out, absl::StrCat(name, "_by"), value)}, {}, name);
}

absl::StatusOr<ValueId> Probit(GraphBuilder& out, ValueId p) {
  // sqrt(2) erfinv(2 p - 1), with Winitzki's approximation of erfinv ("A handy approximation for the error
  // function and its inverse", 2008), which the ONNX operators' other implementations use, too.
  constexpr double kA = 0.147;
  HEDDLE_ASSIGN_OR_RETURN(ValueId x, AddScalar(out, OpKind::kMul, p, 2, "twice"));
  HEDDLE_ASSIGN_OR_RETURN(x, AddScalar(out, OpKind::kSub, x, 1, "centred"));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId sign, out.Add(OpKind::kSign, {x}, {}, "sign"));
  HEDDLE_ASSIGN_OR_RETURN(ValueId rest, out.Add(OpKind::kMul, {x, x}, {}, "square"));
  HEDDLE_ASSIGN_OR_RETURN(rest, out.Add(OpKind::kSub, {Scalar(out, "one", 1), rest}, {}, "rest"));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId log, out.Add(OpKind::kLog, {rest}, {}, "log"));
  HEDDLE_ASSIGN_OR_RETURN(ValueId v, AddScalar(out, OpKind::kMul, log, 0.5F, "half"));
  HEDDLE_ASSIGN_OR_RETURN(
      v, AddScalar(out, OpKind::kAdd, v, static_cast<float>(2 / (std::numbers::pi * kA)), "v"));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId w,
                          AddScalar(out, OpKind::kMul, log, static_cast<float>(1 / kA), "w"));
  HEDDLE_ASSIGN_OR_RETURN(ValueId root, out.Add(OpKind::kMul, {v, v}, {}, "v_square"));
  HEDDLE_ASSIGN_OR_RETURN(root, out.Add(OpKind::kSub, {root, w}, {}, "difference"));
  HEDDLE_ASSIGN_OR_RETURN(root, out.Add(OpKind::kSqrt, {root}, {}, "root"));
  HEDDLE_ASSIGN_OR_RETURN(root, out.Add(OpKind::kSub, {root, v}, {}, "inner"));
  HEDDLE_ASSIGN_OR_RETURN(root, out.Add(OpKind::kSqrt, {root}, {}, "erf_inverse"));
  HEDDLE_ASSIGN_OR_RETURN(root, out.Add(OpKind::kMul, {root, sign}, {}, "signed"));
  return AddScalar(out, OpKind::kMul, root, static_cast<float>(std::numbers::sqrt2), "probit");
}

// Softmax over the outputs that are not 0, which stay 0.
absl::StatusOr<ValueId> SoftmaxZero(GraphBuilder& out, ValueId x) {
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId most,
      out.Add(OpKind::kReduceMax, {x}, {{"axes", Shape{1}}, {"keepdims", int64_t{1}}}, "most"));
  HEDDLE_ASSIGN_OR_RETURN(ValueId power, out.Add(OpKind::kSub, {x, most}, {}, "shifted"));
  HEDDLE_ASSIGN_OR_RETURN(power, out.Add(OpKind::kExp, {power}, {}, "power"));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId zero,
                          out.Add(OpKind::kEqual, {x, Scalar(out, "none", 0)}, {}, "is_none"));
  HEDDLE_ASSIGN_OR_RETURN(
      power, out.Add(OpKind::kWhere, {zero, Scalar(out, "nothing", 0), power}, {}, "counted"));
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId sum,
      out.Add(OpKind::kReduceSum, {power}, {{"axes", Shape{1}}, {"keepdims", int64_t{1}}}, "sum"));
  // All outputs may be 0; then the sum is, and so are all scores.
  HEDDLE_ASSIGN_OR_RETURN(
      const ValueId divisor,
      out.Add(OpKind::kMax, {sum, Scalar(out, "least", std::numeric_limits<float>::min())}, {},
              "divisor"));
  return out.Add(OpKind::kDiv, {power, divisor}, {}, "softmax_zero");
}

}  // namespace

absl::StatusOr<ValueId> EmitMargins(GraphBuilder& out, ValueId x, const Forest& forest) {
  HEDDLE_RETURN_IF_ERROR(CheckForest(forest));
  const TensorType type = out.Type(x);
  if (type.dtype != DType::kF32 || type.shape.size() != 2 || type.shape[1] != forest.features) {
    return absl::InvalidArgumentError(absl::StrCat("the forest reads f32[rows,", forest.features,
                                                   "], not ", graph::ToText(type)));
  }
  const ColumnOrder order = OrderOf(forest);
  HEDDLE_ASSIGN_OR_RETURN(Tables tables, TablesOf(forest, order));
  HEDDLE_ASSIGN_OR_RETURN(const ValueId columns, Columns(out, x, forest, order));
  const Shape nodes{tables.groups, tables.trees, tables.nodes};
  Shape leaves = nodes;
  leaves.push_back(tables.values);
  HEDDLE_ASSIGN_OR_RETURN(
      ValueId margins,
      out.Add(OpKind::kForestWalk,
              {columns, out.Constant("node_columns", FromElements(nodes, tables.columns)),
               out.Constant("node_thresholds", FromElements(nodes, tables.thresholds)),
               out.Constant("node_left", FromElements(nodes, tables.left)),
               out.Constant("node_values", FromElements(leaves, tables.leaves))},
              Attrs{{"steps", tables.steps}, {"reduce", std::string(Reduction(forest.aggregate))}},
              "forest"));
  const int64_t rows = type.shape[0];
  float scale = forest.scale;
  if (forest.aggregate == Aggregate::kMean)
    scale /= static_cast<float>(std::max<size_t>(1, forest.trees.size()));
  std::vector<float> base = forest.base;
  const auto scaled = [&]() -> absl::Status {
    if (scale == 1) return absl::OkStatus();
    HEDDLE_ASSIGN_OR_RETURN(
        margins,
        out.Add(
            OpKind::kMul,
            {margins, out.Constant("scale", FromElements({1, 1, 1}, std::vector<float>{scale}))},
            {}, "scaled"));
    return absl::OkStatus();
  };
  // The mean is that of the trees alone, while `forest.scale` applies to the base, too.
  for (float& b : base) b *= forest.scale;
  HEDDLE_RETURN_IF_ERROR(scaled());
  if (std::any_of(base.begin(), base.end(), [](float b) { return b != 0; })) {
    HEDDLE_ASSIGN_OR_RETURN(
        margins,
        out.Add(
            OpKind::kAdd,
            {margins, out.Constant("base", FromElements({tables.groups, tables.values, 1}, base))},
            {}, "with_base"));
  }
  HEDDLE_ASSIGN_OR_RETURN(
      margins,
      out.Add(OpKind::kReshape, {margins},
              {{"shape", Shape{static_cast<int64_t>(forest.outputs), rows}}}, "by_output"));
  return out.Add(OpKind::kTranspose, {margins}, {{"perm", Shape{1, 0}}}, "margins");
}

absl::StatusOr<ValueId> EmitTransform(GraphBuilder& out, ValueId margins, Transform transform) {
  switch (transform) {
    case Transform::kNone:
      return margins;
    case Transform::kLogistic:
      return out.Add(OpKind::kSigmoid, {margins}, {}, "logistic");
    case Transform::kSoftmax:
      return out.Add(OpKind::kSoftmax, {margins}, {{"axes", Shape{1}}}, "softmax");
    case Transform::kSoftmaxZero:
      return SoftmaxZero(out, margins);
    case Transform::kProbit:
      return Probit(out, margins);
    case Transform::kExp:
      return out.Add(OpKind::kExp, {margins}, {}, "exponential");
    case Transform::kSquareSigned: {
      HEDDLE_ASSIGN_OR_RETURN(const ValueId size, out.Add(OpKind::kAbs, {margins}, {}, "size"));
      return out.Add(OpKind::kMul, {margins, size}, {}, "square_signed");
    }
    case Transform::kStep: {
      HEDDLE_ASSIGN_OR_RETURN(
          const ValueId positive,
          out.Add(OpKind::kLess, {Scalar(out, "zero", 0), margins}, {}, "is_positive"));
      return out.Add(OpKind::kCast, {positive}, {{"to", std::string("f32")}}, "step");
    }
    case Transform::kLog1pExp:
      return out.Add(OpKind::kSoftplus, {margins}, {}, "log1p_exp");
  }
  return absl::InternalError("no such transform");
}

}  // namespace heddle::classical
