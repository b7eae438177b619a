#include "compiler/classical/lightgbm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "compiler/classical/refuse.h"
#include "compiler/classical/tree_order.h"

namespace heddle::classical {
namespace {

constexpr absl::string_view kVersions[] = {"v2", "v3", "v4"};

// Bits of decision_type.
constexpr int kCategorical = 1;
constexpr int kDefaultLeft = 2;
constexpr int kMissingShift = 2;
enum Missing { kMissingNone = 0, kMissingZero = 1, kMissingNan = 2 };
constexpr int kMostDecisionType = kMissingNan << kMissingShift | kDefaultLeft | kCategorical;

constexpr int kBitsPerWord = 32;  // of cat_threshold

struct LightgbmObjective {
  absl::string_view name;
  Transform transform = Transform::kNone;
  bool takes_sqrt = false;     // the word "sqrt" after the name makes the transform kSquareSigned
  bool takes_sigmoid = false;  // "sigmoid:S" multiplies the score
  bool classifies = false;
};
constexpr LightgbmObjective kLightgbmObjectives[] = {
    {"regression", Transform::kNone, /*takes_sqrt=*/true},
    {"regression_l1", Transform::kNone, /*takes_sqrt=*/true},
    {"huber"},
    {"fair", Transform::kNone, /*takes_sqrt=*/true},
    {"quantile", Transform::kNone, /*takes_sqrt=*/true},
    {"mape", Transform::kNone, /*takes_sqrt=*/true},
    {"poisson", Transform::kExp},
    {"gamma", Transform::kExp},
    {"tweedie", Transform::kExp},
    {"binary", Transform::kLogistic, false, /*takes_sigmoid=*/true, /*classifies=*/true},
    {"multiclass", Transform::kSoftmax, false, false, /*classifies=*/true},
    {"multiclassova", Transform::kLogistic, false, /*takes_sigmoid=*/true, /*classifies=*/true},
    {"cross_entropy", Transform::kLogistic},
    {"xentropy", Transform::kLogistic},
    {"cross_entropy_lambda", Transform::kLog1pExp},
    {"xentlambda", Transform::kLog1pExp},
    {"lambdarank"},
    {"rank_xendcg"},
    {"custom"},
};

// The text, line by line. Lines end with \n or \r\n.
class Lines {
 public:
  explicit Lines(absl::string_view text) : rest_(text) {}
  // nullopt: the text is over. A line without an end does not count: the text was cut there.
  std::optional<absl::string_view> Next() {
    const size_t end = rest_.find('\n');
    if (end == absl::string_view::npos) return std::nullopt;
    absl::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    absl::ConsumeSuffix(&line, "\r");
    return line;
  }

 private:
  absl::string_view rest_;
};

// Lines "name=value". Errors begin with the section that they stand in, such as "Tree=3".
class Section {
 public:
  explicit Section(std::string where) : where_(std::move(where)) {}

  // A line without '=' is a name with an empty value. If a name comes twice, the last one counts.
  void AddLine(absl::string_view line) {
    const size_t equals = line.find('=');
    values_[line.substr(0, equals)] =
        equals == absl::string_view::npos ? absl::string_view() : line.substr(equals + 1);
  }

  std::string At(absl::string_view name) const { return absl::StrCat(where_, ": ", name); }
  bool Has(absl::string_view name) const { return values_.contains(name); }
  absl::StatusOr<absl::string_view> Text(absl::string_view name) const {
    const auto it = values_.find(name);
    if (it == values_.end()) return Damaged(At(name), "is missing");
    return it->second;
  }

  absl::StatusOr<int> Whole(absl::string_view name, int least, int most) const {
    HEDDLE_ASSIGN_OR_RETURN(const absl::string_view text, Text(name));
    int number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
      return Damaged(At(name), "is '", text.substr(0, 40), "', no whole number from ", least,
                     " to ", most);
    }
    return number;
  }

  // `count` numbers with a blank between them. They may be infinite, but are not NaN.
  absl::StatusOr<std::vector<double>> Numbers(absl::string_view name, size_t count) const {
    return List<double>(name, count, [](absl::string_view text, double* number) {
      return absl::SimpleAtod(text, number) && !std::isnan(*number);
    });
  }
  absl::StatusOr<std::vector<int64_t>> WholeNumbers(absl::string_view name, size_t count,
                                                    int64_t least, int64_t most) const {
    return List<int64_t>(name, count, [&](absl::string_view text, int64_t* number) {
      return absl::SimpleAtoi(text, number) && *number >= least && *number <= most;
    });
  }

