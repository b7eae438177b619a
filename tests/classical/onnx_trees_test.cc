// Forests made of ONNX's arrays against an interpreter of these arrays that follows the standard's text:
// node by node, in double, without any of the reader's ideas.
#include "compiler/classical/onnx_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>

namespace heddle::classical {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Rng = std::mt19937_64;

int Draw(Rng& rng, int count) { return static_cast<int>(rng() % static_cast<uint64_t>(count)); }
bool Chance(Rng& rng, int percent) { return Draw(rng, 100) < percent; }

// Numbers that thresholds and features share, so that equality is common. Some are no f32, and some are
// beyond them.
double DrawThreshold(Rng& rng) {
  static const auto* numbers = new std::vector<double>{0,
                                                       -0.0,
                                                       1,
                                                       2,
                                                       2.5,
                                                       -1,
                                                       -3,
                                                       7,
                                                       0.1,
                                                       -0.1,
                                                       1 + 1e-9,
                                                       2 - 1e-9,
                                                       1e300,
                                                       -1e300,
                                                       kInf,
                                                       -kInf,
                                                       kNan,
                                                       std::numeric_limits<float>::max(),
                                                       std::numeric_limits<float>::denorm_min()};
  return (*numbers)[Draw(rng, Chance(rng, 80) ? 12 : static_cast<int>(numbers->size()))];
}

double DrawFeature(Rng& rng, bool doubles) {
  if (Chance(rng, 15)) return kNan;
  const double near = DrawThreshold(rng);
  const int side = Draw(rng, 4);
  const float to = side == 0 ? HUGE_VALF : side == 1 ? -HUGE_VALF : static_cast<float>(near);
  if (doubles) return side > 1 ? near : std::nextafter(near, static_cast<double>(to));
  return std::nextafter(static_cast<float>(near), to);
}

// ---- The interpreter ----

bool IsTrue(BranchMode mode, double x, double value, const std::vector<double>& members,
            bool tracks_true) {
  if (tracks_true && std::isnan(x)) return true;
  switch (mode) {
    case BranchMode::kLessEqual:
      return x <= value;
    case BranchMode::kLess:
      return x < value;
    case BranchMode::kGreaterEqual:
      return x >= value;
    case BranchMode::kGreater:
      return x > value;
    case BranchMode::kEqual:
      return x == value;
    case BranchMode::kNotEqual:
      return x != value;
    case BranchMode::kMember:
      for (const double m : members) {
        if (m == x) return true;
      }
      return false;
    case BranchMode::kLeaf:
      break;
  }
  ADD_FAILURE() << "a leaf compares nothing";
  return false;
}

struct Sums {
  explicit Sums(const OnnxEnsemble& e) : ensemble(e), values(e.outputs, 0), has(e.outputs, false) {}

  void Add(int64_t output, double weight) {
    double& value = values[output];
    if (ensemble.aggregate == Aggregate::kMin && has[output])
      value = std::min(value, weight);
    else if (ensemble.aggregate == Aggregate::kMax && has[output])
      value = std::max(value, weight);
    else
      value += weight;
    has[output] = true;
  }

  std::vector<double> Finish(size_t trees) {
    for (size_t k = 0; k < values.size(); ++k) {
      if (ensemble.aggregate == Aggregate::kMean) values[k] /= static_cast<double>(trees);
      if (!ensemble.base.empty()) values[k] += ensemble.base[k];
    }
    return values;
  }

