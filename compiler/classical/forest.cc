#include "compiler/classical/forest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/status_macros.h"
#include "compiler/classical/refuse.h"

namespace heddle::classical {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// LightGBM takes everything up to this for 0.
constexpr float kNearlyZero = 1e-35f;

template <typename T>
absl::Status CheckRange(const char* what, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Refuse("a forest has ", value, " ", what, "; it may have ", least, " to ", most);
}

absl::Status CheckColumn(const Column& c, int features) {
  if (c.feature < 0 || c.feature >= features)
    return Refuse("feature ", c.feature, " of ", features);
  if (c.kind == Column::Kind::kValue) {
    if (std::isnan(c.instead)) return Refuse("NaN instead of a missing value");
    if (!c.members.empty() || c.from_zero) return Refuse("a value column has members");
    return absl::OkStatus();
  }
  if (c.instead != 0 && c.instead != 1)
    return Refuse(c.instead, " instead of a missing value; a member is 0 or 1");
  for (size_t i = 0; i < c.members.size(); ++i) {
    if (c.members[i] < 0 || (i > 0 && c.members[i] <= c.members[i - 1]))
      return Refuse("members are not sorted, distinct and from 0 on");
    if (c.members[i] > kMostCategory)
      return Refuse("the member ", c.members[i], " is above ", kMostCategory);
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const Forest& forest) {
  absl::flat_hash_set<Column> distinct;
  int64_t members = 0;
  for (size_t i = 0; i < forest.columns.size(); ++i) {
    const Column& c = forest.columns[i];
    absl::Status status = CheckColumn(c, forest.features);
    members += static_cast<int64_t>(c.members.size());
    if (status.ok() && members > kMostMembers)
      status = Refuse("the columns have more than ", kMostMembers, " members");
    if (status.ok() && !distinct.insert(c).second) status = Refuse("equals a column before it");
    if (!status.ok()) return Refuse("column ", i, ": ", status.message());
  }
  return absl::OkStatus();
}

absl::Status CheckTree(const Tree& tree, const Forest& forest) {
  if (tree.target < -1 || tree.target >= forest.outputs)
    return Refuse("target ", tree.target, " of ", forest.outputs, " outputs");
  const size_t width = tree.target < 0 ? forest.outputs : 1;
  const size_t leaves = tree.nodes.size() + 1;
  if (tree.leaves.size() != leaves * width) {
    return Refuse(tree.leaves.size(), " leaf values; ", leaves, " leaves with ", width,
                  " each are needed");
  }
  std::vector<bool> reached(tree.nodes.size()), leaf_reached(leaves);
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const Node& n = tree.nodes[i];
    const auto wrong = [&](auto... why) { return Refuse("node ", i, ": ", why...); };
    if (n.column < 0 || n.column >= static_cast<int>(forest.columns.size()))
      return wrong("column ", n.column, " of ", forest.columns.size());
    if (std::isnan(n.threshold) || n.threshold == -kInfinity)
      return wrong("the threshold is ", n.threshold);
    if (forest.columns[n.column].kind == Column::Kind::kMember && n.threshold != 1)
      return wrong("the threshold of a member column is ", n.threshold, ", not 1");
    for (int child : {n.left, n.right}) {
      if (child >= 0 && (child <= static_cast<int>(i) || child >= std::ssize(tree.nodes)))
        return wrong("child ", child, " is not behind it");
      if (child < 0 && ~child >= static_cast<int>(leaves))
        return wrong("leaf ", ~child, " of ", leaves);
      auto mark = child >= 0 ? reached[child] : leaf_reached[~child];
      if (mark)
        return wrong(child >= 0 ? "node " : "leaf ", child >= 0 ? child : ~child,
                     " is reached a second time");
      mark = true;
    }
  }
  // 2n children are n - 1 nodes and n + 1 leaves, so none is left out if none comes twice.
  for (float leaf : tree.leaves) {
    if (!std::isfinite(leaf)) return Refuse("a leaf value is ", leaf);
  }
  const int depth = Depth(tree);
  if (depth > kMostDepth) {
    return absl::UnimplementedError(absl::StrCat("the depth is ", depth, "; ", kMostDepth,
                                                 " is the most: train with a smaller max_depth"));
  }
  return absl::OkStatus();
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

void Softmax(std::span<double> outputs, bool zeros_stay) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double x : outputs) most = std::max(most, x);
  for (double& x : outputs) {
    if (zeros_stay && x == 0) continue;
    x = std::exp(x - most);
    sum += x;
  }
  for (double& x : outputs) x = sum > 0 ? x / sum : x;
}