 private:
  template <typename T, typename Parse>
  absl::StatusOr<std::vector<T>> List(absl::string_view name, size_t count, Parse parse) const {
    HEDDLE_ASSIGN_OR_RETURN(const absl::string_view text, Text(name));
    std::vector<T> numbers;
    for (absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
      T number = 0;
      if (!parse(part, &number)) {
        return Damaged(absl::StrCat(At(name), "[", numbers.size(), "]"), "'", part.substr(0, 40),
                       "' is no number, or out of range");
      }
      numbers.push_back(number);
    }
    if (numbers.size() != count)
      return Damaged(At(name), "has ", numbers.size(), " numbers instead of ", count);
    return numbers;
  }

  std::string where_;
  absl::flat_hash_map<absl::string_view, absl::string_view> values_;
};

// The members of a bit set: bit b of word w is category 32 w + b.
std::vector<int64_t> Members(std::span<const int64_t> words) {
  std::vector<int64_t> members;
  for (size_t w = 0; w < words.size(); ++w) {
    for (int b = 0; b < kBitsPerWord; ++b) {
      if (words[w] >> b & 1) members.push_back(static_cast<int64_t>(w) * kBitsPerWord + b);
    }
  }
  return members;
}

class LightgbmTreeReader {
 public:
  explicit LightgbmTreeReader(Forest& forest) : forest_(forest), columns_(forest) {}
  absl::Status Add(const Section& tree, int target);
  // Warns of thresholds that are different numbers of f64 and the same one of f32.
  void WarnOfNearThresholds();

 private:
  using OfFeature = std::pair<int64_t, float>;  // a threshold of f32
  Forest& forest_;
  ColumnNumbers columns_;
  int64_t nodes_left_ = kMostNodes;
  int64_t members_left_ = kMostMembers;
  absl::flat_hash_map<OfFeature, double> thresholds_;  // as the file has it
  std::set<int64_t> near_;                             // features
};

void LightgbmTreeReader::WarnOfNearThresholds() {
  if (near_.empty()) return;
  const auto first = static_cast<size_t>(*near_.begin());
  const std::string name =
      forest_.feature_names.empty() ? absl::StrCat(first) : forest_.feature_names[first];
  forest_.warnings.push_back(absl::StrCat(
      "rows have 32-bit numbers, which do not tell all thresholds of feature '", name, "'",
      near_.size() > 1 ? absl::StrCat(" and of ", near_.size() - 1, " more") : "",
      " apart, so some rows take another leaf than in LightGBM: subtract a constant from the "
      "feature, or scale it, and train again"));
}

absl::Status LightgbmTreeReader::Add(const Section& tree, int target) {
  if (tree.Has("is_linear")) {
    HEDDLE_ASSIGN_OR_RETURN(const int is_linear, tree.Whole("is_linear", 0, 1));
    if (is_linear) {
      return Refuse(tree.At("is_linear"),
                    ": leaves with linear models are not supported: train with linear_tree=false");
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const int leaves,
                          tree.Whole("num_leaves", 1, std::numeric_limits<int>::max() / 2));
  const int inner = leaves - 1;
  nodes_left_ -= inner;
  if (nodes_left_ < 0)
    return Refuse(tree.At("num_leaves"), ": the trees have more than ", kMostNodes, " nodes");
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<double> values, tree.Numbers("leaf_value", leaves));
  Tree result{.target = target};
  for (double value : values) {
    if (std::abs(value) > std::numeric_limits<float>::max())
      return Damaged(tree.At("leaf_value"), value, " is too large");
  }
  if (inner == 0) {  // all other fields may be missing
    result.leaves = {static_cast<float>(values[0])};
    forest_.trees.push_back(std::move(result));
    return absl::OkStatus();
  }

  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> features,
                          tree.WholeNumbers("split_feature", inner, 0, forest_.features - 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<double> thresholds, tree.Numbers("threshold", inner));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                          tree.WholeNumbers("decision_type", inner, 0, kMostDecisionType));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> left,
                          tree.WholeNumbers("left_child", inner, -leaves, inner - 1));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<int64_t> right,
                          tree.WholeNumbers("right_child", inner, -leaves, inner - 1));
  HEDDLE_ASSIGN_OR_RETURN(const int sets, tree.Whole("num_cat", 0, inner));
  std::vector<int64_t> boundaries, words;
  if (sets > 0) {
    HEDDLE_ASSIGN_OR_RETURN(
        boundaries, tree.WholeNumbers("cat_boundaries", sets + 1, 0, kMostMembers / kBitsPerWord));
    if (!std::ranges::is_sorted(boundaries))
      return Damaged(tree.At("cat_boundaries"), "the numbers are not sorted");
    HEDDLE_ASSIGN_OR_RETURN(words, tree.WholeNumbers("cat_threshold", boundaries.back(), 0,
                                                     std::numeric_limits<uint32_t>::max()));
  }

  // Numbers of the list: inner nodes, then leaves. A negative child is leaf ~child.
  const auto listed = [&](int64_t child) {
    return static_cast<int>(child >= 0 ? child : inner + ~child);
  };
  const auto node = [&](int i) -> absl::StatusOr<ListedNode> {
    if (i >= inner) return ListedNode{.leaf = true};
    ListedNode n;
    n.column.feature = static_cast<int>(features[i]);
    if (types[i] & kCategorical) {
      if (!(thresholds[i] >= 0 && thresholds[i] < sets) ||
          thresholds[i] != std::floor(thresholds[i])) {
        return Damaged(absl::StrCat(tree.At("threshold"), "[", i, "]"), thresholds[i],
                       " is none of ", sets, " sets of categories");
      }
      const auto set = static_cast<size_t>(thresholds[i]);
      n.column.kind = Column::Kind::kMember;
      n.column.members =
          Members(std::span(words).subspan(boundaries[set], boundaries[set + 1] - boundaries[set]));
      members_left_ -= std::ssize(n.column.members);
      if (members_left_ < 0) {
        return Refuse(tree.At("cat_threshold"), ": the splits have more than ", kMostMembers,
                      " categories together: group rare categories");
      }
      n.threshold = 1;
      n.left = listed(right[i]);
      n.right = listed(left[i]);
      return n;
    }
    const bool missing_left = types[i] & kDefaultLeft;
    const int64_t missing = types[i] >> kMissingShift;
    n.left = listed(left[i]);
    n.right = listed(right[i]);
    if (missing == kMissingZero) n.column.missing = Column::Missing::kNanOrZero;
    if (thresholds[i] == kInfinity) {
      // The threshold is +infinity, so every value goes left, +infinity too. Only a missing value may go
      // right. The node becomes a member column without members: its answer is `instead` if the value is missing, else 0.
      n.column.kind = Column::Kind::kMember;
      n.column.instead = missing != kMissingNone && !missing_left ? 1 : 0;
      n.threshold = 1;
      return n;
    }
    if (missing != kMissingNone) n.column.instead = missing_left ? -kInfinity : kInfinity;
    n.threshold = SmallestAbove(thresholds[i]);
    const auto [same, fresh] =
        thresholds_.try_emplace(OfFeature(features[i], n.threshold), thresholds[i]);
    if (!fresh && same->second != thresholds[i]) near_.insert(features[i]);
    return n;
  };
  absl::StatusOr<OrderedTree> ordered = OrderTree(inner + leaves, node, columns_);
  if (!ordered.ok()) {
    // A field that `node` read has named itself.
    if (absl::StartsWith(ordered.status().message(), tree.At(""))) return ordered.status();
    return Damaged(tree.At("left_child"), ordered.status().message());
  }
  result.nodes = std::move(ordered->nodes);
  for (int leaf : ordered->leaves)
    result.leaves.push_back(static_cast<float>(values[leaf - inner]));
  forest_.trees.push_back(std::move(result));
  return absl::OkStatus();
}

