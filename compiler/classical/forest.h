// A forest: decision trees over columns of numbers, in one form for all sources.
//
// Every inner node asks the same question: is the value of its column at least its threshold (both f32)?
// No leads to the left child, yes to the right one. What sources do differently is moved into the
// columns, so that nothing else has to know of missing values, categories or kinds of comparison:
//   * x <= t is x < SmallestAbove(t). x > t and x >= t swap the children. Thresholds that a source keeps
//     in f64 are rounded so that every f32 compares as before (SmallestAtLeast).
//   * A missing value goes to the side that the node says. A column replaces missing values by
//     -infinity, which is never at least a threshold, or by +infinity, which always is. Nodes that test
//     one feature but send missing values to different sides use different columns.
//   * A categorical split asks whether the value is one of a set. A member column holds the answer as 1
//     or 0, and the node's threshold is 1.
//   * x == t asks a feature that is made of x, and is 1 or 0 (onnx_trees.h). With two comparisons of x,
//     the tree would have one side twice.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace heddle::classical {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Limits of a forest. CheckForest refuses more, and readers do so before they reserve memory.
inline constexpr int kMostFeatures = 1 << 20;
inline constexpr int kMostOutputs = 1 << 16;
inline constexpr int kMostTrees = 1 << 20;
inline constexpr int64_t kMostNodes = int64_t{1} << 26;       // inner nodes, of all trees together
inline constexpr int64_t kMostLeafValues = int64_t{1} << 27;  // of all trees together
inline constexpr int64_t kMostMembers = int64_t{1} << 24;     // of all columns together
inline constexpr int64_t kMostCategory =
    (int64_t{1} << 24) - 1;             // f32 tells all numbers up to this from the next one
inline constexpr int kMostDepth = 512;  // as Depth counts; a walk has no more steps

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
  float instead = 0;               // of a missing value; kMember: 0 or 1
  std::vector<int64_t> members{};  // kMember: sorted, distinct, not negative
  // kMember: no value below 0 is a member. Otherwise -0.5 is one if 0 is (XGBoost: true, LightGBM:
  // false).
  bool from_zero = false;

  bool operator==(const Column&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Column& c) {
    return H::combine(std::move(h), c.feature, c.kind, c.missing, c.instead, c.members,
                      c.from_zero);
  }
};

struct Node {
  int column = 0;
  float threshold = 0;  // not NaN and not -infinity; a value that is at least this goes right
  // An inner node of the same tree, behind this one; or a leaf if negative: ~number.
  int left = ~0, right = ~1;
  bool operator==(const Node&) const = default;
};

struct Tree {
  std::vector<Node> nodes{};  // the root is the first one; empty: the tree is leaf 0
  // If `target` is not negative, the leaves add to this output only, and each has one value. If it is
  // -1, each has Forest::outputs values. The values of a leaf lie side by side.
  int target = 0;
  std::vector<float> leaves{};
  bool operator==(const Tree&) const = default;
};

// Over the trees, for each output. kMean divides the sum by the number of all trees, also of those with
// another target. kMin and kMax take the trees that have a value for the output; one must have it.
enum class Aggregate { kSum, kMean, kMin, kMax };
enum class Transform {
  kNone,
  kLogistic,      // 1 / (1 + exp(-x))
  kSoftmax,       // over the outputs
  kSoftmaxZero,   // as kSoftmax over the outputs that are not 0; these stay 0 (ONNX: SOFTMAX_ZERO)
  kProbit,        // the quantile of the normal distribution (ONNX: PROBIT)
  kExp,           // count:poisson, reg:gamma, reg:tweedie
  kSquareSigned,  // x * |x| (LightGBM's reg_sqrt)
  kLog1pExp,      // log(1 + exp(x)) (LightGBM's cross_entropy_lambda)
  kStep,          // 1 if x > 0, else 0 (XGBoost's binary:hinge)
};

struct Forest {
  int features = 0;
  std::vector<std::string> feature_names;  // empty, or one for each feature
  std::vector<Column> columns;             // distinct
  std::vector<Tree> trees;                 // at least one
  int outputs = 1;
  Aggregate aggregate = Aggregate::kSum;
  std::vector<float> base;  // added to the aggregate; one for each output
  float scale = 1;          // multiplies that sum before `transform` (LightGBM's sigmoid parameter)
  Transform transform = Transform::kNone;
  // Classes of a classifier, in the order of its outputs; two for one output (a binary classifier whose
  // output is the score of the second class). Empty: no classifier.
  std::vector<int64_t> classes;
  std::vector<std::string> warnings;  // what users should know of rows for this model; a line each
  bool operator==(const Forest&) const = default;
};

// The column's value for a feature's value.
float ColumnValue(const Column& column, float value);

// The smallest f32 that is at least `threshold`: for every f32 x, x >= threshold if and only if x >= the
// result. `threshold` is not NaN.
float SmallestAtLeast(double threshold);
// The smallest f32 that is greater than `threshold`, for sources that ask x <= threshold (or x >
// threshold). `threshold` is less than +infinity.
float SmallestAbove(double threshold);

// The warning about a model whose file lists the categories of a data frame. These lists are not read.
inline constexpr char kCategoriesOfFrame[] =
    "the model was trained on categories of a data frame: rows must hold their codes, numbers from "
    "0 on in "
    "the order of the categories, not the categories themselves";

// Numbers the columns of a forest that is being built. It remembers them, since a forest may have
// millions.
class ColumnNumbers {
 public:
  // Adds to forest.columns, which is empty now and which nobody else changes meanwhile.
  explicit ColumnNumbers(Forest& forest) : forest_(forest) {}
  // The number of the column in the forest, which is added if it is new.
  int Add(Column column);

 private:
  Forest& forest_;
  absl::flat_hash_map<Column, int> numbers_;
};

// InvalidArgument: a number is out of range or not finite, a limit is exceeded, columns are equal,
// children are not behind their parents, a node or leaf is not reached exactly once, a tree has too few
// or too many leaf values, or no tree has a value for an output of kMin or kMax.
absl::Status CheckForest(const Forest& forest);

// The functions below expect a forest that CheckForest accepts.

// The longest way from a root to a leaf, in inner nodes.
int Depth(const Tree& tree);

// The number of the leaf of a row of column values.
int LeafOf(const Tree& tree, std::span<const float> columns);

// The reference: (aggregate + base) * scale, without the transform, for a row of features. Sums are f64.
std::vector<double> Margins(const Forest& forest, std::span<const float> features);

// The reference of transforms, in place, for one row of outputs.
void ApplyTransform(Transform transform, std::span<double> outputs);

}  // namespace heddle::classical
