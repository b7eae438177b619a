// Operator fusion and task extraction: from nodes to kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/tensor/expression.h"

namespace heddle::graph {

// One kernel: some nodes of the graph computed together.
struct Group {
  std::vector<int> nodes;        // indices into Graph::nodes, topological
  std::vector<ValueId> inputs;   // read from outside (inputs, constants, other groups), in the
                                 // kernel's argument order
  std::vector<ValueId> outputs;  // needed outside, in the kernel's argument order
  std::string label;             // for people, about 60 characters: "conv2d+add+relu 1x56x56x64"
  ir::Program naive;             // the loop program before any schedule
  std::string workload;          // its canonical text (ir/text.h)
  std::string key;               // WorkloadKey(workload)
  double flops = 0;              // of the direct algorithm; workloads.md's way of counting
};

struct FusedGraph {
  Graph graph;
  std::vector<Group> groups;  // execution order
  // Values that are another's memory under another shape (a reshape on its own), and that other
  // one, which is never a view itself. No group computes them.
  std::map<ValueId, ValueId> views;

  // Whose memory v is: the other one of a view, else v.
  ValueId MemoryOf(ValueId v) const {
    const auto it = views.find(v);
    return it == views.end() ? v : it->second;
  }
};

struct FuseOptions {
  bool enabled = true;  // false: one group per node, and no views
};

// Groups the nodes by the four operator classes: greedy in topological order, at most one complex
// anchor a group, a producer merges only if all its consumers end up in the group (or it has a
// single one), and no further once the group's expression would repeat itself too often. Reshapes
// that stay among themselves become views. Internal: two workloads with one key.
absl::StatusOr<FusedGraph> Fuse(Graph graph, const FuseOptions& options = {});

// The tensor expression of one group: inputs p0, p1, .. in the order of Group::inputs, stages named
// by their operators, nothing of the model's names; so equal layers give equal workloads.
absl::StatusOr<tensor::TensorProgram> GroupExpression(const FusedGraph& fused, const Group& group);

// The distinct workloads of a fused graph, heaviest first.
struct Task {
  std::string key;
  std::string workload;
  std::string label;
  double flops = 0;
  int weight = 0;                  // groups with this workload
  std::vector<std::string> nodes;  // names of the groups' anchor nodes
};
std::vector<Task> ExtractTasks(const FusedGraph& fused);

}  // namespace heddle::graph
