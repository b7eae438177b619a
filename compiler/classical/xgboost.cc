#include "compiler/classical/xgboost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "compiler/classical/document.h"
#include "compiler/classical/refuse.h"
#include "compiler/classical/tree_order.h"

namespace heddle::classical {
namespace {

constexpr int kNewestMajor = 3;  // the newest major version whose files are known
constexpr float kLeastProbability =
    1e-6f;  // from version 3.2 on, base_score is kept so far from 0 and 1

// How base_score becomes a margin.
enum class BaseScore { kMargin, kLogit, kLog };
enum class Classes { kNone, kBinary, kMany };
struct XgboostObjective {
  absl::string_view name;
  BaseScore base_score = BaseScore::kMargin;
  Transform transform = Transform::kNone;
  Classes classes = Classes::kNone;
};
constexpr XgboostObjective kXgboostObjectives[] = {
    {"reg:squarederror"},
    {"reg:linear"},
    {"reg:squaredlogerror"},
    {"reg:pseudohubererror"},
    {"reg:absoluteerror"},
    {"reg:quantileerror"},
    {"reg:expectileerror"},
    {"reg:logistic", BaseScore::kLogit, Transform::kLogistic},
    {"binary:logistic", BaseScore::kLogit, Transform::kLogistic, Classes::kBinary},
    {"binary:logitraw", BaseScore::kMargin, Transform::kNone, Classes::kBinary},
    {"binary:hinge", BaseScore::kMargin, Transform::kStep, Classes::kBinary},
    {"multi:softmax", BaseScore::kMargin, Transform::kSoftmax, Classes::kMany},
    {"multi:softprob", BaseScore::kMargin, Transform::kSoftmax, Classes::kMany},
    {"count:poisson", BaseScore::kLog, Transform::kExp},
    {"reg:gamma", BaseScore::kLog, Transform::kExp},
    {"reg:tweedie", BaseScore::kLog, Transform::kExp},
    {"survival:cox", BaseScore::kLog, Transform::kExp},
    {"survival:aft", BaseScore::kLog, Transform::kExp},
    {"rank:pairwise"},
    {"rank:ndcg"},
    {"rank:map"},
};

// Reads the members of an object. Errors begin with its place in the file, such as "trees[3]".
class Fields {
 public:
  Fields(const Value& value, std::string where) : value_(&value), where_(std::move(where)) {}

  bool Has(absl::string_view name) const { return value_->Find(name) != nullptr; }
  std::string At(absl::string_view name) const {
    return where_.empty() ? std::string(name) : absl::StrCat(where_, ".", name);
  }

  absl::StatusOr<Fields> Object(absl::string_view name) const {
    HEDDLE_RETURN_IF_ERROR(Get<std::vector<Member>>(name, "an object").status());
    return Fields(*value_->Find(name), At(name));
  }

  absl::StatusOr<absl::string_view> Text(absl::string_view name) const {
    HEDDLE_ASSIGN_OR_RETURN(const std::string* text, Get<std::string>(name, "a text"));
    return *text;
  }

  absl::StatusOr<std::span<const double>> Numbers(absl::string_view name) const {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<double>* numbers,
                            Get<std::vector<double>>(name, "an array of numbers"));
    return *numbers;
  }
  absl::StatusOr<std::span<const double>> Numbers(absl::string_view name, size_t count) const {
    HEDDLE_ASSIGN_OR_RETURN(std::span<const double> numbers, Numbers(name));
    if (numbers.size() != count)
      return Damaged(At(name), "has ", numbers.size(), " numbers instead of ", count);
    return numbers;
  }

  // An array of objects or texts. It may be empty.
  absl::StatusOr<std::span<const Value>> Values(absl::string_view name) const {
    const absl::StatusOr<std::span<const double>> none = Numbers(name);
    if (none.ok() && none->empty()) return std::span<const Value>();
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Value>* values,
                            Get<std::vector<Value>>(name, "an array of objects or texts"));
    return *values;
  }

