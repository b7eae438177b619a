// What an operator costs in each layout: the input of the choice of layouts.
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

// Whether a tensor has one channel or one pixel, so that its elements have the same order in all
// layouts.
bool LooksTheSame(const TensorType& type);

// Estimated times on one core, target.graph_core. Deterministic.
class LayoutCosts {
 public:
  explicit LayoutCosts(const machine::TargetInfo& target = {}) : target_(target) {}
  virtual ~LayoutCosts() = default;
  // Costs of a node of the imported, channels-first graph that has a form channels last; that of
  // channels blocked is given whether or not it has such a form. All are finite.
  virtual LayoutCost OperatorCost(const Graph& graph, const Node& node) const;
  // Cost of a transpose of such a tensor between two layouts: next to nothing if it looks the same
  // in both, as a reshape only keeps kernels from being fused.
  int64_t MoveNs(const TensorType& type) const;

 private:
  machine::TargetInfo target_;
};

// Measured times by node name, kNever for a layout that was not measured. If two layouts of a node
// were, the third is its estimate in proportion to channels last, or else to channels first.
// Otherwise all three are estimates: a measured time and an estimated one do not compare.
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
