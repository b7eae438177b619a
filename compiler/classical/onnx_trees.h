// Forests from the arrays in which ONNX keeps tree ensembles (domain ai.onnx.ml): those of
// TreeEnsembleClassifier and TreeEnsembleRegressor (opsets 1 and 3), and those of TreeEnsemble (opset 5).
// The names of the fields are those of the attributes without their prefix. Numbers are of type double,
// whatever the model has.
//
// A node compares x, the value of its feature, with its own value v, and is true or false.
// NaN makes the comparisons of IEEE 754 false, but x != v true. A node that tracks missing values as true
// is true for NaN in any case.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"

namespace heddle::classical {

// In the order of the numbers that TreeEnsemble has for them.
enum class BranchMode : uint8_t {
  kLessEqual,     // x <= v
  kLess,          // x < v
  kGreaterEqual,  // x >= v
  kGreater,       // x > v
  kEqual,         // x == v
  kNotEqual,      // x != v
  kMember,        // x is one of a set
  kLeaf,          // no comparison; only in OnnxNodes
};

// The nodes of TreeEnsembleClassifier and TreeEnsembleRegressor, leaves included, in any order. All arrays
// have one element for each node; `missing_value_tracks_true` may be empty, which stands for zeros.
struct OnnxNodes {
  std::vector<int64_t> treeids, nodeids, featureids;
  std::vector<BranchMode> modes;
  std::vector<double> values;
  std::vector<int64_t> truenodeids, falsenodeids;  // of the same tree; of a leaf, they mean nothing
  std::vector<int64_t> missing_value_tracks_true;
};

// What leaves add to outputs: the attributes target_.. or class_... A leaf may have several votes or none.
// Votes of inner nodes count for nothing.
struct OnnxVotes {
  std::vector<int64_t> treeids, nodeids, ids;
  std::vector<double> weights;
};

// The trees of TreeEnsemble: the attributes nodes_.., leaf_.. and tree_roots. Ids are places in the arrays,
// of a node, or of a leaf where `trueleafs` or `falseleafs` is not 0. A tree of one leaf has a node both
// of whose branches lead to that leaf.
struct OnnxTrees {
  std::vector<int64_t> roots;
  std::vector<int64_t> featureids;
  std::vector<BranchMode> modes;
  std::vector<double> splits;
  std::vector<int64_t> truenodeids, falsenodeids, trueleafs, falseleafs;
  std::vector<int64_t> missing_value_tracks_true;  // may be empty
  std::vector<double>
      membership_values;  // the sets of the kMember nodes in their order, a NaN behind each
  std::vector<int64_t> leaf_targetids;
  std::vector<double> leaf_weights;
};

// What holds for the whole ensemble.
struct OnnxEnsemble {
  int features = 0;
  int64_t outputs = 1;
  Aggregate aggregate = Aggregate::kSum;
  std::vector<double> base = {};  // one number for each output; empty: zeros
  bool doubles = false;           // whether x has f64 elements; otherwise they are f32
};

// A feature that is made of one of x: 1 if x[feature] is one of the values, or NaN if `nan` is set; else 0.
struct Equality {
  int feature = 0;
  std::vector<double> values;  // sorted, distinct, not NaN
  bool nan = false;
  auto operator<=>(const Equality&) const = default;
};

// A forest whose features are those of x, and behind them the equalities. The nodes of a forest compare
// f32. So if x has f64 elements, the first features are ranks: of a value, how many of the thresholds of
// its feature it is at least; of NaN, NaN.
struct OnnxForest {
  Forest forest;
  std::vector<Equality> equalities;  // distinct
  // Of each feature of x: sorted, distinct, not NaN. Empty if x has f32 elements.
  std::vector<std::vector<double>> thresholds;
};

// The features of the forest for a row of x.
std::vector<float> FeaturesOf(const OnnxForest& ensemble, std::span<const double> x);

// InvalidArgument: arrays have different lengths; ids lead nowhere, in a circle, or to a node twice; a feature or an
// output does not exist; or the forest exceeds a limit (forest.h). Unimplemented: the aggregate is kMin or
// kMax, and a tree has leaves for different outputs. Nodes of OnnxTrees that no root leads to count for
// nothing.
absl::StatusOr<OnnxForest> ReadOnnxForest(const OnnxNodes& nodes, const OnnxVotes& votes,
                                          const OnnxEnsemble& ensemble);
absl::StatusOr<OnnxForest> ReadOnnxForest(const OnnxTrees& trees, const OnnxEnsemble& ensemble);

// A classifier. With two classes, all votes may be for the same one. Then they make one score, that of the
// second class, and the forest has one output; all but one of `base` is left out. Otherwise there is an
// output for each class.
struct OnnxClassifier {
  OnnxForest ensemble;
  // With one output: no vote is negative, so the score is like a probability, and the second class needs
  // more than 0.5 if there is no transform. Otherwise it needs more than 0. ONNX Runtime has this rule.
  bool like_probability = false;
};
absl::StatusOr<OnnxClassifier> ReadOnnxClassifier(const OnnxNodes& nodes, const OnnxVotes& votes,
                                                  const OnnxEnsemble& ensemble);

}  // namespace heddle::classical