  // A whole number, which XGBoost writes as a text.
  absl::StatusOr<int> Whole(absl::string_view name, int least, int most) const {
    HEDDLE_ASSIGN_OR_RETURN(absl::string_view text, Text(name));
    int64_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
      return Damaged(At(name), "is '", text.substr(0, 40), "', no whole number from ", least,
                     " to ", most);
    }
    return static_cast<int>(number);
  }
  absl::StatusOr<int> Whole(absl::string_view name, int least, int most, int otherwise) const {
    return Has(name) ? Whole(name, least, most) : otherwise;
  }

 private:
  template <typename T>
  absl::StatusOr<const T*> Get(absl::string_view name, absl::string_view what) const {
    const Value* value = value_->Find(name);
    if (value == nullptr) return Damaged(At(name), "is missing");
    const T* as = std::get_if<T>(&value->is);
    if (as == nullptr) return Damaged(At(name), "is not ", what);
    return as;
  }

  const Value* value_;
  std::string where_;
};

// A number of an array as a whole number in [least, most].
absl::StatusOr<int64_t> WholeNumber(double number, int64_t least, int64_t most,
                                    absl::string_view where) {
  if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)) ||
      number != std::floor(number))
    return Damaged(where, absl::StrFormat("%.10g", number), " is no whole number from ", least,
                   " to ", most);
  return static_cast<int64_t>(number);
}

struct Version {
  int major = 0, minor = 0;
  bool From(int other_major, int other_minor) const {
    return std::pair(major, minor) >= std::pair(other_major, other_minor);
  }
};

absl::StatusOr<Version> ReadVersion(const Fields& file) {
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> numbers, file.Numbers("version", 3));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t major, WholeNumber(numbers[0], 0, 1'000'000, "version"));
  HEDDLE_ASSIGN_OR_RETURN(const int64_t minor, WholeNumber(numbers[1], 0, 1'000'000, "version"));
  if (major > kNewestMajor) {
    return Refuse("version ", major, ".", minor, " is newer than the formats known here, 1.0 to ",
                  kNewestMajor, ".x: save the model with an older XGBoost");
  }
  return Version{static_cast<int>(major), static_cast<int>(minor)};
}

absl::StatusOr<float> BaseMargin(float score, BaseScore form, Version version) {
  switch (form) {
    case BaseScore::kMargin:
      return score;
    case BaseScore::kLogit:
      if (version.From(3, 2) && score >= 0 && score <= 1)
        score = std::clamp(score, kLeastProbability, 1 - kLeastProbability);
      if (!(score > 0 && score < 1))
        return Damaged("learner_model_param.base_score", score, " is no probability in (0, 1)");
      return -std::log(1.0f / score - 1.0f);  // in f32, as XGBoost computes it
    case BaseScore::kLog:
      if (!(score > 0)) return Damaged("learner_model_param.base_score", score, " is not positive");
      return std::log(score);
  }
  return absl::InternalError("no such form of base_score");
}

// base_score is one number for all outputs, or a list "[1E0,2E0]" with one for each.
absl::StatusOr<std::vector<float>> BaseMargins(absl::string_view text, int outputs, BaseScore form,
                                               Version version) {
  absl::string_view list = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&list, "[") && !absl::ConsumeSuffix(&list, "]"))
    return Damaged("learner_model_param.base_score", "the list has no end");
  std::vector<float> margins;
  for (absl::string_view part : absl::StrSplit(list, ',')) {
    float score = 0;
    if (!absl::SimpleAtof(part, &score) || !std::isfinite(score))
      return Damaged("learner_model_param.base_score", "'", part.substr(0, 40), "' is no number");
    if (std::ssize(margins) == outputs)
      return Damaged("learner_model_param.base_score", "has more than ", outputs, " numbers");
    HEDDLE_ASSIGN_OR_RETURN(const float margin, BaseMargin(score, form, version));
    margins.push_back(margin);
  }
  if (margins.size() == 1) margins.resize(outputs, margins[0]);
  if (std::ssize(margins) != outputs) {
    return Damaged("learner_model_param.base_score", "has ", margins.size(), " numbers for ",
                   outputs, " outputs");
  }
  return margins;
}

