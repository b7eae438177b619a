// Random small networks for property tests: everything the passes rewrite, in combinations nobody
// would write.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/core/graph.h"
#include "compiler/graph/fusion/fuse.h"

namespace heddle::graph {

using TestRng = std::mt19937_64;

// Channels-first convolutions, pools, batch norms, elementwise operators with broadcasting and
// residuals, reductions, movement; one or two outputs. The same generator state gives the same
// graph.
Graph RandomGraph(TestRng& rng, int nodes);

// Values in [-1, 1].
TensorData RandomTensor(TestRng& rng, const TensorType& type);
std::vector<TensorData> RandomInputs(TestRng& rng, const Graph& graph);

// The largest |a - b| / (1 + max(|a|, |b|)) over all outputs; infinite where types differ or one is
// NaN.
double Difference(const std::vector<TensorData>& a, const std::vector<TensorData>& b);

// Nodes of this kind.
int CountOps(const Graph& graph, OpKind kind);

// What the groups compute, in their order. NotFound: one reads what is not there yet.
absl::StatusOr<std::vector<TensorData>> EvaluateFused(const FusedGraph& fused,
                                                      const std::vector<TensorData>& inputs);

}  // namespace heddle::graph
