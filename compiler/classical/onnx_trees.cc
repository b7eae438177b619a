#include "compiler/classical/onnx_trees.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/classical/refuse.h"

namespace heddle::classical {
namespace {

constexpr double kInfinityF64 = std::numeric_limits<double>::infinity();

// Ranks are exact in f32.
constexpr size_t kMostRanks = size_t{1} << 24;

// Lengths of arrays that have to be equal, with the names of the arrays.
absl::Status CheckLengths(std::initializer_list<std::pair<const char*, size_t>> lengths) {
  const auto& first = *lengths.begin();
  for (const auto& [name, length] : lengths) {
    if (length != first.second)
      return Refuse(absl::StrCat("'", name, "' has ", length, " elements, but '", first.first,
                                 "' has ", first.second));
  }
  return absl::OkStatus();
}

// ---- One form for both kinds of arrays ----

// Where a branch leads: an inner node, or a leaf if negative: ~number.
using Place = int64_t;

struct Branch {
  int64_t feature = 0;
  BranchMode mode = BranchMode::kLessEqual;
  double value = 0;
  std::span<const double> members = {};  // kMember
  bool nan_is_true = false;
  Place if_true = 0, if_false = 0;
};

struct Vote {
  int64_t output = 0;
  double weight = 0;
};

struct Branches {
  std::vector<Branch> nodes;
  std::vector<std::vector<Vote>> leaves;
  std::vector<Place> roots;
  std::vector<std::vector<double>> sets;  // that members of nodes refer to
};

// ---- Questions of a forest ----

// A comparison by size, as a node of a forest makes it: is the value at least the threshold?
struct Question {
  bool yes_is_true = true;  // whether the branch is true if it is
  double threshold = 0;
  std::optional<bool> always;  // what the branch is for every value but NaN, if that is known
};

Question Compare(BranchMode mode, double value) {
  const bool below = mode == BranchMode::kLessEqual || mode == BranchMode::kLess;
  const bool above = mode == BranchMode::kLessEqual || mode == BranchMode::kGreater;
  Question q;
  q.yes_is_true = !below;
  if (std::isnan(value)) {
    q.always = false;
  } else if (above && value == kInfinityF64) {
    q.always = below;  // nothing is above
  } else {
    q.threshold = above ? std::nextafter(value, kInfinityF64) : value;
    if (q.threshold == -kInfinityF64) q.always = !below;  // everything is at least -infinity
  }
  return q;
}

// The values that x may have among these.
std::vector<double> Possible(std::span<const double> values, bool doubles) {
  std::set<double> distinct;
  for (const double v : values) {
    if (!std::isnan(v) && (doubles || static_cast<double>(static_cast<float>(v)) == v))
      distinct.insert(v == 0 ? 0.0 : v);
  }
  return {distinct.begin(), distinct.end()};
}

// Makes trees of branches.
class Planter {
 public:
  Planter(const Branches& branches, const OnnxEnsemble& ensemble)
      : branches_(branches), ensemble_(ensemble), visited_(branches.nodes.size()) {}

  absl::StatusOr<OnnxForest> Run() {
    Forest& forest = out_.forest;
    if (ensemble_.outputs < 1 || ensemble_.outputs > kMostOutputs)
      return Refuse(absl::StrCat(ensemble_.outputs, " outputs; there may be 1 to ", kMostOutputs));
    forest.outputs = static_cast<int>(ensemble_.outputs);
    forest.aggregate = ensemble_.aggregate;
    forest.base.assign(forest.outputs, 0);
    if (!ensemble_.base.empty()) {
      if (std::ssize(ensemble_.base) != forest.outputs)
        return Refuse(
            absl::StrCat(ensemble_.base.size(), " base values for ", forest.outputs, " outputs"));
      for (int i = 0; i < forest.outputs; ++i)
        forest.base[i] = static_cast<float>(ensemble_.base[i]);
    }
    for (const Place root : branches_.roots) HEDDLE_RETURN_IF_ERROR(Plant(root));
    if (!Sums()) AddZeros();
    HEDDLE_RETURN_IF_ERROR(SetThresholds());
    forest.features = ensemble_.features + static_cast<int>(out_.equalities.size());
    HEDDLE_RETURN_IF_ERROR(CheckForest(forest));
    return std::move(out_);
  }