// The objective of that name, if a forest can express it with that many classes (0: none) and outputs.
absl::StatusOr<XgboostObjective> FindObjective(absl::string_view name, int classes, int outputs,
                                               Version version) {
  const auto* found = std::ranges::find(kXgboostObjectives, name, &XgboostObjective::name);
  if (found == std::end(kXgboostObjectives)) {
    return Refuse("objective '", name.substr(0, 80),
                  "' is not known here: save the model with the objective reg:squarederror, whose "
                  "predictions are the margins, and transform these yourself");
  }
  if (outputs > 1 &&
      ((name == "reg:quantileerror" && version.From(3, 4)) || (name == "reg:expectileerror"))) {
    return Refuse("objective ", name, " with ", outputs,
                  " levels orders its outputs in a row, which is not supported: train one model "
                  "for each level");
  }
  if (found->classes == Classes::kMany && (classes < 2 || classes != outputs)) {
    return Damaged("learner_model_param.num_class", "objective ", name, " with ", classes,
                   " classes and ", outputs, " outputs");
  }
  return *found;
}

// The sets of a tree's categorical splits: for each node the members, or nullopt. `members_left` limits
// all trees.
absl::StatusOr<std::vector<std::optional<std::vector<int64_t>>>> ReadCategories(
    const Fields& tree, int nodes, int64_t* members_left) {
  std::vector<std::optional<std::vector<int64_t>>> sets(nodes);
  if (!tree.Has("categories_nodes")) return sets;
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> splits, tree.Numbers("categories_nodes"));
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> begins,
                          tree.Numbers("categories_segments", splits.size()));
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> sizes,
                          tree.Numbers("categories_sizes", splits.size()));
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> categories, tree.Numbers("categories"));
  for (size_t i = 0; i < splits.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t node,
                            WholeNumber(splits[i], 0, nodes - 1, tree.At("categories_nodes")));
    if (sets[node].has_value())
      return Damaged(tree.At("categories_nodes"), "node ", node, " twice");
    HEDDLE_ASSIGN_OR_RETURN(const int64_t begin, WholeNumber(begins[i], 0, std::ssize(categories),
                                                             tree.At("categories_segments")));
    HEDDLE_ASSIGN_OR_RETURN(
        const int64_t size,
        WholeNumber(sizes[i], 0, std::ssize(categories) - begin, tree.At("categories_sizes")));
    *members_left -= size;
    if (*members_left < 0) {
      return Refuse(tree.At("categories"), ": the splits have more than ", kMostMembers,
                    " categories together: group rare categories");
    }
    std::vector<int64_t>& members = sets[node].emplace();
    for (double category : categories.subspan(begin, size)) {
      HEDDLE_ASSIGN_OR_RETURN(const int64_t member,
                              WholeNumber(category, 0, kMostCategory, tree.At("categories")));
      members.push_back(member);
    }
    std::ranges::sort(members);
    members.erase(std::unique(members.begin(), members.end()), members.end());
  }
  return sets;
}

// What one tree of the file adds to the forest.
class XgboostTreeReader {
 public:
  explicit XgboostTreeReader(Forest& forest) : forest_(forest), columns_(forest) {}

  // `target` is the output that a tree with one value a leaf adds to.
  absl::Status Add(const Fields& tree, int target, float weight);

 private:
  absl::StatusOr<std::vector<float>> Leaves(const Fields& tree, std::span<const int> leaves,
                                            int width, size_t nodes) const;

  Forest& forest_;
  ColumnNumbers columns_;
  int64_t nodes_left_ = kMostNodes;
  int64_t leaf_values_left_ = kMostLeafValues;
  int64_t members_left_ = kMostMembers;
};

