// Brings trees, whose nodes files list in any order and with leaves among them, into the order of Tree.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/classical/forest.h"

namespace heddle::classical {

// A node as a file lists it, but with the question of Node.
struct ListedNode {
  bool leaf = false;  // then the rest has no meaning
  Column column{};
  float threshold = 0;
  int left = 0, right = 0;  // numbers in the list
};

struct OrderedTree {
  std::vector<Node> nodes;
  std::vector<int> leaves;  // for each leaf, its number in the list
};

// Follows the list of `count` nodes from its root, number 0. `node` tells what a number stands for and
// is called once for every node that is reached. Nodes that are not reached are left out.
// InvalidArgument: a child's number is not in the list, a node is reached twice, a threshold is NaN or
// -infinity, or the tree is deeper than kMostDepth. Errors of `node` are passed on.
absl::StatusOr<OrderedTree> OrderTree(int count,
                                      absl::FunctionRef<absl::StatusOr<ListedNode>(int)> node,
                                      ColumnNumbers& columns);

}  // namespace heddle::classical
