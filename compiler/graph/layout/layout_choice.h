// Chooses a layout for each operator. It knows only costs, and nothing of tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/core/channel_layout.h"

namespace heddle::graph {

struct LayoutProblem {
  static constexpr int64_t kNever = int64_t{1} << 50;  // ns; the cost of a form that does not exist
  static constexpr int kModel = -1;  // the maker or reader of a value in the model's own layout

  struct Operator {
    int64_t first_ns = 0, last_ns = 0, blocked_ns = kNever;
    int64_t Cost(Layout layout) const {
      return layout == Layout::kChannelsFirst  ? first_ns
             : layout == Layout::kChannelsLast ? last_ns
                                               : blocked_ns;
    }
  };
  // A value is made in the layout of its maker. One transpose serves all readers that share another
  // layout. All transposes of a value cost the same.
  struct Value {
    int maker = kModel;        // index of an operator, or kModel
    std::vector<int> readers;  // likewise
    int64_t move_ns = 0;
    bool blocks = true;  // false: in the blocked layout, it has channels last

    Layout Form(Layout layout) const {
      return blocks || layout != Layout::kChannelsBlocked ? layout : Layout::kChannelsLast;
    }
  };

  std::vector<Operator> operators;
  std::vector<Value> values;
};

// The layouts to which the value is transposed for these choices.
std::vector<Layout> MovesOf(const LayoutProblem::Value& value, const std::vector<Layout>& layouts);
// The cost of all operators and transposes.
int64_t CostOf(const LayoutProblem& problem, const std::vector<Layout>& layouts);

// With two layouts, the problem is a minimum cut and the result has the least cost. With three, the
// problem is NP-hard in general. The result is then a local optimum of the expansion moves of
// Boykov, Veksler and Zabih ("Fast approximate energy minimization via graph cuts", 2001): no set
// of operators, however large, lowers the cost by changing to one layout together. An exact cut
// finds each such set. Their bound holds with the factor 2, because a value pays one transpose less
// than the number of layouts among its maker and readers: the cost is at most the operators' cost
// of the best choice plus twice its transposes. It is never above that of the best choice that uses
// only two layouts. Ties between the first two layouts go to the choice with the most operators
// channels last; an operator is blocked only if that is strictly better. Preconditions: costs are
// not negative, and their sum is below kNever unless an operator has no form at all.
std::vector<Layout> ChooseLayouts(const LayoutProblem& problem);

}  // namespace heddle::graph