absl::Status XgboostTreeReader::Add(const Fields& tree, int target, float weight) {
  HEDDLE_ASSIGN_OR_RETURN(const Fields param, tree.Object("tree_param"));
  // 0 or 1: one value a leaf.
  HEDDLE_ASSIGN_OR_RETURN(int width, param.Whole("size_leaf_vector", 0, kMostOutputs, 1));
  width = std::max(width, 1);
  if (width > 1 && width != forest_.outputs) {
    return Damaged(param.At("size_leaf_vector"), width, " values a leaf for ", forest_.outputs,
                   " outputs");
  }
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> left, tree.Numbers("left_children"));
  const size_t nodes = left.size();
  if (static_cast<int64_t>(nodes) > nodes_left_)
    return Refuse(tree.At("left_children"), ": the trees have more than ", kMostNodes, " nodes");
  nodes_left_ -= static_cast<int64_t>(nodes);
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> right, tree.Numbers("right_children", nodes));
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> features, tree.Numbers("split_indices", nodes));
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> conditions,
                          tree.Numbers("split_conditions", nodes));
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> default_left,
                          tree.Numbers("default_left", nodes));
  std::span<const double> types;  // 1: a categorical split; only from version 1.3 on
  if (tree.Has("split_type")) {
    HEDDLE_ASSIGN_OR_RETURN(types, tree.Numbers("split_type", nodes));
  }
  HEDDLE_ASSIGN_OR_RETURN(auto sets, ReadCategories(tree, static_cast<int>(nodes), &members_left_));

  const auto node = [&](int i) -> absl::StatusOr<ListedNode> {
    if (left[i] == -1) return ListedNode{.leaf = true};
    const auto whole = [&](double number, int64_t most, absl::string_view field) {
      return WholeNumber(number, 0, most, absl::StrCat(tree.At(field), "[", i, "]"));
    };
    ListedNode n;
    HEDDLE_ASSIGN_OR_RETURN(n.left, whole(left[i], std::ssize(left) - 1, "left_children"));
    HEDDLE_ASSIGN_OR_RETURN(n.right, whole(right[i], std::ssize(left) - 1, "right_children"));
    HEDDLE_ASSIGN_OR_RETURN(n.column.feature,
                            whole(features[i], forest_.features - 1, "split_indices"));
    HEDDLE_ASSIGN_OR_RETURN(const int64_t missing_left, whole(default_left[i], 1, "default_left"));
    if (!types.empty() && (types[i] == 1) != sets[i].has_value())
      return Damaged(absl::StrCat(tree.At("split_type"), "[", i, "]"),
                     "does not agree with categories_nodes");
    if (sets[i].has_value()) {
      n.column.kind = Column::Kind::kMember;
      n.column.instead = missing_left ? 0 : 1;
      n.column.members = *std::move(sets[i]);
      n.column.from_zero = true;
      n.threshold = 1;
    } else {
      n.column.instead = missing_left ? -kInfinity : kInfinity;
      n.threshold = static_cast<float>(conditions[i]);
    }
    return n;
  };
  absl::StatusOr<OrderedTree> ordered = OrderTree(static_cast<int>(nodes), node, columns_);
  if (!ordered.ok()) {
    // A field that `node` read has named itself.
    if (absl::StartsWith(ordered.status().message(), tree.At(""))) return ordered.status();
    return Damaged(tree.At("left_children"), ordered.status().message());
  }
  leaf_values_left_ -= std::ssize(ordered->leaves) * width;
  if (leaf_values_left_ < 0)
    return Refuse(tree.At("left_children"), ": the trees have more than ", kMostLeafValues,
                  " leaf values");

  Tree result{.nodes = std::move(ordered->nodes), .target = width > 1 ? -1 : target};
  if (width > 1) {
    HEDDLE_ASSIGN_OR_RETURN(result.leaves, Leaves(tree, ordered->leaves, width, nodes));
  } else {
    for (int leaf : ordered->leaves) result.leaves.push_back(static_cast<float>(conditions[leaf]));
  }
  for (float& value : result.leaves) {
    value *= weight;
    if (!std::isfinite(value)) return Damaged(tree.At("split_conditions"), "a leaf is ", value);
  }
  forest_.trees.push_back(std::move(result));
  return absl::OkStatus();
}

// The values of vector leaves. From version 3.2 on they are listed in leaf_weights, and right_children
// of a leaf is its number in there; before, base_weights has them for every node.
absl::StatusOr<std::vector<float>> XgboostTreeReader::Leaves(const Fields& tree,
                                                             std::span<const int> leaves, int width,
                                                             size_t nodes) const {
  const bool listed = tree.Has("leaf_weights");
  std::span<const double> weights, right;
  if (listed) {
    HEDDLE_ASSIGN_OR_RETURN(weights, tree.Numbers("leaf_weights", leaves.size() * width));
    HEDDLE_ASSIGN_OR_RETURN(right, tree.Numbers("right_children", nodes));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(weights, tree.Numbers("base_weights", nodes * width));
  }
  std::vector<float> values;
  values.reserve(leaves.size() * width);
  for (int leaf : leaves) {
    int64_t place = leaf;
    if (listed) {
      HEDDLE_ASSIGN_OR_RETURN(
          place, WholeNumber(right[leaf], 0, std::ssize(leaves) - 1, tree.At("right_children")));
    }
    for (double value : weights.subspan(place * width, width))
      values.push_back(static_cast<float>(value));
  }
  return values;
}

