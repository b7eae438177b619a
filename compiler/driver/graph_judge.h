// What graphs cost: the sum of their kernels' costs in a model (plan/reuse.h), with the layouts that cost least. For a
// search among many graphs that have most of their operators in common. Internal to this folder.
//
// The layouts of a graph are chosen in two ways, and the cheaper ones count: by the estimates for the target, and
// by the costs of kernels (graph/layout/layout_choice.h). The cost of an operator in a layout is that of
// the kernel that is built around it. It is found once for all graphs that have this kernel: in a graph of the
// kernel's operators alone, all of them in that layout. So it does not know which constants are warm in a model. The
// sums by which layouts are compared in the end do.
//
// A graph that needs more memory than it may costs infinitely much.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/fusion/memory_plan.h"
#include "compiler/graph/layout/layout_plan.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/plan/kernel_costs.h"
#include "compiler/plan/reuse.h"

namespace heddle::internal {

// Several threads may use it at once.
class GraphJudge {
 public:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // `options` are complete (ForTarget). All arguments outlive the judge. `memory_bytes`: what an inference may need
  // (graph::InferenceBytes).
  GraphJudge(const ModelOptions& options, const plan::KernelCosts& costs, graph::FoldMemo* folded,
             graph::FuseMemo* programs, int64_t memory_bytes = graph::kAnyBytes);

  struct Judged {
    double ns = 0;
    graph::FixedLayouts layouts;
    bool bounded = false;  // `ns` is only a bound: the graph costs more than the limit
  };
  // A graph that passed Simplify. `joint`: false: only the layouts that the estimates choose.
  absl::StatusOr<Judged> Judge(const graph::Graph& graph, bool joint, double limit = kNoLimit);

  // Of the judged graphs, those that were not placed because of their bound.
  int bounded() const { return bounded_; }

 private:
  using Operator = graph::LayoutProblem::Operator;
  // The costs in each layout of the operator that a channels-first kernel is built around.
  struct ByLayout {
    Operator alone;
    double least_ns = 0;  // in any layout, in any model
  };

  absl::StatusOr<ByLayout> CostsOf(const graph::FusedGraph& fused, const graph::Group& group);
  absl::StatusOr<ByLayout> FindCosts(const graph::FusedGraph& fused, const graph::Group& group);
  // `shaped`: went through the passes before the layouts.
  absl::StatusOr<double> CostWith(const graph::Graph& shaped, const graph::FixedLayouts& layouts);
  // What a kernel costs alone.
  double NsOf(const graph::FusedGraph& fused, const graph::Group& group);

  const ModelOptions& options_;
  const plan::KernelCosts& costs_;
  const plan::ReuseModel reuse_;
  graph::FuseMemo* programs_;
  const int64_t memory_bytes_;
  graph::PassOptions before_, after_;  // the passes before layouts are chosen, and the others

  std::atomic<int> bounded_ = 0;
  mutable absl::Mutex mutex_;
  std::map<std::string, ByLayout> by_kernel_
      ABSL_GUARDED_BY(mutex_);                                   // keys of channels-first kernels
  std::map<std::string, double> ns_of_ ABSL_GUARDED_BY(mutex_);  // by key
};

}  // namespace heddle::internal