  const OnnxEnsemble& ensemble;
  std::vector<double> values;
  std::vector<bool> has;
};

size_t Find(const OnnxNodes& n, int64_t tree, int64_t node) {
  for (size_t i = 0; i < n.nodeids.size(); ++i) {
    if (n.treeids[i] == tree && n.nodeids[i] == node) return i;
  }
  ADD_FAILURE() << "no node " << node << " in tree " << tree;
  return 0;
}

// `roots`: the root's id of each tree id.
std::vector<double> Interpret(const OnnxNodes& n, const OnnxVotes& v, const OnnxEnsemble& e,
                              const std::map<int64_t, int64_t>& roots,
                              const std::vector<double>& x) {
  Sums sums(e);
  for (const auto& [tree, root] : roots) {
    size_t at = Find(n, tree, root);
    while (n.modes[at] != BranchMode::kLeaf) {
      const bool tracks =
          !n.missing_value_tracks_true.empty() && n.missing_value_tracks_true[at] == 1;
      at = Find(n, tree,
                IsTrue(n.modes[at], x[n.featureids[at]], n.values[at], {}, tracks)
                    ? n.truenodeids[at]
                    : n.falsenodeids[at]);
    }
    for (size_t i = 0; i < v.ids.size(); ++i) {
      if (v.treeids[i] == tree && v.nodeids[i] == n.nodeids[at]) sums.Add(v.ids[i], v.weights[i]);
    }
  }
  return sums.Finish(roots.size());
}

std::vector<double> Interpret(const OnnxTrees& t, const OnnxEnsemble& e,
                              const std::vector<double>& x) {
  std::vector<std::vector<double>> sets;  // of each node
  size_t next = 0;
  for (const BranchMode mode : t.modes) {
    sets.emplace_back();
    if (mode != BranchMode::kMember) continue;
    for (; !std::isnan(t.membership_values[next]); ++next)
      sets.back().push_back(t.membership_values[next]);
    ++next;
  }
  Sums sums(e);
  for (const int64_t root : t.roots) {
    int64_t at = root;
    for (bool leaf = false; !leaf;) {
      const bool tracks =
          !t.missing_value_tracks_true.empty() && t.missing_value_tracks_true[at] == 1;
      const bool is_true = IsTrue(t.modes[at], x[t.featureids[at]], t.splits[at], sets[at], tracks);
      leaf = (is_true ? t.trueleafs : t.falseleafs)[at] != 0;
      at = (is_true ? t.truenodeids : t.falsenodeids)[at];
    }
    sums.Add(t.leaf_targetids[at], t.leaf_weights[at]);
  }
  return sums.Finish(t.roots.size());
}

// ---- Random ensembles ----

OnnxEnsemble DrawEnsemble(Rng& rng) {
  OnnxEnsemble e;
  e.features = 1 + Draw(rng, 4);
  e.outputs = 1 + Draw(rng, 3);
  e.aggregate = std::vector{Aggregate::kSum, Aggregate::kMean, Aggregate::kMin,
                            Aggregate::kMax}[Draw(rng, 4)];
  for (int64_t k = 0; k < e.outputs && Chance(rng, 60); ++k)
    e.base.push_back(Draw(rng, 9) / 4.0 - 1);
  if (std::ssize(e.base) != e.outputs) e.base.clear();
  e.doubles = Chance(rng, 50);
  return e;
}

double DrawWeight(Rng& rng) { return Draw(rng, 65) / 8.0 - 4; }

BranchMode DrawMode(Rng& rng, int modes) { return static_cast<BranchMode>(Draw(rng, modes)); }

struct RandomNodes {
  OnnxEnsemble ensemble;
  OnnxNodes nodes;
  OnnxVotes votes;
  std::map<int64_t, int64_t> roots;
};

// Nodes of one tree under a new id, which is returned. `pool` has the ids that are still free.
int64_t Grow(Rng& rng, RandomNodes& r, int64_t tree, std::vector<int64_t>& pool, int depth,
             int64_t target) {
  OnnxNodes& n = r.nodes;
  const int64_t id = pool.back();
  pool.pop_back();
  const bool leaf = depth == 0 || Chance(rng, 25);
  const bool extreme =
      r.ensemble.aggregate == Aggregate::kMin || r.ensemble.aggregate == Aggregate::kMax;
  const int64_t yes = leaf ? Draw(rng, 3) : Grow(rng, r, tree, pool, depth - 1, target);
  const int64_t no = leaf ? Draw(rng, 3) : Grow(rng, r, tree, pool, depth - 1, target);
  n.treeids.push_back(tree);
  n.nodeids.push_back(id);
  n.featureids.push_back(Draw(rng, r.ensemble.features));
  n.modes.push_back(leaf ? BranchMode::kLeaf : DrawMode(rng, 6));
  n.values.push_back(DrawThreshold(rng));
  n.truenodeids.push_back(yes);
  n.falsenodeids.push_back(no);
  n.missing_value_tracks_true.push_back(Draw(rng, 2));
  const auto vote = [&](int64_t output) {
    r.votes.treeids.push_back(tree);
    r.votes.nodeids.push_back(id);
    r.votes.ids.push_back(output);
    r.votes.weights.push_back(DrawWeight(rng));
  };
  if (extreme && leaf) {
    // Each leaf of a tree is for the same outputs.
    for (int64_t k = 0; k < r.ensemble.outputs; ++k) {
      if (target < 0 || k == target) vote(k);
    }
    if (Chance(rng, 20)) vote(std::max<int64_t>(target, 0));
  }
  for (int k = Draw(rng, 4); k > 0 && !extreme; --k)
    vote(target < 0 ? Draw(rng, static_cast<int>(r.ensemble.outputs)) : target);
  return id;
}

template <typename T>
void Permute(std::vector<T>& values, const std::vector<size_t>& order) {
  if (values.empty()) return;
  std::vector<T> out;
  for (const size_t i : order) out.push_back(values[i]);
  values = out;
}

std::vector<size_t> RandomOrder(Rng& rng, size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), rng);
  return order;
}