// The number of trees that predict: those up to best_iteration, or all.
absl::StatusOr<int> TreesInUse(const Fields& learner, const Fields& model, int trees,
                               std::span<const double> groups) {
  if (!learner.Has("attributes")) return trees;
  HEDDLE_ASSIGN_OR_RETURN(const Fields attributes, learner.Object("attributes"));
  if (!attributes.Has("best_iteration")) return trees;
  HEDDLE_ASSIGN_OR_RETURN(const int best,
                          attributes.Whole("best_iteration", 0, std::numeric_limits<int>::max()));
  if (model.Has("iteration_indptr")) {  // the number of trees before each iteration
    HEDDLE_ASSIGN_OR_RETURN(std::span<const double> ends, model.Numbers("iteration_indptr"));
    if (best >= std::ssize(ends) - 1) return trees;
    HEDDLE_ASSIGN_OR_RETURN(const int64_t end,
                            WholeNumber(ends[best + 1], 0, trees, model.At("iteration_indptr")));
    return static_cast<int>(end);
  }
  HEDDLE_ASSIGN_OR_RETURN(const Fields param, model.Object("gbtree_model_param"));
  HEDDLE_ASSIGN_OR_RETURN(const int parallel, param.Whole("num_parallel_tree", 0, kMostTrees, 1));
  const double most_group = groups.empty() ? 0 : *std::ranges::max_element(groups);
  const double an_iteration = std::max(parallel, 1) * (most_group + 1);
  return static_cast<int>(std::min<double>(trees, an_iteration * (best + 1.0)));
}