 private:
  // A branch on the way: whose child it is, and on which side.
  struct Pending {
    Place at;
    int parent;
    bool right;
  };

  absl::Status Plant(Place root) {
    Tree tree;
    std::vector<double>& thresholds = thresholds_.emplace_back();
    std::vector<const std::vector<Vote>*> leaves;
    for (std::vector<Pending> pending{{root, -1, false}}; !pending.empty();) {
      auto [at, parent, right] = pending.back();
      pending.pop_back();
      Node node;
      double threshold = 0;
      std::pair<Place, Place> sides;
      bool asks = false;
      while (at >= 0 && !asks) {
        if (at >= std::ssize(branches_.nodes)) return Refuse(absl::StrCat("there is no node ", at));
        if (visited_[at]) return Refuse(absl::StrCat("node ", at, " is reached twice"));
        visited_[at] = true;
        const Branch& branch = branches_.nodes[at];
        if (branch.feature < 0 || branch.feature >= ensemble_.features)
          return Refuse(absl::StrCat("node ", at, " reads feature ", branch.feature, " of ",
                                     ensemble_.features));
        asks = Ask(branch, node, threshold, sides);
        if (!asks) at = sides.first;
      }
      int number = 0;
      if (at < 0) {
        if (~at >= std::ssize(branches_.leaves))
          return Refuse(absl::StrCat("there is no leaf ", ~at));
        number = ~static_cast<int>(leaves.size());
        leaves.push_back(&branches_.leaves[~at]);
      } else {
        number = static_cast<int>(tree.nodes.size());
        tree.nodes.push_back(node);
        thresholds.push_back(threshold);
        pending.push_back({sides.second, number, true});
        pending.push_back({sides.first, number, false});
      }
      if (parent >= 0) (right ? tree.nodes[parent].right : tree.nodes[parent].left) = number;
    }
    HEDDLE_RETURN_IF_ERROR(AddLeaves(tree, leaves));
    out_.forest.trees.push_back(std::move(tree));
    return absl::OkStatus();
  }

  // Fills the node's column, its threshold, and its left and right side. False: every value takes the
  // left side.
  bool Ask(const Branch& branch, Node& node, double& threshold, std::pair<Place, Place>& sides) {
    const auto side = [&](bool is_true) { return is_true ? branch.if_true : branch.if_false; };
    const auto feature = static_cast<int>(branch.feature);
    const bool equality = branch.mode == BranchMode::kEqual ||
                          branch.mode == BranchMode::kNotEqual ||
                          branch.mode == BranchMode::kMember;
    const bool inverse = branch.mode == BranchMode::kNotEqual;
    const bool nan = branch.nan_is_true || inverse;
    if (!equality) {
      const Question q = Compare(branch.mode, branch.value);
      if (!q.always) {
        sides = {side(!q.yes_is_true), side(q.yes_is_true)};
        node.column = ValueColumn(feature, nan == q.yes_is_true);
        threshold = q.threshold;
        return true;
      }
      sides = {side(*q.always), side(nan)};
      threshold = 1;
      return nan != *q.always && AskEquality({feature, {}, true}, node);
    }
    const std::vector<double> values =
        Possible(branch.mode == BranchMode::kMember ? branch.members : std::span(&branch.value, 1),
                 ensemble_.doubles);
    // The equality of NaN is what takes the right side, as the members do.
    const bool nan_is_member = nan != inverse;
    sides = {side(inverse), side(!inverse)};
    if (values.empty() && !nan_is_member) return false;
    threshold = 1;
    return AskEquality({feature, values, nan_is_member}, node);
  }

  bool AskEquality(const Equality& equality, Node& node) {
    const auto [found, is_new] =
        equalities_.try_emplace(equality, static_cast<int>(out_.equalities.size()));
    if (is_new) out_.equalities.push_back(equality);
    node.column = ValueColumn(ensemble_.features + found->second, false);
    return true;
  }

  // The column of a feature whose missing values take the right side, or the left one.
  int ValueColumn(int feature, bool missing_is_right) {
    const auto [found, is_new] = columns_.try_emplace(std::pair(feature, missing_is_right),
                                                      static_cast<int>(out_.forest.columns.size()));
    if (is_new) {
      Column column;
      column.feature = feature;
      column.instead = static_cast<float>(missing_is_right ? kInfinityF64 : -kInfinityF64);
      out_.forest.columns.push_back(column);
    }
    return found->second;
  }