RandomNodes DrawNodes(Rng& rng) {
  RandomNodes r;
  r.ensemble = DrawEnsemble(rng);
  for (int t = 1 + Draw(rng, 4); t > 0; --t) {
    const int64_t tree = 3 * t - 5;
    std::vector<int64_t> pool(64);
    std::iota(pool.begin(), pool.end(), int64_t{Draw(rng, 3)});
    std::shuffle(pool.begin(), pool.end(), rng);
    const int64_t target = Chance(rng, 50) ? -1 : Draw(rng, static_cast<int>(r.ensemble.outputs));
    r.roots[tree] = Grow(rng, r, tree, pool, Draw(rng, 5), target);
  }
  OnnxNodes& n = r.nodes;
  if (Chance(rng, 30)) n.missing_value_tracks_true.clear();
  const std::vector<size_t> order = RandomOrder(rng, n.nodeids.size());
  for (auto* ids : {&n.treeids, &n.nodeids, &n.featureids, &n.truenodeids, &n.falsenodeids,
                    &n.missing_value_tracks_true})
    Permute(*ids, order);
  Permute(n.modes, order);
  Permute(n.values, order);
  const std::vector<size_t> votes = RandomOrder(rng, r.votes.ids.size());
  for (auto* ids : {&r.votes.treeids, &r.votes.nodeids, &r.votes.ids}) Permute(*ids, votes);
  Permute(r.votes.weights, votes);
  return r;
}

struct RandomTrees {
  OnnxEnsemble ensemble;
  OnnxTrees trees;
};

// A branch under a tree: a new node, or a leaf. Returns its id and whether it is a leaf.
std::pair<int64_t, int64_t> Grow(Rng& rng, RandomTrees& r, int depth, int64_t target) {
  OnnxTrees& t = r.trees;
  if (depth == 0 || Chance(rng, 25)) {
    t.leaf_targetids.push_back(target < 0 ? Draw(rng, static_cast<int>(r.ensemble.outputs))
                                          : target);
    t.leaf_weights.push_back(DrawWeight(rng));
    return {std::ssize(t.leaf_weights) - 1, 1};
  }
  const size_t id = t.featureids.size();
  t.featureids.push_back(Draw(rng, r.ensemble.features));
  t.modes.push_back(DrawMode(rng, 7));
  t.splits.push_back(DrawThreshold(rng));
  t.missing_value_tracks_true.push_back(Draw(rng, 2));
  for (auto* ids : {&t.truenodeids, &t.falsenodeids, &t.trueleafs, &t.falseleafs})
    ids->push_back(0);
  std::tie(t.truenodeids[id], t.trueleafs[id]) = Grow(rng, r, depth - 1, target);
  std::tie(t.falsenodeids[id], t.falseleafs[id]) = Grow(rng, r, depth - 1, target);
  return {static_cast<int64_t>(id), 0};
}