// The x with Phi(x) = p, for p in (0, 1), by bisection: Phi(x) = erfc(-x / sqrt(2)) / 2.
double NormalQuantile(double p) {
  if (!(p > 0)) return -std::numeric_limits<double>::infinity();
  if (!(p < 1)) return std::numeric_limits<double>::infinity();
  if (p > 0.5) return -NormalQuantile(1 - p);
  double low = -40, high = 0;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

float ColumnValue(const Column& column, float value) {
  const bool zero = column.missing == Column::Missing::kNanOrZero && std::abs(value) <= kNearlyZero;
  if (std::isnan(value) || zero) return column.instead;
  if (column.kind == Column::Kind::kValue) return value;
  // No integer that a member may be lies outside of (-1, 2^63).
  if (!(value > -1 && value < 0x1p63f) || (column.from_zero && value < 0)) return 0;
  return std::binary_search(column.members.begin(), column.members.end(),
                            static_cast<int64_t>(value))
             ? 1
             : 0;
}

float SmallestAtLeast(double threshold) {
  if (threshold > kLargest) return kInfinity;
  if (threshold < -kLargest) return std::isinf(threshold) ? -kInfinity : -kLargest;
  const float nearest = static_cast<float>(threshold);
  return nearest < threshold ? std::nextafter(nearest, kInfinity) : nearest;
}

float SmallestAbove(double threshold) {
  const float least = SmallestAtLeast(threshold);
  return least > threshold ? least : std::nextafter(least, kInfinity);
}

int ColumnNumbers::Add(Column column) {
  const auto [it, is_new] =
      numbers_.try_emplace(std::move(column), static_cast<int>(forest_.columns.size()));
  if (is_new) forest_.columns.push_back(it->first);
  return it->second;
}

absl::Status CheckForest(const Forest& forest) {
  int64_t nodes = 0, leaf_values = 0;
  for (const Tree& tree : forest.trees) {
    nodes += static_cast<int64_t>(tree.nodes.size());
    leaf_values += static_cast<int64_t>(tree.leaves.size());
  }
  HEDDLE_RETURN_IF_ERROR(CheckRange("features", forest.features, 1, kMostFeatures));
  HEDDLE_RETURN_IF_ERROR(CheckRange("outputs", forest.outputs, 1, kMostOutputs));
  HEDDLE_RETURN_IF_ERROR(CheckRange<int64_t>("trees", std::ssize(forest.trees), 1, kMostTrees));
  HEDDLE_RETURN_IF_ERROR(CheckRange<int64_t>("inner nodes", nodes, 0, kMostNodes));
  HEDDLE_RETURN_IF_ERROR(CheckRange<int64_t>("leaf values", leaf_values, 1, kMostLeafValues));
  if (!forest.feature_names.empty() && std::ssize(forest.feature_names) != forest.features) {
    return Refuse(forest.feature_names.size(), " names for ", forest.features, " features");
  }
  if (std::ssize(forest.base) != forest.outputs) {
    return Refuse(forest.base.size(), " base values for ", forest.outputs, " outputs");
  }
  for (float base : forest.base) {
    if (!std::isfinite(base)) return Refuse("a base value is ", base);
  }
  if (!std::isfinite(forest.scale)) return Refuse("the scale is ", forest.scale);
  const int classes = forest.outputs == 1 ? 2 : forest.outputs;
  if (!forest.classes.empty() && std::ssize(forest.classes) != classes) {
    return Refuse(forest.classes.size(), " classes for ", forest.outputs, " outputs");
  }
  HEDDLE_RETURN_IF_ERROR(CheckColumns(forest));
  std::vector<bool> has_value(
      forest.outputs, forest.aggregate == Aggregate::kSum || forest.aggregate == Aggregate::kMean);
  for (size_t i = 0; i < forest.trees.size(); ++i) {
    const Tree& tree = forest.trees[i];
    const absl::Status status = CheckTree(tree, forest);
    if (!status.ok()) return Refuse("tree ", i, ": ", status.message());
    if (tree.target >= 0)
      has_value[tree.target] = true;
    else
      has_value.assign(has_value.size(), true);
  }
  const auto without = std::ranges::find(has_value, false);
  if (without == has_value.end()) return absl::OkStatus();
  return Refuse("no tree has a value for output ", without - has_value.begin());
}

int Depth(const Tree& tree) {
  std::vector<int> depths(tree.nodes.size(), 1);
  int most = 0;
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    most = std::max(most, depths[i]);
    for (int child : {tree.nodes[i].left, tree.nodes[i].right}) {
      if (child >= 0) depths[child] = depths[i] + 1;
    }
  }
  return most;
}

