// Translation of tree ensembles (ai.onnx.ml). Features are compared as f64 if they are, else as f32. Leaves
// are added in f32.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/classical/emit_forest.h"
#include "compiler/classical/onnx_trees.h"
#include "compiler/classical/sample_values.h"
#include "compiler/onnx/operators/scores.h"
#include "compiler/onnx/samples.h"
#include "compiler/onnx/slices.h"

namespace heddle::graph {
namespace {

using classical::Aggregate;
using classical::BranchMode;
using classical::Transform;
using ir::DType;

// ---- Attributes ----

// The numbers of an attribute that is a tensor, a vector.
std::vector<double> TensorNumbers(NodeImport& n, std::string_view name) {
  const onnx::AttributeProto* a = n.Find(name);
  if (a == nullptr) return {};
  const auto data = FromOnnxTensor(a->t());
  if (!data.ok()) {
    n.Fail(absl::StrCat("'", std::string(name), "': ", data.status().message()));
    return {};
  }
  return ToDoubles(*data);
}

// An attribute that is a list of floats, or with the suffix "_as_tensor" a tensor of doubles.
std::vector<double> ListedNumbers(NodeImport& n, const std::string& name) {
  const std::string tensor = name + "_as_tensor";
  if (!n.HasAttr(tensor)) return n.Floats(name);
  if (!n.Floats(name).empty()) n.Fail(absl::StrCat("has both '", name, "' and '", tensor, "'"));
  return TensorNumbers(n, tensor);
}

std::vector<BranchMode> Modes(NodeImport& n) {
  static const auto* words =
      new std::map<std::string, BranchMode>{{"BRANCH_LEQ", BranchMode::kLessEqual},
                                            {"BRANCH_LT", BranchMode::kLess},
                                            {"BRANCH_GTE", BranchMode::kGreaterEqual},
                                            {"BRANCH_GT", BranchMode::kGreater},
                                            {"BRANCH_EQ", BranchMode::kEqual},
                                            {"BRANCH_NEQ", BranchMode::kNotEqual},
                                            {"LEAF", BranchMode::kLeaf}};
  std::vector<BranchMode> modes;
  for (const std::string& word : n.Strings("nodes_modes")) {
    const auto found = words->find(word);
    if (found == words->end()) {
      n.Unsupported(absl::StrCat("the node mode '", word, "'"));
      return {};
    }
    modes.push_back(found->second);
  }
  return modes;
}

classical::OnnxNodes NodesOf(NodeImport& n) {
  n.Ignore({"nodes_hitrates", "nodes_hitrates_as_tensor"});
  return {.treeids = n.Ints("nodes_treeids"),
          .nodeids = n.Ints("nodes_nodeids"),
          .featureids = n.Ints("nodes_featureids"),
          .modes = Modes(n),
          .values = ListedNumbers(n, "nodes_values"),
          .truenodeids = n.Ints("nodes_truenodeids"),
          .falsenodeids = n.Ints("nodes_falsenodeids"),
          .missing_value_tracks_true = n.Ints("nodes_missing_value_tracks_true")};
}

// `what`: "class" or "target".
classical::OnnxVotes VotesOf(NodeImport& n, const std::string& what) {
  return {.treeids = n.Ints(what + "_treeids"),
          .nodeids = n.Ints(what + "_nodeids"),
          .ids = n.Ints(what + "_ids"),
          .weights = ListedNumbers(n, what + "_weights")};
}

// The part of an ensemble that follows from its operand.
classical::OnnxEnsemble EnsembleOf(NodeImport& n, ValueId x) {
  classical::OnnxEnsemble ensemble;
  if (!n.ok()) return ensemble;
  const int64_t features = n.ShapeOf(x)[1];
  if (features > classical::kMostFeatures)
    n.Fail(absl::StrCat(features, " features; ", classical::kMostFeatures, " are the most"));
  else
    ensemble.features = static_cast<int>(features);
  ensemble.doubles = n.Type(x).dtype == DType::kF64;
  return ensemble;
}

// ---- Forests ----

// Of each element of x f64 [rows, features], how many of its feature's thresholds it is at least; NaN stays.
ValueId Ranks(NodeImport& n, ValueId x, const std::vector<std::vector<double>>& thresholds) {
  if (!n.ok()) return -1;
  const auto features = static_cast<int64_t>(thresholds.size());
  size_t most = 0;
  for (const auto& list : thresholds) most = std::max(most, list.size());
  int64_t width = 1;  // of a table in which a binary search takes the same steps everywhere
  while (static_cast<size_t>(width - 1) < most) width *= 2;
  if (!n.CanMake({DType::kF64, {features, width}})) return -1;
  std::vector<double> table;  // NaN fills up: nothing is at least NaN
  std::vector<int64_t> starts;
  for (const auto& list : thresholds) {
    starts.push_back(static_cast<int64_t>(table.size()));
    table.insert(table.end(), list.begin(), list.end());
    table.resize(starts.size() * static_cast<size_t>(width),
                 std::numeric_limits<double>::quiet_NaN());
  }
  const ValueId numbers =
      n.Constant(FromDoubles(table, {static_cast<int64_t>(table.size())}, DType::kF64));
  const ValueId start = n.Reshape(n.Constant(FromInts(starts)), {1, features});
  ValueId rank = n.Fill({DType::kI64, {n.ShapeOf(x)[0], features}}, 0);
  for (int64_t step = width / 2; step > 0; step /= 2) {
    const ValueId place =
        n.Emit(OpKind::kAdd, {n.Emit(OpKind::kAdd, {rank, start}), n.ScalarLike(step - 1.0, rank)});
    const ValueId threshold = n.Emit(OpKind::kGather, {numbers, place}, {{"axis", int64_t{0}}});
    const ValueId reached = n.Emit(OpKind::kLessEqual, {threshold, x});
    rank = n.Emit(
        OpKind::kAdd,
        {rank, n.Emit(OpKind::kWhere, {reached, n.ScalarLike(static_cast<double>(step), rank),
                                       n.ScalarLike(0, rank)})});
  }
  const ValueId real = n.Cast(rank, DType::kF32);
  return n.Emit(OpKind::kWhere,
                {n.Emit(OpKind::kIsnan, {x}),
                 n.ScalarLike(std::numeric_limits<double>::quiet_NaN(), real), real});
}

// The features of the forest for each row of x: f32 [rows, features].
ValueId FeaturesOf(NodeImport& n, ValueId x, const classical::OnnxForest& ensemble) {
  const std::vector<classical::Equality>& equalities = ensemble.equalities;
  const ValueId first = ensemble.thresholds.empty() ? x : Ranks(n, x, ensemble.thresholds);
  if (equalities.empty() || !n.ok()) return first;
  const auto count = static_cast<int64_t>(equalities.size());
  size_t most = 1;
  for (const classical::Equality& e : equalities) most = std::max(most, e.values.size());
  const auto width = static_cast<int64_t>(most);
  const DType dtype = n.Type(x).dtype;
  if (!n.CanMake({dtype, {count, width}})) return -1;
  std::vector<int64_t> features;
  std::vector<double> nan, values;  // NaN fills up: it equals nothing
  for (const classical::Equality& e : equalities) {
    features.push_back(e.feature);
    nan.push_back(e.nan ? 1 : 0);
    values.insert(values.end(), e.values.begin(), e.values.end());
    values.resize(features.size() * most, std::numeric_limits<double>::quiet_NaN());
  }
  const ValueId picked =
      n.Emit(OpKind::kGather, {x, n.Constant(FromInts(features))}, {{"axis", int64_t{1}}});
  if (!n.ok()) return -1;
  const int64_t rows = n.ShapeOf(x)[0];
  const ValueId equal =
      n.Emit(OpKind::kEqual, {n.Reshape(picked, {rows, count, 1}),
                              n.Constant(FromDoubles(values, {1, count, width}, dtype))});
  const ValueId any = n.Emit(OpKind::kReduceMax, {n.Cast(equal, DType::kF32)},
                             {{"axes", Shape{2}}, {"keepdims", int64_t{0}}});
  const ValueId found =
      n.Emit(OpKind::kWhere, {n.Emit(OpKind::kIsnan, {picked}),
                              n.Constant(FromDoubles(nan, {1, count}, DType::kF32)), any});
  return Concat(n, {first, found}, 1);
}

// Tells which values of x [rows, features] lie on both sides of what the forest compares them with.
void SampleRows(NodeImport& n, ValueId x, const classical::OnnxForest& ensemble) {
  const std::vector<std::vector<float>> sampled =
      classical::SampleValues(ensemble.forest, kMostSamples);
  if (!n.ok() || sampled.empty()) return;
  std::vector<std::vector<double>> values(static_cast<size_t>(n.ShapeOf(x)[1]));
  for (size_t k = 0; k < values.size(); ++k) {
    for (const float value : sampled[k]) {
      if (ensemble.thresholds.empty()) {
        values[k].push_back(value);
        continue;
      }
      // The forest compares ranks: a value of rank r is at least the first r thresholds.
      const std::vector<double>& thresholds = ensemble.thresholds[k];
      const auto rank = std::min(static_cast<size_t>(std::max(value, 0.0F)), thresholds.size());
      values[k].push_back(rank == 0 ? std::nextafter(thresholds[0], -HUGE_VAL)
                                    : thresholds[rank - 1]);
    }
  }
  for (const classical::Equality& equality : ensemble.equalities) {
    // Some that are equal, and one that is not.
    const size_t some = std::min<size_t>(equality.values.size(), 8);
    std::vector<double>& of_feature = values[static_cast<size_t>(equality.feature)];
    of_feature.insert(of_feature.end(), equality.values.begin(),
                      equality.values.begin() + static_cast<std::ptrdiff_t>(some));
    of_feature.push_back(equality.values.empty() ? 0 : equality.values.back() + 1);
  }
  // A scaler before x rounds, so some values lie well below and above all.
  for (std::vector<double>& of_feature : values) {
    if (of_feature.empty()) continue;
    const auto [least, greatest] = std::minmax_element(of_feature.begin(), of_feature.end());
    const double below = *least, above = *greatest;
    const double margin = std::max((above - below) / 8, std::max(std::abs(above), 1.0) / 64);
    of_feature.push_back(below - margin);
    of_feature.push_back(above + margin);
  }
  AddSamples(n, x, std::move(values), &n.samples());
}

// The margins of the forest, f32 [rows, outputs].
ValueId Margins(NodeImport& n, ValueId x, const absl::StatusOr<classical::OnnxForest>& ensemble) {
  if (!n.ok()) return -1;
  if (absl::IsUnimplemented(ensemble.status())) {
    n.Unsupported(std::string(ensemble.status().message()));
    return -1;
  }
  if (!ensemble.ok()) {
    n.Fail(std::string(ensemble.status().message()));
    return -1;
  }
  SampleRows(n, x, *ensemble);
  return n.EmitBy(FeaturesOf(n, x, *ensemble), [&](GraphBuilder& out, ValueId v) {
    return classical::EmitMargins(out, v, ensemble->forest);
  });
}

Aggregate AggregateOf(NodeImport& n) {
  const std::string name = n.OneOf("aggregate_function", {"SUM", "AVERAGE", "MIN", "MAX"});
  return name == "AVERAGE" ? Aggregate::kMean
         : name == "MIN"   ? Aggregate::kMin
         : name == "MAX"   ? Aggregate::kMax
                           : Aggregate::kSum;
}

void TreeEnsembleRegressor(NodeImport& n) {
  const ValueId x = ExactRowsOf(n);
  classical::OnnxEnsemble ensemble = EnsembleOf(n, x);
  ensemble.outputs = n.Int("n_targets", 1);
  ensemble.aggregate = AggregateOf(n);
  ensemble.base = ListedNumbers(n, "base_values");
  const classical::OnnxNodes nodes = NodesOf(n);
  const classical::OnnxVotes votes = VotesOf(n, "target");
  const Transform transform = TransformOf(n);
  if (!n.ok()) return;
  n.Set(0, Transformed(n, Margins(n, x, classical::ReadOnnxForest(nodes, votes, ensemble)),
                       transform));
}

void TreeEnsembleClassifier(NodeImport& n) {
  const ValueId x = ExactRowsOf(n);
  const std::vector<int64_t> labels = ClassLabels(n, "classlabels_int64s", "classlabels_strings");
  classical::OnnxEnsemble ensemble = EnsembleOf(n, x);
  ensemble.outputs = static_cast<int64_t>(labels.size());
  ensemble.base = ListedNumbers(n, "base_values");
  const classical::OnnxNodes nodes = NodesOf(n);
  const classical::OnnxVotes votes = VotesOf(n, "class");
  const Transform transform = TransformOf(n);
  if (!n.ok()) return;
  if (labels.size() < 2) return n.Unsupported("a single class");
  auto classifier = classical::ReadOnnxClassifier(nodes, votes, ensemble);
  if (!classifier.ok()) return n.Fail(std::string(classifier.status().message()));
  const bool one_score = classifier->ensemble.forest.outputs == 1;
  const ValueId scores = Margins(n, x, std::move(classifier->ensemble));
  if (one_score) {
    const bool untouched = transform == Transform::kNone || transform == Transform::kProbit;
    return SetTwoClasses(n, scores, untouched && classifier->like_probability, transform, labels);
  }
  SetLabels(n, Best(n, scores), labels);
  n.Set(1, Transformed(n, scores, transform));
}

// Enumerators by the numbers that the attribute has for them.
template <typename T>
T ByNumber(NodeImport& n, const char* name, std::initializer_list<T> values) {
  const int64_t number = n.Int(name);
  if (number >= 0 && number < static_cast<int64_t>(values.size())) return values.begin()[number];
  n.Unsupported(absl::StrCat(name, " ", number));
  return *values.begin();
}

void TreeEnsemble(NodeImport& n) {
  n.Ignore({"nodes_hitrates"});
  const ValueId x = ExactRowsOf(n);
  classical::OnnxEnsemble ensemble = EnsembleOf(n, x);
  ensemble.outputs = n.Int("n_targets", 1);
  ensemble.aggregate =
      ByNumber(n, "aggregate_function",
               {Aggregate::kMean, Aggregate::kSum, Aggregate::kMin, Aggregate::kMax});
  const Transform transform = ByNumber(n, "post_transform",
                                       {Transform::kNone, Transform::kSoftmax, Transform::kLogistic,
                                        Transform::kSoftmaxZero, Transform::kProbit});
  classical::OnnxTrees trees{.roots = n.Ints("tree_roots"),
                             .featureids = n.Ints("nodes_featureids"),
                             .modes = {},
                             .splits = TensorNumbers(n, "nodes_splits"),
                             .truenodeids = n.Ints("nodes_truenodeids"),
                             .falsenodeids = n.Ints("nodes_falsenodeids"),
                             .trueleafs = n.Ints("nodes_trueleafs"),
                             .falseleafs = n.Ints("nodes_falseleafs"),
                             .missing_value_tracks_true = n.Ints("nodes_missing_value_tracks_true"),
                             .membership_values = TensorNumbers(n, "membership_values"),
                             .leaf_targetids = n.Ints("leaf_targetids"),
                             .leaf_weights = TensorNumbers(n, "leaf_weights")};
  for (const double mode : TensorNumbers(n, "nodes_modes")) {
    if (!(mode >= 0 && mode < static_cast<double>(BranchMode::kLeaf)))
      return n.Unsupported(absl::StrCat("the node mode ", mode));
    trees.modes.push_back(static_cast<BranchMode>(static_cast<int>(mode)));
  }
  if (!n.ok()) return;
  const ValueId scores =
      Transformed(n, Margins(n, x, classical::ReadOnnxForest(trees, ensemble)), transform);
  if (n.ok()) n.Set(0, n.Cast(scores, n.Type(n.In(0)).dtype));
}

}  // namespace

void AddTreeTranslations(TranslationTable& table) {
  const auto add = [&](const char* name, Translation::Run run, const char* limits) {
    table[onnx::OperatorKey(onnx::kMlDomain, name)] = {run, limits};
  };
  constexpr const char* kExtremes = "MIN and MAX of trees whose leaves are for different targets";
  add("TreeEnsemble", TreeEnsemble, kExtremes);
  add("TreeEnsembleRegressor", TreeEnsembleRegressor, kExtremes);
  add("TreeEnsembleClassifier", TreeEnsembleClassifier, "a single class");
}

}  // namespace heddle::graph
