// What an operator costs channels first and channels last: what the choice of layouts goes by.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/graph/graph.h"
#include "compiler/graph/layout_choice.h"

namespace heddle::graph {

struct LayoutCost {
  LayoutProblem::Operator ns;  // both finite
  bool measured = false;
};

// One channel or one pixel: the elements are in the same order in both layouts.
bool LooksTheSame(const TensorType& type);

// Costs on one core. Deterministic.
class LayoutCosts {
 public:
  virtual ~LayoutCosts() = default;
  // Of a node of the imported (channels-first) graph that works in either layout.
  virtual LayoutCost OperatorCost(const Graph& graph, const Node& node) const;
  // Of a transpose of such a tensor between the layouts. Next to nothing if it looks the same in
  // both: a reshape, which only keeps kernels from being fused.
  int64_t MoveNs(const TensorType& type) const;
};

// Times by node name where both layouts were measured, estimates for all else: a measured time and
// an estimated one do not compare.
class MeasuredLayoutCosts : public LayoutCosts {
 public:
  explicit MeasuredLayoutCosts(std::map<std::string, LayoutProblem::Operator> ns_by_node)
      : ns_by_node_(std::move(ns_by_node)) {}
  LayoutCost OperatorCost(const Graph& graph, const Node& node) const override;

 private:
  std::map<std::string, LayoutProblem::Operator> ns_by_node_;
};

}  // namespace heddle::graph
