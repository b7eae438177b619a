// A forest: decision trees over columns of numbers, in one form for all sources.
//
// Every inner node asks the same question: is the value of its column at least its threshold (both f32)? No
// leads to the left child, yes to the right one. What sources do differently is moved into the columns, so
// that nothing else has to know of missing values, categories or kinds of comparison:
//   * x <= t is x < the next f32 above the largest f32 that is at most t. x > t and x >= t swap the children.
//     Thresholds that a source keeps in f64 are rounded so that every f32 compares as before (SmallestAtLeast).
//   * A missing value goes to the side that the node says. A column replaces missing values by -infinity,
//     which is never at least a finite threshold, or by +infinity, which always is. Nodes that test one feature but send missing
//     values to different sides use different columns.
//   * A categorical split asks whether the value is one of a set. A member column holds the answer as 1 or 0, and
//     the node's threshold is 1.
//   * x == t is two nodes (x < t, x < next after t) that share a side; x != t likewise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace heddle::classical {

// What the trees see of one input feature.
struct Column {
  enum class Kind {
    kValue,   // the value of the feature
    kMember,  // 1 if the value, truncated to an integer, is in `members`, else 0
  };
  enum class Missing {
    kNan,        // NaN is a missing value
    kNanOrZero,  // and so is everything from -1e-35 to 1e-35 (LightGBM's zero_as_missing)
  };
  int feature = 0;
  Kind kind = Kind::kValue;
  Missing missing = Missing::kNan;
  float instead = 0;             // of a missing value; kMember: 0 or 1
  std::vector<int64_t> members;  // kMember: sorted, distinct, not negative
  bool operator==(const Column&) const = default;
};

struct Node {
  int column = 0;
  float threshold = 0;  // not NaN; a value that is at least this goes right
  // An inner node of the same tree, behind this one; or a leaf if negative: ~number.
  int left = ~0, right = ~1;
};

struct Tree {
  std::vector<Node> nodes;  // the root is the first one; empty: the tree is leaf 0
  // If `target` is not negative, the leaves add to this output only, and each has one value. Otherwise
  // each has Forest::outputs values. The values of a leaf lie side by side.
  int target = 0;
  std::vector<float> leaves;
};

enum class Aggregate { kSum, kMean, kMin, kMax };  // over the trees, for each output
enum class Transform {
  kNone,
  kLogistic,      // 1 / (1 + exp(-x))
  kSoftmax,       // over the outputs
  kSoftmaxZero,   // as kSoftmax over the outputs that are not 0; these stay 0 (ONNX: SOFTMAX_ZERO)
  kProbit,        // the quantile of the normal distribution (ONNX: PROBIT)
  kExp,           // count:poisson, reg:gamma, reg:tweedie
  kSquareSigned,  // x * |x| (LightGBM's reg_sqrt)
  kLog1pExp,      // log(1 + exp(x)) (LightGBM's cross_entropy_lambda)
  kOneAgainstRest,  // kLogistic, each output for itself (LightGBM's multiclassova)
};

struct Forest {
  int features = 0;
  std::vector<std::string> feature_names;  // empty, or one for each feature
  std::vector<Column> columns;             // distinct
  std::vector<Tree> trees;
  int outputs = 1;
  Aggregate aggregate = Aggregate::kSum;
  std::vector<float> base;  // added to the aggregate; one for each output
  float scale = 1;          // multiplies the sum before `transform` (LightGBM's sigmoid parameter)
  Transform transform = Transform::kNone;
  // Classes of a classifier, in the order of its outputs; two for one output (a binary classifier whose output is the score of
  // the second class). Empty: no classifier.
  std::vector<int64_t> classes;
};

// The column's value for a feature's value.
float ColumnValue(const Column& column, float value);

// The smallest f32 that is at least `threshold`: for every f32 x, x >= threshold if and only if x >= the result.
float SmallestAtLeast(double threshold);
// The smallest f32 that is greater than `threshold`, for sources that ask x <= threshold (or x > threshold).
float SmallestAbove(double threshold);

// The number of the column in the forest, which is added if it is new.
int AddColumn(Forest& forest, Column column);

// InvalidArgument: a number is out of range, children are not behind their parents, a node is not reached exactly once, or a
// leaf has too few values.
absl::Status CheckForest(const Forest& forest);

// The longest way from a root to a leaf, in nodes.
int Depth(const Tree& tree);

// The number of the leaf of a row of column values.
int LeafOf(const Tree& tree, std::span<const float> columns);

// The reference: aggregate, base and scale, without the transform, for a row of features. Sums are f64.
std::vector<double> Margins(const Forest& forest, std::span<const float> features);

}  // namespace heddle::classical
