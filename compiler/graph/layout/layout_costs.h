// What an operator costs in each layout: what the choice of layouts goes by.
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

// One channel or one pixel: the elements are in the same order in both layouts.
bool LooksTheSame(const TensorType& type);

// Estimated times on one core, target.graph_core. Deterministic.
class LayoutCosts {
 public:
  explicit LayoutCosts(const machine::TargetInfo& target = {}) : target_(target) {}
  virtual ~LayoutCosts() = default;
  // Of a node of the imported (channels-first) graph that works channels last, too; blocked as if
  // it did. All finite.
  virtual LayoutCost OperatorCost(const Graph& graph, const Node& node) const;
  // Of a transpose of such a tensor between two layouts. Next to nothing if it looks the same in
  // both: a reshape, which only keeps kernels from being fused.
  int64_t MoveNs(const TensorType& type) const;

 private:
  machine::TargetInfo target_;
};

// Times by node name, kNever for a layout that was not measured. Where two were, the third is what
// its estimate says in proportion to channels last, or first; all else are estimates: a measured
// time and an estimated one do not compare.
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
