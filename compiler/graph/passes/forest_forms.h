// The form of each forest: which operator computes it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/machine/target_info.h"

namespace heddle::graph {

enum class ForestForm {
  kWalk,  // forest_walk: a step for each level, any trees
  kSelect,  // forest_select: all nodes of complete trees are asked; needs leaves of one value, and few levels
  kRanks,  // digitize and forest_ranks: the same in bytes; needs at most 1020 different thresholds of a column, and 8 levels
  kLeaves,  // forest_leaves: all nodes are asked, from left to right, and rule leaves out; needs at most 128 leaves of a tree
};
inline constexpr ForestForm kForestForms[] = {ForestForm::kWalk, ForestForm::kSelect,
                                              ForestForm::kRanks, ForestForm::kLeaves};
std::string_view ForestFormName(ForestForm form);  // "walk", "select", "ranks", "leaves"
std::optional<ForestForm> ForestFormFromName(std::string_view name);

// By the name of the node in the imported graph.
using ForestForms = std::map<std::string, ForestForm>;

struct ForestOptions {
  ForestForms fixed = {};                        // forests that are not named here are estimated
  std::optional<ForestForm> all = std::nullopt;  // of every forest that has it and is not named
  ForestForms* plan = nullptr;                   // receives the form of every forest
};

// Before: forests are forest_walk nodes with constant tables, as imported. After: each has its form. InvalidArgument: a
// fixed form does not exist for its node (the message says why), or there is no such node. With `memo`, which is optional, a forest's tables are read,
// and those of a form made, once for all graphs that share them.
absl::StatusOr<Graph> AssignForestForms(const Graph& graph, const ForestOptions& options,
                                        const machine::TargetInfo& target,
                                        FoldMemo* memo = nullptr);

}  // namespace heddle::graph