RandomTrees DrawTrees(Rng& rng) {
  RandomTrees r;
  r.ensemble = DrawEnsemble(rng);
  OnnxTrees& t = r.trees;
  const bool extreme =
      r.ensemble.aggregate == Aggregate::kMin || r.ensemble.aggregate == Aggregate::kMax;
  for (int k = 1 + Draw(rng, 4); k > 0; --k) {
    const bool one = extreme || Chance(rng, 50);
    const int64_t target = one ? Draw(rng, static_cast<int>(r.ensemble.outputs)) : -1;
    auto [root, leaf] = Grow(rng, r, Draw(rng, 5), target);
    if (leaf != 0) {  // a tree of one leaf
      for (auto* ids : {&t.truenodeids, &t.falsenodeids}) ids->push_back(root);
      for (auto* ids : {&t.trueleafs, &t.falseleafs}) ids->push_back(1);
      root = std::ssize(t.featureids);
      t.featureids.push_back(0);
      t.modes.push_back(BranchMode::kLessEqual);
      t.splits.push_back(0);
      t.missing_value_tracks_true.push_back(0);
    }
    t.roots.push_back(root);
  }
  for (const BranchMode mode : t.modes) {
    if (mode != BranchMode::kMember) continue;
    for (int k = Draw(rng, 4); k > 0; --k) {
      const double member = DrawThreshold(rng);
      if (!std::isnan(member)) t.membership_values.push_back(member);
    }
    t.membership_values.push_back(kNan);
  }
  if (Chance(rng, 30)) t.missing_value_tracks_true.clear();
  return r;
}

void ExpectSame(const absl::StatusOr<OnnxForest>& forest, const OnnxEnsemble& ensemble, Rng& rng,
                const std::function<std::vector<double>(const std::vector<double>&)>& interpret) {
  ASSERT_TRUE(forest.ok()) << forest.status();
  ASSERT_EQ(forest->forest.features,
            ensemble.features + static_cast<int>(forest->equalities.size()));
  const absl::Status legal = CheckForest(forest->forest);
  ASSERT_TRUE(legal.ok()) << legal;
  for (int row = 0; row < 20; ++row) {
    std::vector<double> x;
    for (int f = 0; f < ensemble.features; ++f) x.push_back(DrawFeature(rng, ensemble.doubles));
    const std::vector<double> found = Margins(forest->forest, FeaturesOf(*forest, x)),
                              expected = interpret(x);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t k = 0; k < found.size(); ++k)
      ASSERT_NEAR(found[k], expected[k], 1e-9)
          << "output " << k << " of " << ::testing::PrintToString(x);
  }
}

TEST(OnnxTrees, NodesInAnyOrderAreWhatTheStandardSays) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const RandomNodes r = DrawNodes(rng);
    ExpectSame(ReadOnnxForest(r.nodes, r.votes, r.ensemble), r.ensemble, rng,
               [&](const std::vector<double>& x) {
                 return Interpret(r.nodes, r.votes, r.ensemble, r.roots, x);
               });
    if (HasFatalFailure()) return;
  }
}

TEST(OnnxTrees, TreesWithSetsAreWhatTheStandardSays) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const RandomTrees r = DrawTrees(rng);
    ExpectSame(ReadOnnxForest(r.trees, r.ensemble), r.ensemble, rng,
               [&](const std::vector<double>& x) { return Interpret(r.trees, r.ensemble, x); });
    if (HasFatalFailure()) return;
  }
}