  // Gives the nodes their thresholds: those of f32 values, or ranks.
  absl::Status SetThresholds() {
    Forest& forest = out_.forest;
    const auto each = [&](auto visit) {
      for (size_t t = 0; t < thresholds_.size(); ++t) {
        for (size_t i = 0; i < thresholds_[t].size(); ++i) {
          Node& node = forest.trees[t].nodes[i];
          visit(node, forest.columns[node.column].feature, thresholds_[t][i]);
        }
      }
    };
    if (ensemble_.doubles) {
      out_.thresholds.resize(ensemble_.features);
      each([&](Node&, int feature, double threshold) {
        if (feature < ensemble_.features) out_.thresholds[feature].push_back(threshold);
      });
    }
    for (std::vector<double>& list : out_.thresholds) {
      for (double& v : list) v = v == 0 ? 0 : v;
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
      if (list.size() > kMostRanks)
        return Refuse(absl::StrCat("a feature has more than ", kMostRanks, " thresholds"));
    }
    each([&](Node& node, int feature, double threshold) {
      if (!ensemble_.doubles || feature >= ensemble_.features) {
        node.threshold = SmallestAtLeast(threshold);
        return;
      }
      const std::vector<double>& list = out_.thresholds[feature];
      const auto at = std::lower_bound(list.begin(), list.end(), threshold);
      node.threshold = static_cast<float>(at - list.begin() + 1);
    });
    return absl::OkStatus();
  }

  bool Sums() const {
    return ensemble_.aggregate == Aggregate::kSum || ensemble_.aggregate == Aggregate::kMean;
  }

  // An output without a tree is 0, also as a minimum or maximum.
  void AddZeros() {
    std::vector<bool> has(out_.forest.outputs, false);
    for (const Tree& tree : out_.forest.trees) {
      if (tree.target < 0) return;
      has[tree.target] = true;
    }
    for (int k = 0; k < out_.forest.outputs; ++k) {
      if (!has[k]) out_.forest.trees.push_back({.nodes = {}, .target = k, .leaves = {0}});
    }
  }

  // Sets the values of the leaves, in their order.
  absl::Status AddLeaves(Tree& tree, const std::vector<const std::vector<Vote>*>& leaves) {
    const int outputs = out_.forest.outputs;
    std::set<int64_t> targets;
    for (const auto* votes : leaves) {
      for (const Vote& v : *votes) {
        if (v.output < 0 || v.output >= outputs)
          return Refuse(absl::StrCat("a leaf is for output ", v.output, " of ", outputs));
        targets.insert(v.output);
      }
    }
    const bool single = targets.size() <= 1;
    tree.target = single ? (targets.empty() ? 0 : static_cast<int>(*targets.begin())) : -1;
    const size_t width = single ? 1 : outputs;
    leaf_values_ += static_cast<int64_t>(leaves.size() * width);
    if (leaf_values_ > kMostLeafValues)
      return Refuse(absl::StrCat("the leaves have more than ", kMostLeafValues, " values"));
    tree.leaves.assign(leaves.size() * width, 0);
    std::vector<double> row(width);
    std::vector<bool> has(width);
    for (size_t l = 0; l < leaves.size(); ++l) {
      row.assign(width, 0);
      has.assign(width, false);
      for (const Vote& v : *leaves[l]) {
        const size_t at = single ? 0 : v.output;
        row[at] = !has[at] || Sums()                       ? row[at] + v.weight
                  : ensemble_.aggregate == Aggregate::kMin ? std::min(row[at], v.weight)
                                                           : std::max(row[at], v.weight);
        has[at] = true;
      }
      if (!Sums() && std::find(has.begin(), has.end(), false) != has.end())
        return absl::UnimplementedError(
            "MIN or MAX over trees whose leaves are for different outputs");
      for (size_t k = 0; k < width; ++k) tree.leaves[l * width + k] = static_cast<float>(row[k]);
    }
    return absl::OkStatus();
  }

