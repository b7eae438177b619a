// Which layout each operator works in, as a problem on its own: nothing of tensors, only costs.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::graph {

enum class Layout { kChannelsFirst, kChannelsLast };

struct LayoutProblem {
  static constexpr int64_t kNever = int64_t{1} << 50;  // ns; an operator that has no such form
  static constexpr int kModel = -1;  // who makes or reads a value in the model's own layout

  struct Operator {
    int64_t first_ns = 0, last_ns = 0;
    int64_t Cost(Layout layout) const {
      return layout == Layout::kChannelsFirst ? first_ns : last_ns;
    }
  };
  // Made in the layout of its maker. One transpose serves all readers in the other layout.
  struct Value {
    int maker = kModel;        // index of an operator, or kModel
    std::vector<int> readers;  // likewise
    int64_t move_ns = 0;
  };

  std::vector<Operator> operators;
  std::vector<Value> values;
};

// Whether the value needs a transpose under these layouts.
bool IsMoved(const LayoutProblem::Value& value, const std::vector<Layout>& layouts);
// Of all operators and transposes.
int64_t CostOf(const LayoutProblem& problem, const std::vector<Layout>& layouts);

// A choice of least cost, exact on any graph: with two layouts the problem is a minimum cut (an
// operator on the source's side is channels first; a value adds a node that is on the sink's side
// as soon as one reader is, and one that is on the source's side likewise). Of equally good choices
// the one with most operators channels last. Preconditions: costs are not negative; their sum is
// below kNever unless an operator has no form at all.
std::vector<Layout> ChooseLayouts(const LayoutProblem& problem);

}  // namespace heddle::graph