// ---- Single nodes ----

// One node of a mode, whose true leaf has 1 and whose false leaf has 0.
struct Stump {
  OnnxNodes nodes{{0, 0, 0},   {0, 1, 2},
                  {0, 0, 0},   {BranchMode::kLessEqual, BranchMode::kLeaf, BranchMode::kLeaf},
                  {0.5, 0, 0}, {1, 0, 0},
                  {2, 0, 0},   {}};
  OnnxVotes votes{{0}, {1}, {0}, {1}};
  OnnxEnsemble ensemble{.features = 1};
};

double ValueOf(BranchMode mode, double value, float x, bool tracks_true = false) {
  Stump s;
  s.nodes.modes[0] = mode;
  s.nodes.values[0] = value;
  if (tracks_true) s.nodes.missing_value_tracks_true = {1, 0, 0};
  const auto forest = ReadOnnxForest(s.nodes, s.votes, s.ensemble);
  EXPECT_TRUE(forest.ok()) << forest.status();
  return forest.ok() ? Margins(forest->forest, FeaturesOf(*forest, std::vector<double>{x}))[0] : -1;
}

TEST(OnnxTrees, NanIsUnequalToEverything) {
  const auto nan = static_cast<float>(kNan);
  for (const BranchMode mode : {BranchMode::kLessEqual, BranchMode::kLess, BranchMode::kGreater,
                                BranchMode::kGreaterEqual, BranchMode::kEqual}) {
    EXPECT_EQ(ValueOf(mode, 1, nan), 0);
    EXPECT_EQ(ValueOf(mode, 1, nan, true), 1);
  }
  EXPECT_EQ(ValueOf(BranchMode::kNotEqual, 1, nan), 1);
}

TEST(OnnxTrees, ThresholdsBetweenTwoFloats) {
  const double between = 1 + 1e-9;
  const float next = std::nextafter(1.0F, 2.0F);
  EXPECT_EQ(ValueOf(BranchMode::kLessEqual, between, 1), 1);
  EXPECT_EQ(ValueOf(BranchMode::kLessEqual, between, next), 0);
  EXPECT_EQ(ValueOf(BranchMode::kGreaterEqual, between, 1), 0);
  EXPECT_EQ(ValueOf(BranchMode::kGreater, between, next), 1);
  EXPECT_EQ(ValueOf(BranchMode::kEqual, between, 1), 0);
  EXPECT_EQ(ValueOf(BranchMode::kNotEqual, between, 1), 1);
}

TEST(OnnxTrees, ANodeThatAsksOnlyForNan) {
  const auto nan = static_cast<float>(kNan), inf = static_cast<float>(kInf);
  EXPECT_EQ(ValueOf(BranchMode::kLessEqual, kInf, inf), 1);
  EXPECT_EQ(ValueOf(BranchMode::kLessEqual, kInf, nan), 0);
  EXPECT_EQ(ValueOf(BranchMode::kLess, -kInf, -inf), 0);
  EXPECT_EQ(ValueOf(BranchMode::kLess, -kInf, nan, true), 1);
}

// A long chain of equalities on one feature, as converters write sets of categories, stays one node each.
TEST(OnnxTrees, EqualitiesDoNotMultiplyNodes) {
  constexpr int64_t kLength = 500;
  OnnxNodes n;
  OnnxVotes v;
  for (int64_t i = 0; i < 2 * kLength + 1; ++i) {
    const bool leaf = i % 2 == 1 || i == 2 * kLength;
    n.treeids.push_back(0);
    n.nodeids.push_back(i);
    n.featureids.push_back(0);
    n.modes.push_back(leaf ? BranchMode::kLeaf : BranchMode::kEqual);
    n.values.push_back(static_cast<double>(i / 2));
    n.truenodeids.push_back(i + 1);
    n.falsenodeids.push_back(i + 2);
    if (!leaf) continue;
    v.treeids.push_back(0);
    v.nodeids.push_back(i);
    v.ids.push_back(0);
    v.weights.push_back(static_cast<double>(i / 2));
  }
  const auto forest = ReadOnnxForest(n, v, {.features = 1});
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(forest->forest.trees[0].nodes.size(), kLength);
  for (const float x : {0.0F, 7.0F, 499.0F, 500.0F, 3.5F}) {
    const double expected = x == std::floor(x) && x < kLength ? x : kLength;
    EXPECT_EQ(Margins(forest->forest, FeaturesOf(*forest, std::vector<double>{x}))[0], expected)
        << x;
  }
}

