// The graph passes as one flat list, and the wrapper that names, times, dumps, disables and
// verifies each of them. Each pass has its own header (fold_constants.h, fold_batch_norm.h,
// layout.h, ..).
#pragma once

#include <functional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/layout/layout.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/graph/passes/forest_forms.h"
#include "compiler/machine/target_info.h"

namespace heddle::graph {

struct PassOptions {
  std::set<std::string> disabled;  // pass names; InvalidArgument if one does not exist
  LayoutOptions layout;            // options of the layout pass
  ForestOptions forests;           // options of the pass forest-forms
  FoldMemo* memo = nullptr;        // for many graphs that share constants
  bool check = true;               // the graph after each pass (CheckGraph)
  machine::TargetInfo target;      // PrepareModel sets it to that of the model's target
  // The pass apply-rules, which comes from the substitutions; null: there is none.
  std::function<absl::StatusOr<Graph>(const Graph&, FoldMemo*)> rules;
  // If set, called after every pass with its name, the graph and the time it took.
  std::function<void(const std::string& pass, const Graph&, double milliseconds)> observer;
};

// The passes have two parts. `Simplify` gives the graph in which substitutions are matched: channels are
// first, and there is one form of what may be written in several. `Place` gives the graph that is
// fused. Each runs those of its passes that are not disabled, in the order of PassNames.
absl::StatusOr<Graph> Simplify(const Graph& graph, const PassOptions& options = {});
absl::StatusOr<Graph> Place(const Graph& graph, const PassOptions& options = {});
// Both, with nothing in between.
absl::StatusOr<Graph> Optimize(const Graph& graph, const PassOptions& options = {});
std::vector<std::string> PassNames();

}  // namespace heddle::graph
