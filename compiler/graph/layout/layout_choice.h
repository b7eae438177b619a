// Which layout each operator works in, as a problem on its own: nothing of tensors, only costs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace heddle::graph {

// Channels blocked: N, C/b, spatial.., b for one block b of a whole graph. Of channels that b does
// not divide it is channels last.
enum class Layout { kChannelsFirst, kChannelsLast, kChannelsBlocked };
inline constexpr std::array kLayouts = {Layout::kChannelsFirst, Layout::kChannelsLast,
                                        Layout::kChannelsBlocked};

struct LayoutProblem {
  static constexpr int64_t kNever = int64_t{1} << 50;  // ns; an operator that has no such form
  static constexpr int kModel = -1;  // who makes or reads a value in the model's own layout

  struct Operator {
    int64_t first_ns = 0, last_ns = 0, blocked_ns = kNever;
    int64_t Cost(Layout layout) const {
      return layout == Layout::kChannelsFirst  ? first_ns
             : layout == Layout::kChannelsLast ? last_ns
                                               : blocked_ns;
    }
  };
  // Made in the layout of its maker. One transpose serves all readers in one other layout; each
  // costs the same.
  struct Value {
    int maker = kModel;        // index of an operator, or kModel
    std::vector<int> readers;  // likewise
    int64_t move_ns = 0;
    bool blocks = true;  // false: blocked, it is as channels last

    Layout Form(Layout layout) const {
      return blocks || layout != Layout::kChannelsBlocked ? layout : Layout::kChannelsLast;
    }
  };

  std::vector<Operator> operators;
  std::vector<Value> values;
};

// The layouts the value is transposed to under these choices.
std::vector<Layout> MovesOf(const LayoutProblem::Value& value, const std::vector<Layout>& layouts);
// Of all operators and transposes.
int64_t CostOf(const LayoutProblem& problem, const std::vector<Layout>& layouts);

// With two layouts a choice of least cost, exact on any graph: the problem is a minimum cut. With
// three it is NP-hard in general, and the choice is a local optimum of Boykov, Veksler and Zabih's
// expansion moves ("Fast approximate energy minimization via graph cuts", 2001): no set of
// operators, however large, lowers the cost by going over to one layout together, each such set
// being found by an exact cut. As a value costs a transpose for each layout but one among its maker
// and readers, their bound holds with the factor 2: the cost is at most that of the operators of
// the best choice and twice its transposes. It is never above that of the best choice of only two
// layouts. Of equally good choices of the first two layouts, the one with most operators channels
// last; blocked only where that is better. Preconditions: costs are not negative; their sum is
// below kNever unless an operator has no form at all.
std::vector<Layout> ChooseLayouts(const LayoutProblem& problem);

}  // namespace heddle::graph