// "x is 1, 4 or 7" as converters of XGBoost write it: equalities whose true sides are one node, the leaf 3.
struct Chain {
  OnnxNodes nodes{.treeids = {0, 0, 0, 0, 0},
                  .nodeids = {0, 1, 2, 3, 4},
                  .featureids = {0, 0, 0, 0, 0},
                  .modes = {BranchMode::kEqual, BranchMode::kEqual, BranchMode::kEqual,
                            BranchMode::kLeaf, BranchMode::kLeaf},
                  .values = {1, 4, 7, 0, 0},
                  .truenodeids = {3, 3, 3, 0, 0},
                  .falsenodeids = {1, 2, 4, 0, 0},
                  .missing_value_tracks_true = {}};
  OnnxVotes votes{.treeids = {0, 0}, .nodeids = {3, 4}, .ids = {0, 0}, .weights = {1, 2}};
};

TEST(OnnxTrees, EqualitiesWithOneTrueSideAreASet) {
  const std::vector<std::vector<int64_t>> tracked = {{}, {1, 1, 1, 0, 0}, {0, 0, 1, 0, 0}};
  for (const std::vector<int64_t>& tracks : tracked) {
    Chain chain;
    chain.nodes.missing_value_tracks_true = tracks;
    const auto forest = ReadOnnxForest(chain.nodes, chain.votes, {.features = 1});
    ASSERT_TRUE(forest.ok()) << forest.status();
    EXPECT_EQ(forest->forest.trees[0].nodes.size(), 1u);
    for (const double x : {0.0, 1.0, 2.0, 4.0, 5.0, 7.0, 8.0, 1.5, kNan}) {
      const bool member = x == 1 || x == 4 || x == 7 || (std::isnan(x) && !tracks.empty());
      EXPECT_EQ(Margins(forest->forest, FeaturesOf(*forest, {&x, 1}))[0], member ? 1 : 2) << x;
    }
  }
}

TEST(OnnxTrees, ASetThatOtherBranchesLeadIntoIsRefused) {
  const auto refused = [](const std::function<void(OnnxNodes&)>& damage, const std::string& why) {
    Chain chain;
    damage(chain.nodes);
    const auto forest = ReadOnnxForest(chain.nodes, chain.votes, {.features = 1});
    ASSERT_FALSE(forest.ok()) << why;
    EXPECT_TRUE(absl::IsInvalidArgument(forest.status())) << forest.status();
    EXPECT_THAT(std::string(forest.status().message()), HasSubstr(why));
  };
  refused([](OnnxNodes& n) { n.featureids[1] = 1; }, "two branches of tree 0 lead to node 3");
  refused([](OnnxNodes& n) { n.modes[1] = BranchMode::kLess; },
          "two branches of tree 0 lead to node 3");
  refused([](OnnxNodes& n) { n.falsenodeids[2] = 1; }, "two branches of tree 0 lead to node 1");
  refused([](OnnxNodes& n) { n.falsenodeids[2] = 3; }, "two branches of tree 0 lead to node 3");
  refused([](OnnxNodes& n) { n.falsenodeids[2] = 0; }, "in a circle");
  refused([](OnnxNodes& n) { n.truenodeids[0] = 1; }, "two branches of tree 0 lead to node 1");
  // Two nodes of a circle, each of which an outer branch leads to.
  refused(
      [](OnnxNodes& n) {
        n.modes[0] = BranchMode::kLess;
        n.truenodeids[0] = 1;
        n.falsenodeids = {2, 2, 1, 0, 0};
      },
      "two branches of tree 0 lead to node");
}

