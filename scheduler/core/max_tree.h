// The largest of a row of numbers, without a look at all of them when one changes. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace heddle::scheduler {

class MaxTree {
 public:
  // Numbers that were never set are 0. Takes time in the logarithm of the largest index so far.
  void Set(size_t index, double value) {
    if (index >= leaves_) Grow(index + 1);
    size_t at = leaves_ + index;
    nodes_[at] = value;
    for (at /= 2; at > 0; at /= 2) nodes_[at] = std::max(nodes_[2 * at], nodes_[2 * at + 1]);
  }
  // At least 0.
  double Max() const { return std::max(0.0, nodes_[1]); }

 private:
  void Grow(size_t count) {
    size_t leaves = leaves_;
    while (leaves < count) leaves *= 2;
    std::vector<double> nodes(2 * leaves);
    std::copy(nodes_.begin() + static_cast<std::ptrdiff_t>(leaves_), nodes_.end(),
              nodes.begin() + static_cast<std::ptrdiff_t>(leaves));
    for (size_t at = leaves - 1; at > 0; --at)
      nodes[at] = std::max(nodes[2 * at], nodes[2 * at + 1]);
    nodes_ = std::move(nodes);
    leaves_ = leaves;
  }

  // A heap's layout: node i is the larger one of 2i and 2i + 1, and the numbers are the last half.
  size_t leaves_ = 1;  // a power of two
  std::vector<double> nodes_{0, 0};
};

}  // namespace heddle::scheduler
