// Estimates what an operator costs in each layout.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/graph/core/graph.h"
#include "compiler/graph/layout/layout_choice.h"
#include "compiler/machine/target_info.h"

namespace heddle::graph {

struct LayoutCost {
  LayoutProblem::Operator ns;
  bool measured = false;
};

// Whether a tensor has one channel or one pixel per image, so that its elements have the same order
// in all layouts.
bool LooksTheSame(const TensorType& type);

// Estimated times on one core, target.graph_speed. Deterministic.
class LayoutCosts {
 public:
  explicit LayoutCosts(const machine::TargetInfo& target = {}) : target_(target) {}
  virtual ~LayoutCosts() = default;
  // The cost in every layout of a node of the imported graph that has a form with channels last.
  // The blocked cost is given whether or not that form exists. All costs are finite.
  virtual LayoutCost OperatorCost(const Graph& graph, const Node& node) const;
  // The cost of a transpose of such a tensor between two layouts. It is next to nothing if the
  // tensor looks the same in both: then it is a reshape, which only keeps kernels from being fused.
  int64_t MoveNs(const TensorType& type) const;

 private:
  machine::TargetInfo target_;
};

// Costs from measured times by node name. kNever stands for a layout that was not measured. If two
// layouts were measured, the cost of the third is its estimate, scaled by the ratio of measured to
// estimated time with channels last (or first, if last was not measured). If fewer were measured,
// all costs are estimates, because measured and estimated times do not compare.
class MeasuredLayoutCosts : public LayoutCosts {
 public:
  explicit MeasuredLayoutCosts(std::map<std::string, LayoutProblem::Operator> ns_by_node,
                               const machine::TargetInfo& target = {})
      : LayoutCosts(target), ns_by_node_(std::move(ns_by_node)) {}
  LayoutCost OperatorCost(const Graph& graph, const Node& node) const override;

 private:
  std::map<std::string, LayoutProblem::Operator> ns_by_node_;
};

}  // namespace heddle::graph
