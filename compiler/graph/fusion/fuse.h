// Operator fusion and task extraction: turns nodes into kernels.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/files/shared_bytes.h"
#include "compiler/graph/core/graph.h"
#include "compiler/tensor/expression.h"

namespace heddle::graph {

// One kernel: nodes of the graph that are computed together.
struct Group {
  std::vector<int> nodes;        // indices into Graph::nodes, topological
  std::vector<ValueId> inputs;   // read from outside (inputs, constants, other groups), in the
                                 // kernel's argument order
  std::vector<ValueId> outputs;  // needed outside, in the kernel's argument order
  // "conv2d+add+relu 1x56x56x64", at most about 60 characters; more where groups of other workloads would
  // have the same: "conv2d+relu 1x28x28x64 by 3x3x64x64, stride 2x2".
  std::string label;
  ir::Program naive;        // the loop program before any schedule
  std::string workload;     // its canonical text (ir/text.h)
  std::string key;          // WorkloadKey(workload)
  double flops = 0;         // of the direct algorithm; a multiply-add counts two
  bool timed_warm = false;  // ir::IsTimedWarm of the program
};

struct FusedGraph {
  Graph graph;
  std::vector<Group> groups;  // execution order
  // Maps each view to the value whose memory it shares. A view is a value that only gives another
  // shape to that memory, as a reshape on its own does. The other value is never a view itself. No
  // group computes a view.
  std::map<ValueId, ValueId> views;

  // The value whose memory holds v: v itself unless it is a view.
  ValueId MemoryOf(ValueId v) const {
    const auto it = views.find(v);
    return it == views.end() ? v : it->second;
  }
};

// Remembers the programs of groups and the ranges of tables, for many graphs that have these in common, such as the
// candidates of a search. Several threads may use it at once.
class FuseMemo {
 public:
  struct Known {
    ir::Program naive;
    std::string workload, key;
    bool timed_warm = false;
  };
  // By what GroupExpression depends on. The result lives as long as the memo. Find: null if it is not known.
  const Known* Find(const std::string& signature) const;
  const Known* Keep(const std::string& signature, Known known);
  size_t size() const;

  // The least and the largest element of a table. An empty one has {0, -1}.
  struct Range {
    int64_t least = 0, most = -1;
  };
  // Of a constant of type i32 or u8. It is scanned once, and known by its address from then on. The memo keeps the bytes, so that no
  // other constant gets this address.
  Range RangeOf(const TensorData& table);
  size_t scans() const;  // tables that RangeOf has read

 private:
  struct KnownRange {
    SharedBytes bytes;
    Range range;
  };
  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, Known> programs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::tuple<const char*, size_t, ir::DType>, KnownRange> ranges_ ABSL_GUARDED_BY(mutex_);
  size_t scans_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct FuseOptions {
  bool enabled = true;  // false: one group per node, and no views
  // Names of values that are not fused: the maker of such a value is never in the group of a reader.
  // A name that no value has does nothing.
  std::set<std::string> separate = {};
  // Names of matrices that a product reads by columns: the transpose that makes such a matrix is in the product's
  // kernel, so the matrix lies in memory as before it. Anything else that makes one does nothing, and neither does a transpose whose result
  // is an output, or that somebody else reads.
  std::set<std::string> columns = {};
  FuseMemo* memo = nullptr;  // optional; the result is the same
  // false: of a group's program, neither `naive` nor `workload` is given. For those who ask only
  // what kernels cost.
  bool programs = true;
};

// Groups the nodes by the four fusion classes, greedily in topological order. A group has at most
// one node that is not injective. A producer joins a group only if all its readers are in it and
// the group's expression does not repeat itself too often. A group that consists only of reshapes
// becomes views. Internal: two workloads have the same key.
absl::StatusOr<FusedGraph> Fuse(Graph graph, const FuseOptions& options = {});

// The names of the values that may be in FuseOptions::columns.
std::set<std::string> MayBeColumns(const Graph& graph);

// The tensor expression of one group. Its inputs are p0, p1, .. in the order of Group::inputs, and
// its stages have the names of their operators. It holds no name of the model, so equal layers have
// equal workloads.
absl::StatusOr<tensor::TensorProgram> GroupExpression(const FusedGraph& fused, const Group& group);

// The distinct workloads of a fused graph, heaviest first. If the graph has blocks of rows, each is taken to run as often as gives
// all of them the same number of rows: a kernel of the block of 16 counts 256 times where the largest has 4096.
struct Task {
  std::string key;
  std::string workload;
  std::string label;
  double flops = 0;
  int weight = 0;                  // calls of kernels with this workload
  std::vector<std::string> nodes;  // names of the groups' anchor nodes
};
std::vector<Task> ExtractTasks(const FusedGraph& fused);

}  // namespace heddle::graph
