// The graph passes as one flat list, and the wrapper that names, times, dumps, disables and
// verifies each. Each pass lives in a header of its own (fold_constants.h, fold_batch_norm.h,
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
  std::set<std::string> disabled;  // names; InvalidArgument for one that does not exist
  LayoutOptions layout;            // of the pass of that name
  machine::TargetInfo target;      // PrepareModel takes that of the model's target
  // Called after every pass with its name, the graph and the time taken, when set.
  std::function<void(const std::string& pass, const Graph&, double milliseconds)> observer;
};

// fold-batch-norm, layout (chosen for all operators together, constant weights transposed ahead of
// time), fold-constants, dead-code, ..
absl::StatusOr<Graph> Optimize(const Graph& graph, const PassOptions& options = {});
std::vector<std::string> PassNames();

}  // namespace heddle::graph
