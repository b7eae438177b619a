#include "compiler/classical/tree_order.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "compiler/classical/refuse.h"

namespace heddle::classical {
namespace {

// A node that was reached and is not placed yet.
struct Reached {
  int number = 0;  // in the list
  int parent = 0;  // among the placed nodes
  bool right = false;
  int depth = 0;  // inner nodes above it
};

}  // namespace

absl::StatusOr<OrderedTree> OrderTree(int count,
                                      absl::FunctionRef<absl::StatusOr<ListedNode>(int)> node,
                                      ColumnNumbers& columns) {
  if (count < 1) return Refuse("it has no nodes");
  OrderedTree tree;
  std::vector<bool> seen(count, false);
  // Level by level, so that children come behind their parents.
  std::vector<Reached> reached(1);  // the root
  seen[0] = true;
  for (size_t i = 0; i < reached.size(); ++i) {
    const Reached at = reached[i];
    HEDDLE_ASSIGN_OR_RETURN(ListedNode listed, node(at.number));
    const int place =
        listed.leaf ? ~static_cast<int>(tree.leaves.size()) : static_cast<int>(tree.nodes.size());
    if (i > 0) (at.right ? tree.nodes[at.parent].right : tree.nodes[at.parent].left) = place;
    if (listed.leaf) {
      tree.leaves.push_back(at.number);
      continue;
    }
    if (std::isnan(listed.threshold) || listed.threshold == -std::numeric_limits<float>::infinity())
      return Refuse("node ", at.number, ": the threshold is ", listed.threshold);
    if (at.depth >= kMostDepth)
      return Refuse("node ", at.number, ": lies deeper than ", kMostDepth, " nodes");
    for (int child : {listed.left, listed.right}) {
      if (child < 0 || child >= count)
        return Refuse("node ", at.number, ": child ", child, " is none of ", count, " nodes");
      if (seen[child]) return Refuse("node ", child, " is reached a second time");
      seen[child] = true;
    }
    reached.push_back({listed.left, place, false, at.depth + 1});
    reached.push_back({listed.right, place, true, at.depth + 1});
    tree.nodes.push_back(
        {.column = columns.Add(std::move(listed.column)), .threshold = listed.threshold});
  }
  return tree;
}

}  // namespace heddle::classical