  const Branches& branches_;
  const OnnxEnsemble& ensemble_;
  std::vector<bool> visited_;
  OnnxForest out_;
  std::vector<std::vector<double>> thresholds_;  // of each node of each tree
  std::map<std::pair<int, bool>, int> columns_;
  std::map<Equality, int> equalities_;
  int64_t leaf_values_ = 0;
};

bool TracksTrue(const std::vector<int64_t>& flags, size_t i) {
  return !flags.empty() && flags[i] != 0;
}

// ---- TreeEnsembleClassifier and TreeEnsembleRegressor ----

using NodeId = std::pair<int64_t, int64_t>;  // of the tree, and within it
// Instead of the place of a node that became a part of another branch.
constexpr Place kContinued = std::numeric_limits<Place>::max();

absl::StatusOr<Branches> BranchesOf(const OnnxNodes& nodes, const OnnxVotes& votes) {
  const size_t count = nodes.nodeids.size();
  HEDDLE_RETURN_IF_ERROR(CheckLengths({{"nodes_nodeids", count},
                                       {"nodes_treeids", nodes.treeids.size()},
                                       {"nodes_featureids", nodes.featureids.size()},
                                       {"nodes_modes", nodes.modes.size()},
                                       {"nodes_values", nodes.values.size()},
                                       {"nodes_truenodeids", nodes.truenodeids.size()},
                                       {"nodes_falsenodeids", nodes.falsenodeids.size()}}));
  if (!nodes.missing_value_tracks_true.empty()) {
    HEDDLE_RETURN_IF_ERROR(CheckLengths(
        {{"nodes_nodeids", count},
         {"nodes_missing_value_tracks_true", nodes.missing_value_tracks_true.size()}}));
  }
  HEDDLE_RETURN_IF_ERROR(CheckLengths({{"the ids of votes", votes.ids.size()},
                                       {"their tree ids", votes.treeids.size()},
                                       {"their node ids", votes.nodeids.size()},
                                       {"their weights", votes.weights.size()}}));
  Branches out;
  absl::flat_hash_map<NodeId, size_t> numbers;  // of the nodes in the arrays
  for (size_t i = 0; i < count; ++i) {
    if (!numbers.emplace(NodeId(nodes.treeids[i], nodes.nodeids[i]), i).second)
      return Refuse(absl::StrCat("node ", nodes.nodeids[i], " of tree ", nodes.treeids[i],
                                 " is there twice"));
  }
  const auto find = [&](size_t parent, int64_t child) -> absl::StatusOr<size_t> {
    const auto found = numbers.find(NodeId(nodes.treeids[parent], child));
    if (found != numbers.end()) return found->second;
    return Refuse(absl::StrCat("node ", nodes.nodeids[parent], " of tree ", nodes.treeids[parent],
                               " leads to node ", child, ", which is not there"));
  };
  // Converters of XGBoost write "x is one of a set" as a chain of equalities with one true side in common. A chain becomes one branch,
  // and `continued` tells which nodes stand behind the first one of theirs.
  const auto continues = [&](size_t i, size_t next) {
    return nodes.modes[i] == BranchMode::kEqual && nodes.modes[next] == BranchMode::kEqual &&
           nodes.featureids[i] == nodes.featureids[next] &&
           nodes.truenodeids[i] == nodes.truenodeids[next];
  };
  std::vector<bool> continued(count, false);
  for (size_t i = 0; i < count; ++i) {
    if (nodes.modes[i] == BranchMode::kLeaf) continue;
    HEDDLE_ASSIGN_OR_RETURN(const size_t next, find(i, nodes.falsenodeids[i]));
    if (continues(i, next)) continued[next] = true;
  }
  std::vector<Place> places;  // of a continued node: no place in `out`
  for (size_t i = 0; i < count; ++i) {
    if (nodes.modes[i] == BranchMode::kLeaf) {
      places.push_back(~static_cast<Place>(out.leaves.size()));
      out.leaves.emplace_back();
    } else if (continued[i]) {
      places.push_back(kContinued);
    } else {
      places.push_back(static_cast<Place>(out.nodes.size()));
      out.nodes.push_back({nodes.featureids[i],
                           nodes.modes[i],
                           nodes.values[i],
                           {},
                           TracksTrue(nodes.missing_value_tracks_true, i)});
    }
  }
  std::vector<bool> is_child(count, false);
  const auto shared = [&](size_t child) {
    return Refuse(absl::StrCat("two branches of tree ", nodes.treeids[child], " lead to node ",
                               nodes.nodeids[child]));
  };
  const auto take = [&](size_t child) -> absl::Status {
    if (is_child[child]) return shared(child);
    is_child[child] = true;
    return absl::OkStatus();
  };
  for (size_t i = 0; i < count; ++i) {
    if (places[i] < 0 || places[i] == kContinued) continue;
    Branch& branch = out.nodes[places[i]];
    std::vector<double> values = {branch.value};
    size_t last = i;  // of the chain
    HEDDLE_ASSIGN_OR_RETURN(const size_t if_true, find(i, nodes.truenodeids[i]));
    HEDDLE_ASSIGN_OR_RETURN(size_t if_false, find(i, nodes.falsenodeids[i]));
    HEDDLE_RETURN_IF_ERROR(take(if_true));
    HEDDLE_RETURN_IF_ERROR(take(if_false));
    while (continues(last, if_false)) {
      last = if_false;
      values.push_back(nodes.values[last]);
      branch.nan_is_true |= TracksTrue(nodes.missing_value_tracks_true, last);
      HEDDLE_ASSIGN_OR_RETURN(if_false, find(last, nodes.falsenodeids[last]));
      HEDDLE_RETURN_IF_ERROR(take(if_false));
    }
    if (last != i) {
      branch.mode = BranchMode::kMember;
      branch.members = out.sets.emplace_back(std::move(values));
    }
    for (const size_t child : {if_true, if_false}) {
      if (continued[child]) return shared(child);  // the node that it continues leads there, too
    }
    branch.if_true = places[if_true];
    branch.if_false = places[if_false];
  }
  // The root of a tree is the node that no branch leads to.
  std::map<int64_t, int> roots;  // how many each tree has
  for (size_t i = 0; i < count; ++i) {
    roots[nodes.treeids[i]] += is_child[i] ? 0 : 1;
    if (is_child[i]) continue;
    if (continued[i]) return Refuse("branches lead round in a circle");
    out.roots.push_back(places[i]);
  }
  for (const auto& [tree, found] : roots) {
    if (found != 1) return Refuse(absl::StrCat("tree ", tree, " has ", found, " roots"));
  }
  // Each node has one parent at most, so what no root leads to is on or below a circle.
  size_t reached = 0;
  for (std::vector<Place> pending = out.roots; !pending.empty();) {
    const Place place = pending.back();
    pending.pop_back();
    if (place < 0) continue;
    ++reached;
    pending.push_back(out.nodes[place].if_true);
    pending.push_back(out.nodes[place].if_false);
  }
  if (reached != out.nodes.size()) return Refuse("branches lead round in a circle");
  for (size_t i = 0; i < votes.ids.size(); ++i) {
    const auto found = numbers.find(NodeId(votes.treeids[i], votes.nodeids[i]));
    if (found == numbers.end())
      return Refuse(absl::StrCat("a weight is for node ", votes.nodeids[i], " of tree ",
                                 votes.treeids[i], ", which is not there"));
    const Place place = places[found->second];
    if (place < 0) out.leaves[~place].push_back({votes.ids[i], votes.weights[i]});
  }
  return out;
}

// ---- TreeEnsemble ----

absl::StatusOr<Branches> BranchesOf(const OnnxTrees& trees) {
  const size_t count = trees.featureids.size();
  HEDDLE_RETURN_IF_ERROR(CheckLengths({{"nodes_featureids", count},
                                       {"nodes_modes", trees.modes.size()},
                                       {"nodes_splits", trees.splits.size()},
                                       {"nodes_truenodeids", trees.truenodeids.size()},
                                       {"nodes_falsenodeids", trees.falsenodeids.size()},
                                       {"nodes_trueleafs", trees.trueleafs.size()},
                                       {"nodes_falseleafs", trees.falseleafs.size()}}));
  if (!trees.missing_value_tracks_true.empty()) {
    HEDDLE_RETURN_IF_ERROR(CheckLengths(
        {{"nodes_featureids", count},
         {"nodes_missing_value_tracks_true", trees.missing_value_tracks_true.size()}}));
  }
  HEDDLE_RETURN_IF_ERROR(CheckLengths({{"leaf_targetids", trees.leaf_targetids.size()},
                                       {"leaf_weights", trees.leaf_weights.size()}}));
  Branches out;
  for (size_t i = 0; i < trees.leaf_weights.size(); ++i)
    out.leaves.push_back({{trees.leaf_targetids[i], trees.leaf_weights[i]}});
  std::span<const double> members = trees.membership_values;
  for (size_t i = 0; i < count; ++i) {
    Branch branch{trees.featureids[i],
                  trees.modes[i],
                  trees.splits[i],
                  {},
                  TracksTrue(trees.missing_value_tracks_true, i)};
    const auto place = [](int64_t id, int64_t leaf) -> Place { return leaf != 0 ? ~id : id; };
    if (trees.truenodeids[i] < 0 || trees.falsenodeids[i] < 0)
      return Refuse(absl::StrCat("node ", i, " leads to a negative number"));
    branch.if_true = place(trees.truenodeids[i], trees.trueleafs[i]);
    branch.if_false = place(trees.falsenodeids[i], trees.falseleafs[i]);
    if (branch.mode == BranchMode::kMember) {
      const auto end =
          std::find_if(members.begin(), members.end(), [](double v) { return std::isnan(v); });
      if (end == members.end())
        return Refuse(absl::StrCat("'membership_values' ends before the set of node ", i));
      branch.members = {members.begin(), end};
      members = {end + 1, members.end()};
    }
    out.nodes.push_back(branch);
  }
  for (const int64_t root : trees.roots) {
    if (root < 0) return Refuse(absl::StrCat("there is no node ", root));
    if (root < static_cast<int64_t>(count) && out.nodes[root].if_true < 0 &&
        out.nodes[root].if_true == out.nodes[root].if_false)
      out.roots.push_back(out.nodes[root].if_true);
    else
      out.roots.push_back(root);
  }
  return out;
}

}  // namespace

std::vector<float> FeaturesOf(const OnnxForest& ensemble, std::span<const double> x) {
  std::vector<float> features;
  for (size_t f = 0; f < x.size(); ++f) {
    if (ensemble.thresholds.empty() || std::isnan(x[f])) {
      features.push_back(static_cast<float>(x[f]));
      continue;
    }
    const std::vector<double>& list = ensemble.thresholds[f];
    features.push_back(
        static_cast<float>(std::upper_bound(list.begin(), list.end(), x[f]) - list.begin()));
  }
  for (const Equality& e : ensemble.equalities) {
    const double v = x[e.feature];
    const bool found =
        std::isnan(v) ? e.nan : std::binary_search(e.values.begin(), e.values.end(), v);
    features.push_back(found ? 1 : 0);
  }
  return features;
}

absl::StatusOr<OnnxForest> ReadOnnxForest(const OnnxNodes& nodes, const OnnxVotes& votes,
                                          const OnnxEnsemble& ensemble) {
  HEDDLE_ASSIGN_OR_RETURN(const Branches branches, BranchesOf(nodes, votes));
  return Planter(branches, ensemble).Run();
}

absl::StatusOr<OnnxForest> ReadOnnxForest(const OnnxTrees& trees, const OnnxEnsemble& ensemble) {
  HEDDLE_ASSIGN_OR_RETURN(const Branches branches, BranchesOf(trees));
  return Planter(branches, ensemble).Run();
}

absl::StatusOr<OnnxClassifier> ReadOnnxClassifier(const OnnxNodes& nodes, const OnnxVotes& votes,
                                                  const OnnxEnsemble& ensemble) {
  OnnxClassifier out;
  const std::set<int64_t> voted(votes.ids.begin(), votes.ids.end());
  if (ensemble.outputs != 2 || voted.size() != 1 || *voted.begin() < 0 || *voted.begin() > 1) {
    HEDDLE_ASSIGN_OR_RETURN(out.ensemble, ReadOnnxForest(nodes, votes, ensemble));
    return out;
  }
  OnnxVotes one = votes;
  one.ids.assign(votes.ids.size(), 0);
  OnnxEnsemble single = ensemble;
  single.outputs = 1;
  if (ensemble.base.size() == 2) single.base = {ensemble.base[*voted.begin()]};
  HEDDLE_ASSIGN_OR_RETURN(out.ensemble, ReadOnnxForest(nodes, one, single));
  out.like_probability =
      std::all_of(votes.weights.begin(), votes.weights.end(), [](double w) { return w >= 0; });
  return out;
}

}  // namespace heddle::classical