int LeafOf(const Tree& tree, std::span<const float> columns) {
  int at = tree.nodes.empty() ? ~0 : 0;
  while (at >= 0) {
    const Node& n = tree.nodes[at];
    at = columns[n.column] >= n.threshold ? n.right : n.left;
  }
  return ~at;
}

std::vector<double> Margins(const Forest& forest, std::span<const float> features) {
  std::vector<float> columns;
  columns.reserve(forest.columns.size());
  for (const Column& c : forest.columns) columns.push_back(ColumnValue(c, features[c.feature]));

  std::vector<double> results(forest.outputs, 0);
  std::vector<bool> has_value(forest.outputs, false);
  const auto add = [&](int output, double value) {
    double& result = results[output];
    if (forest.aggregate == Aggregate::kSum || forest.aggregate == Aggregate::kMean)
      result += value;
    else if (!has_value[output])
      result = value;
    else
      result =
          forest.aggregate == Aggregate::kMin ? std::min(result, value) : std::max(result, value);
    has_value[output] = true;
  };
  for (const Tree& tree : forest.trees) {
    const size_t leaf = LeafOf(tree, columns);
    if (tree.target >= 0) {
      add(tree.target, tree.leaves[leaf]);
      continue;
    }
    for (int o = 0; o < forest.outputs; ++o) add(o, tree.leaves[leaf * forest.outputs + o]);
  }
  for (int o = 0; o < forest.outputs; ++o) {
    if (forest.aggregate == Aggregate::kMean)
      results[o] /= static_cast<double>(forest.trees.size());
    results[o] = (results[o] + forest.base[o]) * forest.scale;
  }
  return results;
}

void ApplyTransform(Transform transform, std::span<double> outputs) {
  if (transform == Transform::kSoftmax) return Softmax(outputs, /*zeros_stay=*/false);
  if (transform == Transform::kSoftmaxZero) return Softmax(outputs, /*zeros_stay=*/true);
  for (double& x : outputs) {
    switch (transform) {
      case Transform::kNone:
      case Transform::kSoftmax:
      case Transform::kSoftmaxZero:
        break;
      case Transform::kLogistic:
        x = Logistic(x);
        break;
      case Transform::kProbit:
        x = NormalQuantile(x);
        break;
      case Transform::kExp:
        x = std::exp(x);
        break;
      case Transform::kSquareSigned:
        x *= std::abs(x);
        break;
      case Transform::kLog1pExp:
        x = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
        break;
      case Transform::kStep:
        x = x > 0 ? 1 : 0;
        break;
    }
  }
}

}  // namespace heddle::classical
