// What kernels cost in a model, given what they cost alone with cold weights (measure/measure.h).
//
// A call that reads constants which are still in a cache takes less time than the kernel alone. The steps of a recurrence
// share their weights. And inferences follow each other, so the weights of a small model stay in a cache from one
// inference to the next. The reuse distance of a constant decides from which cache it comes (Mattson, Gecsei, Slutz and
// Traiger, "Evaluation techniques for storage hierarchies", 1970). It counts the bytes that are touched from the call that
// read the constant before to this one, both calls included, each byte once. The first call of an inference that reads it
// follows the last one of the inference before.
//
// The call saves what the roofline (roofline.h) saves when these constants come from their cache and not from where a
// timed kernel has them. So a kernel that is bound by its arithmetic saves nothing. It never takes less than the
// roofline, and never more than alone.
//
// A kernel that works element by element writes its result over an operand that nobody reads later (graph/fusion/memory_plan.h).
// Timed alone, it writes elsewhere. So in the model it saves what the roofline saves by the bytes of one of the two.
//
// Kernels of models of trees were not timed cold (measure/measure.h), and save nothing.
//
// Constants are told apart by their elements, because a module has equal ones once (driver/places.h). But two kernels
// may pack one constant in two ways, so a constant is another one for each kernel. Intermediate values share the memory
// of an arena, so they never count more than the arena has.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/graph/fusion/fuse.h"
#include "compiler/machine/target_info.h"
#include "compiler/plan/roofline.h"

namespace heddle::plan {

// Several threads may use it at once.
class ReuseModel {
 public:
  // On targets with Execution::kGrid, a kernel costs in a model what it costs alone: their caches are unknown.
  explicit ReuseModel(const machine::TargetInfo& target);

  // What the calls cost in inferences that follow each other, in ns, in the order of the groups. `cold_ns`: what they cost
  // alone, one for each group. Deterministic.
  std::vector<double> CostsNs(const graph::FusedGraph& fused,
                              const std::vector<double>& cold_ns) const;

  // A lower bound of what CostsNs says of a kernel in any graph: the constant that was read last is read again, and the result
  // takes the place of an operand if it can.
  double LeastNs(const graph::FusedGraph& fused, const graph::Group& group, double cold_ns) const;
  // For each group, whether it may cost less than alone. False: nobody else reads its constants, all constants of the graph
  // together are larger than the caches, and it does not work element by element. That does not change with the layouts of
  // the graph.
  std::vector<bool> MayReuse(const graph::FusedGraph& fused) const;

 private:
  // `alone`: of the kernel as it is timed; `work`: of the call in the model.
  double Warm(const KernelWork& alone, const KernelWork& work, double constants_ns,
              double cold_ns) const;

  Roofline roofline_;
  bool caches_known_;
};

}  // namespace heddle::plan