absl::Status ReadXgboostTrees(const Fields& learner, Forest& forest) {
  HEDDLE_ASSIGN_OR_RETURN(Fields booster, learner.Object("gradient_booster"));
  HEDDLE_ASSIGN_OR_RETURN(const absl::string_view name, booster.Text("name"));
  if (name == "gblinear") {
    return Refuse(
        "booster gblinear is a linear model without trees: export its coefficients as an ONNX "
        "LinearRegressor or LinearClassifier, or train with the booster gbtree");
  }
  if (name != "gbtree" && name != "dart")
    return Refuse("booster '", name.substr(0, 80),
                  "' is not known here: train with gbtree or dart");
  std::span<const double> weights;  // of the first trees; 1 for the others
  if (booster.Has("weight_drop")) {
    HEDDLE_ASSIGN_OR_RETURN(weights, booster.Numbers("weight_drop"));
  }
  if (booster.Has("gbtree")) {  // dart up to version 3.3
    HEDDLE_ASSIGN_OR_RETURN(booster, booster.Object("gbtree"));
  }
  HEDDLE_ASSIGN_OR_RETURN(const Fields model, booster.Object("model"));
  if (model.Has("weight_drop")) {
    HEDDLE_ASSIGN_OR_RETURN(weights, model.Numbers("weight_drop"));
  }
  if (model.Has("cats")) {  // since version 3.1
    HEDDLE_ASSIGN_OR_RETURN(const Fields categories, model.Object("cats"));
    HEDDLE_ASSIGN_OR_RETURN(const std::span<const Value> lists, categories.Values("enc"));
    if (!lists.empty()) forest.warnings.emplace_back(kCategoriesOfFrame);
  }
  HEDDLE_ASSIGN_OR_RETURN(std::span<const Value> trees, model.Values("trees"));
  if (std::ssize(trees) > kMostTrees)
    return Refuse(model.At("trees"), ": has ", trees.size(), "; ", kMostTrees, " is the most");
  HEDDLE_ASSIGN_OR_RETURN(std::span<const double> groups, model.Numbers("tree_info", trees.size()));
  if (weights.size() > trees.size())
    return Damaged(model.At("weight_drop"), weights.size(), " weights for ", trees.size(),
                   " trees");
  HEDDLE_ASSIGN_OR_RETURN(const int in_use,
                          TreesInUse(learner, model, static_cast<int>(trees.size()), groups));
  if (in_use == 0) return Refuse(model.At("trees"), ": is empty: train for one round at least");
  XgboostTreeReader reader(forest);
  for (int i = 0; i < in_use; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t target,
                            WholeNumber(groups[i], 0, forest.outputs - 1, model.At("tree_info")));
    const float weight = i < std::ssize(weights) ? static_cast<float>(weights[i]) : 1;
    HEDDLE_RETURN_IF_ERROR(reader.Add(Fields(trees[i], absl::StrCat("trees[", i, "]")),
                                      static_cast<int>(target), weight));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> XgboostFeatureNames(const Fields& learner, int features) {
  std::vector<std::string> names;
  if (!learner.Has("feature_names")) return names;
  HEDDLE_ASSIGN_OR_RETURN(std::span<const Value> values, learner.Values("feature_names"));
  for (const Value& value : values) {
    const auto* name = std::get_if<std::string>(&value.is);
    if (name == nullptr) return Damaged(learner.At("feature_names"), "holds no texts");
    names.push_back(*name);
  }
  if (!names.empty() && std::ssize(names) != features) {
    return Damaged(learner.At("feature_names"), names.size(), " names for ", features, " features");
  }
  return names;
}

absl::StatusOr<Forest> ReadFile(const Value& document) {
  const Fields file(document, "");
  if (!file.Has("learner") && file.Has("Model"))
    return Refuse("it is a memory snapshot (pickle, serialize): write the model with save_model");
  HEDDLE_ASSIGN_OR_RETURN(const Fields learner, file.Object("learner"));
  HEDDLE_ASSIGN_OR_RETURN(const Version version, ReadVersion(file));
  HEDDLE_ASSIGN_OR_RETURN(const Fields param, learner.Object("learner_model_param"));
  HEDDLE_ASSIGN_OR_RETURN(const int classes, param.Whole("num_class", 0, kMostOutputs));
  HEDDLE_ASSIGN_OR_RETURN(const int targets, param.Whole("num_target", 0, kMostOutputs, 1));
  Forest forest;
  HEDDLE_ASSIGN_OR_RETURN(forest.features, param.Whole("num_feature", 1, kMostFeatures));
  forest.outputs = std::max({classes, targets, 1});

  HEDDLE_ASSIGN_OR_RETURN(const Fields objective, learner.Object("objective"));
  HEDDLE_ASSIGN_OR_RETURN(const absl::string_view name, objective.Text("name"));
  HEDDLE_ASSIGN_OR_RETURN(const XgboostObjective known,
                          FindObjective(name, classes, forest.outputs, version));
  forest.transform = known.transform;
  HEDDLE_ASSIGN_OR_RETURN(const absl::string_view base_score, param.Text("base_score"));
  HEDDLE_ASSIGN_OR_RETURN(forest.base,
                          BaseMargins(base_score, forest.outputs, known.base_score, version));
  if (known.classes == Classes::kBinary && forest.outputs == 1) forest.classes = {0, 1};
  if (known.classes == Classes::kMany) {
    for (int i = 0; i < forest.outputs; ++i) forest.classes.push_back(i);
  }
  HEDDLE_ASSIGN_OR_RETURN(forest.feature_names, XgboostFeatureNames(learner, forest.features));
  HEDDLE_RETURN_IF_ERROR(ReadXgboostTrees(learner, forest));
  HEDDLE_RETURN_IF_ERROR(CheckForest(forest));
  return forest;
}

}  // namespace

absl::StatusOr<Forest> ReadXgboost(std::string_view bytes) {
  absl::StatusOr<Forest> forest = [&]() -> absl::StatusOr<Forest> {
    HEDDLE_ASSIGN_OR_RETURN(const Value document, ParseDocument(bytes));
    return ReadFile(document);
  }();
  if (forest.ok()) return forest;
  return Refuse("XGBoost model: ", forest.status().message());
}

}  // namespace heddle::classical
