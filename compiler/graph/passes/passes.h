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
#include "compiler/machine/target_info.h"

namespace heddle::graph {

struct PassOptions {
  std::set<std::string> disabled;  // pass names; InvalidArgument if one does not exist
  LayoutOptions layout;            // options of the layout pass
  // What the pass "substitute" does; null: nothing. It gets the graph that substitution rules are
  // matched in: simplified, with channels first.
  std::function<absl::StatusOr<Graph>(const Graph&)> substitute;
  machine::TargetInfo target;  // PrepareModel sets it to that of the model's target
  // If set, called after every pass with its name, the graph and the time it took.
  std::function<void(const std::string& pass, const Graph&, double milliseconds)> observer;
};

// Runs all passes that are not disabled, in the order of PassNames.
absl::StatusOr<Graph> Optimize(const Graph& graph, const PassOptions& options = {});
std::vector<std::string> PassNames();

}  // namespace heddle::graph
