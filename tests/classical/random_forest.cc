#include "tests/classical/random_forest.h"

#include <cmath>
#include <limits>
#include <set>

namespace heddle::classical {
namespace {

float SmallNumber(std::mt19937_64& rng) { return static_cast<float>(rng() % 13) / 2 - 3; }

Column RandomColumn(int features, std::mt19937_64& rng) {
  Column c;
  c.feature = static_cast<int>(rng() % features);
  if (rng() % 2) c.missing = Column::Missing::kNanOrZero;
  if (rng() % 3 != 0) {
    const float kInstead[] = {-kInfinity, kInfinity, 0};
    c.instead = kInstead[rng() % 3];
    return c;
  }
  c.kind = Column::Kind::kMember;
  c.instead = static_cast<float>(rng() % 2);
  c.from_zero = rng() % 2;
  std::set<int64_t> members;
  for (uint64_t i = rng() % 5; i > 0; --i) members.insert(static_cast<int64_t>(rng() % 6));
  c.members.assign(members.begin(), members.end());
  return c;
}

// Splits random leaves until there are `inner` inner nodes.
Tree RandomTree(int inner, ColumnNumbers& columns, const Forest& forest, std::mt19937_64& rng) {
  Tree tree;
  std::vector<std::pair<int, bool>> open;  // where a child may go: a node and its side
  for (int i = 0; i < inner; ++i) {
    if (i > 0) {
      const size_t k = rng() % open.size();
      (open[k].second ? tree.nodes[open[k].first].right : tree.nodes[open[k].first].left) = i;
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
    }
    const int column = columns.Add(RandomColumn(forest.features, rng));
    const bool member = forest.columns[column].kind == Column::Kind::kMember;
    tree.nodes.push_back({.column = column, .threshold = member ? 1 : SmallNumber(rng)});
    open.emplace_back(i, false);
    open.emplace_back(i, true);
  }
  int leaf = 0;
  for (const auto& [node, right] : open)
    (right ? tree.nodes[node].right : tree.nodes[node].left) = ~leaf++;
  tree.target = static_cast<int>(rng() % (forest.outputs + 1)) - 1;
  const int width = tree.target < 0 ? forest.outputs : 1;
  for (int i = 0; i < (inner + 1) * width; ++i) tree.leaves.push_back(SmallNumber(rng));
  return tree;
}

}  // namespace

Forest RandomForest(std::mt19937_64& rng) {
  Forest forest;
  forest.features = static_cast<int>(1 + rng() % 4);
  forest.outputs = static_cast<int>(1 + rng() % 3);
  forest.aggregate = static_cast<Aggregate>(rng() % 4);
  for (int i = 0; i < forest.outputs; ++i) forest.base.push_back(SmallNumber(rng));
  forest.scale = static_cast<float>(1 + rng() % 3) / 2;
  ColumnNumbers columns(forest);
  for (uint64_t i = 1 + rng() % 5; i > 0; --i)
    forest.trees.push_back(RandomTree(static_cast<int>(rng() % 31), columns, forest, rng));
  // Every output gets a value.
  Tree all = RandomTree(static_cast<int>(rng() % 3), columns, forest, rng);
  all.target = -1;
  all.leaves.resize((all.nodes.size() + 1) * forest.outputs, 1);
  forest.trees.push_back(std::move(all));
  return forest;
}

std::vector<float> RandomRow(const Forest& forest, std::mt19937_64& rng) {
  std::vector<float> row;
  for (int i = 0; i < forest.features; ++i) {
    switch (rng() % 8) {
      case 0:
        row.push_back(std::numeric_limits<float>::quiet_NaN());
        break;
      case 1:
        row.push_back(rng() % 2 ? 0.0f : -1e-36f);
        break;
      default:
        row.push_back(SmallNumber(rng) * 2);
    }
  }
  return row;
}

}  // namespace heddle::classical