// The lines up to the first tree, which comes back as `next`.
absl::StatusOr<Section> ReadHead(Lines& lines, absl::string_view* next) {
  Section head("head");
  while (const std::optional<absl::string_view> line = lines.Next()) {
    *next = *line;
    if (absl::StartsWith(*line, "Tree=") || *line == "end of trees") return head;
    if (!line->empty()) head.AddLine(*line);
  }
  return Damaged("head", "the text ends before the trees");
}

// Transform, scale and classes. The text is a name and its parameters, such as "binary sigmoid:1".
absl::Status ReadObjective(absl::string_view text, Forest& forest) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  const auto* known = std::ranges::find(kLightgbmObjectives, words[0], &LightgbmObjective::name);
  if (known == std::end(kLightgbmObjectives)) {
    return Refuse("head: objective: '", words[0].substr(0, 80),
                  "' is not known here: remove the line objective= to get the raw scores");
  }
  forest.transform = known->transform;
  for (absl::string_view word : std::span(words).subspan(1)) {
    if (known->takes_sqrt && word == "sqrt") forest.transform = Transform::kSquareSigned;
    if (known->takes_sigmoid && absl::ConsumePrefix(&word, "sigmoid:") &&
        (!absl::SimpleAtof(word, &forest.scale) || !std::isfinite(forest.scale) ||
         forest.scale <= 0))
      return Damaged("head: objective", "sigmoid is '", word.substr(0, 40), "', not positive");
  }
  if (known->classifies) {
    const int classes = forest.outputs == 1 ? 2 : forest.outputs;
    for (int i = 0; i < classes; ++i) forest.classes.push_back(i);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> LightgbmFeatureNames(const Section& head, int features) {
  std::vector<std::string> names;
  HEDDLE_ASSIGN_OR_RETURN(const absl::string_view text, head.Text("feature_names"));
  bool made_up = true;
  for (absl::string_view name : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    made_up = made_up && name == absl::StrCat("Column_", names.size());
    names.emplace_back(name);
  }
  if (std::ssize(names) != features) {
    return Damaged(head.At("feature_names"), names.size(), " names for ", features, " features");
  }
  if (made_up) names.clear();
  return names;
}

// The trees up to the line "end of trees". `line` is the one after the head.
absl::Status ReadLightgbmTrees(Lines& lines, absl::string_view line, Forest& forest) {
  LightgbmTreeReader reader(forest);
  for (int i = 0; line != "end of trees"; ++i) {
    const std::string where = absl::StrCat("Tree=", i);
    if (line != where) return Damaged(where, "the text goes on with '", line.substr(0, 40), "'");
    if (i == kMostTrees) return Refuse(where, ": ", kMostTrees, " trees are the most");
    Section tree(where);
    std::optional<absl::string_view> next;
    while ((next = lines.Next()).has_value() && !next->empty()) tree.AddLine(*next);
    while (next.has_value() && next->empty()) next = lines.Next();
    if (!next.has_value()) {
      return Refuse(where,
                    ": the text ends before the line 'end of trees': the file is damaged, or of "
                    "LightGBM before 2.2: "
                    "save the model again with save_model");
    }
    HEDDLE_RETURN_IF_ERROR(reader.Add(tree, i % forest.outputs));
    line = *next;
  }
  reader.WarnOfNearThresholds();
  return absl::OkStatus();
}

// What LightGBM's package for Python writes at the end.
void ReadFrame(Lines& lines, Forest& forest) {
  while (std::optional<absl::string_view> line = lines.Next()) {
    if (!absl::ConsumePrefix(&*line, "pandas_categorical:")) continue;
    if (*line != "null" && *line != "[]") forest.warnings.emplace_back(kCategoriesOfFrame);
  }
}

absl::StatusOr<Forest> ReadText(absl::string_view text) {
  Lines lines(text);
  if (lines.Next() != "tree") return Refuse("the first line is not 'tree'");
  absl::string_view first_tree;
  HEDDLE_ASSIGN_OR_RETURN(const Section head, ReadHead(lines, &first_tree));
  HEDDLE_ASSIGN_OR_RETURN(const absl::string_view version, head.Text("version"));
  if (std::ranges::find(kVersions, version) == std::end(kVersions)) {
    return Refuse("version '", version.substr(0, 40),
                  "' is none of v2, v3 and v4: save the model with LightGBM 2.2 to 4");
  }
  Forest forest;
  HEDDLE_ASSIGN_OR_RETURN(const int last, head.Whole("max_feature_idx", 0, kMostFeatures - 1));
  forest.features = last + 1;
  HEDDLE_ASSIGN_OR_RETURN(forest.outputs, head.Whole("num_tree_per_iteration", 1, kMostOutputs));
  HEDDLE_ASSIGN_OR_RETURN(forest.feature_names, LightgbmFeatureNames(head, forest.features));
  forest.base.assign(forest.outputs, 0);
  if (head.Has("objective")) {
    HEDDLE_ASSIGN_OR_RETURN(const absl::string_view objective, head.Text("objective"));
    HEDDLE_RETURN_IF_ERROR(ReadObjective(objective, forest));
  }
  HEDDLE_RETURN_IF_ERROR(ReadLightgbmTrees(lines, first_tree, forest));
  ReadFrame(lines, forest);
  if (forest.trees.empty()) return Refuse("it has no trees: train for one round at least");
  if (forest.trees.size() % forest.outputs != 0) {
    return Damaged("head: num_tree_per_iteration", forest.trees.size(),
                   " trees are no multiple of ", forest.outputs);
  }
  if (head.Has("average_output")) {
    // The mean over all trees is that over the iterations divided by the trees of an iteration.
    forest.aggregate = Aggregate::kMean;
    forest.scale *= static_cast<float>(forest.outputs);
  }
  HEDDLE_RETURN_IF_ERROR(CheckForest(forest));
  return forest;
}

}  // namespace

absl::StatusOr<Forest> ReadLightgbm(std::string_view text) {
  absl::StatusOr<Forest> forest = ReadText(absl::string_view(text.data(), text.size()));
  if (forest.ok()) return forest;
  return Refuse("LightGBM model: ", forest.status().message());
}

}  // namespace heddle::classical
