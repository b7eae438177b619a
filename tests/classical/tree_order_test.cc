#include "compiler/classical/tree_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "tests/classical/random_forest.h"

namespace heddle::classical {
namespace {

using Rng = std::mt19937_64;

// A tree's nodes and leaves under random numbers, the root's 0, with two numbers that nobody reaches.
struct List {
  std::vector<ListedNode> nodes;
  std::vector<int> leaf;  // for each number, the tree's leaf, or -1
};

List Shuffled(const Tree& tree, const Forest& forest, Rng& rng) {
  const int inner = static_cast<int>(tree.nodes.size());
  std::vector<int> numbers(2 * inner + 3);  // of inner nodes, then of leaves
  std::iota(numbers.begin(), numbers.end(), 0);
  std::shuffle(numbers.begin() + 1, numbers.end(), rng);
  const auto number = [&](int child) { return numbers[child >= 0 ? child : inner + ~child]; };
  List list{.nodes = std::vector<ListedNode>(numbers.size()),
            .leaf = std::vector<int>(numbers.size(), -1)};
  for (int i = 0; i < inner; ++i) {
    const Node& n = tree.nodes[i];
    list.nodes[number(i)] = {.column = forest.columns[n.column],
                             .threshold = n.threshold,
                             .left = number(n.left),
                             .right = number(n.right)};
  }
  for (int i = 0; i <= inner; ++i) {
    list.nodes[number(~i)].leaf = true;
    list.leaf[number(~i)] = i;
  }
  return list;
}

TEST(OrderTree, KeepsTheTree) {
  Rng rng(1);
  for (int i = 0; i < 200; ++i) {
    const Forest forest = RandomForest(rng);
    const Tree& tree = forest.trees[0];
    const List list = Shuffled(tree, forest, rng);
    Forest again;
    again.features = forest.features;
    again.base = {0};
    ColumnNumbers columns(again);
    const auto ordered = OrderTree(
        static_cast<int>(list.nodes.size()), [&](int n) { return list.nodes[n]; }, columns);
    ASSERT_TRUE(ordered.ok()) << ordered.status();
    again.trees = {{.nodes = ordered->nodes}};
    for (int leaf : ordered->leaves)
      again.trees[0].leaves.push_back(static_cast<float>(list.leaf[leaf]));
    ASSERT_TRUE(CheckForest(again).ok()) << CheckForest(again);
    EXPECT_EQ(Depth(again.trees[0]), Depth(tree));
    for (int r = 0; r < 20; ++r) {
      const std::vector<float> row = RandomRow(forest, rng);
      std::vector<float> values;
      for (const Column& c : forest.columns) values.push_back(ColumnValue(c, row[c.feature]));
      EXPECT_EQ(Margins(again, row)[0], LeafOf(tree, values));
    }
  }
}

absl::Status Error(std::vector<ListedNode> nodes) {
  Forest forest;
  ColumnNumbers columns(forest);
  return OrderTree(
             static_cast<int>(nodes.size()), [&](int n) { return nodes[n]; }, columns)
      .status();
}

TEST(OrderTree, RefusesWhatIsNoTree) {
  const ListedNode leaf{.leaf = true};
  EXPECT_TRUE(Error({leaf}).ok());
  EXPECT_TRUE(Error({{.left = 1, .right = 2}, leaf, leaf}).ok());
  EXPECT_EQ(Error({}).message(), "it has no nodes");
  EXPECT_EQ(Error({{.left = 1, .right = 3}, leaf, leaf}).message(),
            "node 0: child 3 is none of 3 nodes");
  EXPECT_EQ(Error({{.left = -1, .right = 1}, leaf, leaf}).message(),
            "node 0: child -1 is none of 3 nodes");
  EXPECT_EQ(Error({{.left = 1, .right = 1}, leaf, leaf}).message(),
            "node 1 is reached a second time");
  EXPECT_EQ(Error({{.left = 0, .right = 1}, leaf, leaf}).message(),
            "node 0 is reached a second time");
  EXPECT_EQ(Error({{.left = 1, .right = 2}, {.left = 0, .right = 2}, leaf}).message(),
            "node 0 is reached a second time");
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    EXPECT_FALSE(Error({{.threshold = bad, .left = 1, .right = 2}, leaf, leaf}).ok());

  std::vector<ListedNode> chain;
  const auto grow_to = [&](int depth) {
    chain.clear();
    for (int i = 0; i < depth; ++i) {
      chain.push_back({.left = 2 * i + 1, .right = 2 * i + 2});
      chain.push_back(leaf);
    }
    chain.push_back(leaf);
  };
  grow_to(kMostDepth);
  EXPECT_TRUE(Error(chain).ok()) << Error(chain);
  grow_to(kMostDepth + 1);
  EXPECT_FALSE(Error(chain).ok());
}

TEST(OrderTree, PassesErrorsOn) {
  Forest forest;
  ColumnNumbers columns(forest);
  const auto ordered = OrderTree(
      1,
      [](int) -> absl::StatusOr<ListedNode> {
        return absl::InvalidArgumentError("no such column");
      },
      columns);
  EXPECT_EQ(ordered.status().message(), "no such column");
}

}  // namespace
}  // namespace heddle::classical
