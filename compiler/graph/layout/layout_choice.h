// Chooses a layout for each operator. Knows nothing of tensors, only costs.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/core/channel_layout.h"

namespace heddle::graph {

struct LayoutProblem {
  static constexpr int64_t kNever = int64_t{1} << 50;  // ns; the operator has no such form
  static constexpr int kModel = -1;  // makes or reads a value in the model's own layout

  struct Operator {
    int64_t first_ns = 0, last_ns = 0, blocked_ns = kNever;
    int64_t Cost(Layout layout) const {
      return layout == Layout::kChannelsFirst  ? first_ns
             : layout == Layout::kChannelsLast ? last_ns
                                               : blocked_ns;
    }
  };
  // A value is made in the layout of its maker. One transpose serves all readers in one other
  // layout; every transpose costs the same.
  struct Value {
    int maker = kModel;        // index of an operator, or kModel
    std::vector<int> readers;  // likewise
    int64_t move_ns = 0;
    bool blocks = true;  // false: its form in blocks is that with channels last

    Layout Form(Layout layout) const {
      return blocks || layout != Layout::kChannelsBlocked ? layout : Layout::kChannelsLast;
    }
  };

  std::vector<Operator> operators;
  std::vector<Value> values;
};

// The layouts to which the value is transposed under these choices.
std::vector<Layout> MovesOf(const LayoutProblem::Value& value, const std::vector<Layout>& layouts);
// The cost of all operators and transposes.
int64_t CostOf(const LayoutProblem& problem, const std::vector<Layout>& layouts);

// With two layouts, the result has the least cost: the problem is a minimum cut. With three, the
// problem is NP-hard in general, and the result is a local optimum of the expansion moves of
// Boykov, Veksler and Zabih ("Fast approximate energy minimization via graph cuts", 2001): no set
// of operators, however large, lowers the cost by moving to one layout together. An exact cut finds
// each such set. Their bound holds with the factor 2, because a value costs one transpose for each
// layout but one among its maker and readers: the cost is at most that of the operators of the best
// choice plus twice its transposes. It is never above that of the best choice of two layouts only.
// Ties between the first two layouts go to the choice with the most operators channels last; an
// operator is in blocks only where that is better. Preconditions: costs are not negative; their sum
// is below kNever unless an operator has no form at all.
std::vector<Layout> ChooseLayouts(const LayoutProblem& problem);

}  // namespace heddle::graph