// ---- Classifiers ----

TEST(OnnxTrees, OneColumnOfVotesIsOneScore) {
  for (const int64_t voted : {0, 1}) {
    for (const double weight : {0.75, -0.75}) {
      Stump s;
      s.ensemble.outputs = 2;
      s.ensemble.base = {0.25, 0.5};
      s.votes.ids = {voted};
      s.votes.weights = {weight};
      const auto classifier = ReadOnnxClassifier(s.nodes, s.votes, s.ensemble);
      ASSERT_TRUE(classifier.ok()) << classifier.status();
      EXPECT_EQ(classifier->ensemble.forest.outputs, 1);
      EXPECT_EQ(classifier->like_probability, weight > 0);
      EXPECT_THAT(Margins(classifier->ensemble.forest, std::vector{0.0F}),
                  ElementsAre(weight + (voted == 0 ? 0.25 : 0.5)));
    }
  }
}

TEST(OnnxTrees, OtherClassifiersHaveAScoreForEachClass) {
  Stump s;
  s.ensemble.outputs = 2;
  s.votes = {{0, 0}, {1, 2}, {0, 1}, {1, 2}};
  auto classifier = ReadOnnxClassifier(s.nodes, s.votes, s.ensemble);
  ASSERT_TRUE(classifier.ok()) << classifier.status();
  EXPECT_THAT(Margins(classifier->ensemble.forest, std::vector{0.0F}), ElementsAre(1, 0));
  EXPECT_THAT(Margins(classifier->ensemble.forest, std::vector{1.0F}), ElementsAre(0, 2));
  s.ensemble.outputs = 3;
  s.votes.ids = {2, 2};
  classifier = ReadOnnxClassifier(s.nodes, s.votes, s.ensemble);
  ASSERT_TRUE(classifier.ok()) << classifier.status();
  EXPECT_THAT(Margins(classifier->ensemble.forest, std::vector{0.0F}), ElementsAre(0, 0, 1));
}

// ---- Refusals ----

void ExpectRefused(const Stump& s, const std::string& why) {
  const auto forest = ReadOnnxForest(s.nodes, s.votes, s.ensemble);
  ASSERT_FALSE(forest.ok()) << why;
  EXPECT_TRUE(absl::IsInvalidArgument(forest.status())) << forest.status();
  EXPECT_THAT(std::string(forest.status().message()),
              AllOf(HasSubstr(why), testing::Not(HasSubstr("\n"))));
}

TEST(OnnxTrees, WhatIsNoEnsembleIsRefusedByName) {
  const auto refused = [](const std::function<void(Stump&)>& damage, const std::string& why) {
    Stump s;
    damage(s);
    ExpectRefused(s, why);
  };
  refused([](Stump& s) { s.nodes.values.pop_back(); },
          "'nodes_values' has 2 elements, but 'nodes_nodeids' has 3");
  refused([](Stump& s) { s.nodes.missing_value_tracks_true = {1}; },
          "'nodes_missing_value_tracks_true' has 1");
  refused([](Stump& s) { s.votes.ids.push_back(0); }, "votes");
  refused([](Stump& s) { s.nodes.nodeids[2] = 1; }, "node 1 of tree 0 is there twice");
  refused([](Stump& s) { s.nodes.truenodeids[0] = 5; },
          "node 0 of tree 0 leads to node 5, which is not there");
  refused([](Stump& s) { s.nodes.truenodeids[0] = 2; }, "two branches of tree 0 lead to node 2");
  refused([](Stump& s) { s.nodes.truenodeids[0] = 0; }, "in a circle");
  refused([](Stump& s) { s.nodes.treeids[2] = 1, s.nodes.falsenodeids[0] = 1; }, "lead to node 1");
  refused([](Stump& s) { s.nodes.featureids[0] = 1; }, "feature 1 of 1");
  refused([](Stump& s) { s.nodes.featureids[0] = -1; }, "feature -1 of 1");
  refused([](Stump& s) { s.votes.ids[0] = 1; }, "output 1 of 1");
  refused([](Stump& s) { s.votes.nodeids[0] = 9; }, "node 9 of tree 0, which is not there");
  refused([](Stump& s) { s.ensemble.base = {1, 2}; }, "2 base values for 1 outputs");
  refused([](Stump& s) { s.ensemble.outputs = 0; }, "0 outputs");
  refused([](Stump& s) { s.ensemble.outputs = int64_t{1} << 40; }, "outputs");
  refused([](Stump& s) { s.votes.weights[0] = kInf; }, "leaf");
  refused(
      [](Stump& s) {
        s.nodes = {};
        s.votes = {};
      },
      "trees");
}

TEST(OnnxTrees, ExtremesOfLeavesForDifferentOutputsAreRefused) {
  Stump s;
  s.ensemble.outputs = 2;
  s.ensemble.aggregate = Aggregate::kMin;
  s.votes = {{0, 0}, {1, 2}, {0, 1}, {1, 2}};
  const auto forest = ReadOnnxForest(s.nodes, s.votes, s.ensemble);
  EXPECT_TRUE(absl::IsUnimplemented(forest.status())) << forest.status();
}

TEST(OnnxTrees, TreesThatLeadNowhereAreRefused) {
  const OnnxTrees good{.roots = {0},
                       .featureids = {0, 0},
                       .modes = {BranchMode::kLess, BranchMode::kMember},
                       .splits = {1, 0},
                       .truenodeids = {0, 1},
                       .falsenodeids = {1, 2},
                       .trueleafs = {1, 1},
                       .falseleafs = {0, 1},
                       .missing_value_tracks_true = {},
                       .membership_values = {3, kNan},
                       .leaf_targetids = {0, 0, 0},
                       .leaf_weights = {1, 2, 3}};
  const OnnxEnsemble ensemble{.features = 1};
  ASSERT_TRUE(ReadOnnxForest(good, ensemble).ok());
  const auto refused = [&](const std::function<void(OnnxTrees&)>& damage, const std::string& why) {
    OnnxTrees trees = good;
    damage(trees);
    const auto forest = ReadOnnxForest(trees, ensemble);
    ASSERT_FALSE(forest.ok()) << why;
    EXPECT_TRUE(absl::IsInvalidArgument(forest.status())) << forest.status();
    EXPECT_THAT(std::string(forest.status().message()), HasSubstr(why));
  };
  refused([](OnnxTrees& t) { t.roots = {7}; }, "there is no node 7");
  refused([](OnnxTrees& t) { t.roots = {-1}; }, "there is no node -1");
  refused([](OnnxTrees& t) { t.roots = {0, 0}; }, "node 0 is reached twice");
  refused([](OnnxTrees& t) { t.falsenodeids[1] = 3; }, "there is no leaf 3");
  refused([](OnnxTrees& t) { t.falsenodeids[0] = 0; }, "node 0 is reached twice");
  refused([](OnnxTrees& t) { t.truenodeids[0] = -2; }, "negative");
  refused([](OnnxTrees& t) { t.membership_values = {3}; }, "ends before the set of node 1");
  refused([](OnnxTrees& t) { t.splits.pop_back(); }, "'nodes_splits' has 1");
  refused([](OnnxTrees& t) { t.leaf_targetids = {0}; }, "'leaf_weights' has 3");
  refused([](OnnxTrees& t) { t.leaf_targetids[1] = 4; }, "output 4 of 1");
}

}  // namespace
}  // namespace heddle::classical
