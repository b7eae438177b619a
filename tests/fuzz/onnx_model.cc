// ONNX models (compiler/onnx): the whole way from bytes to a fused graph.
#include "compiler/graph/fusion/fuse.h"
#include "compiler/graph/passes/passes.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/summary.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {
namespace {

// Folding evaluates operators on constants; much smaller budgets than in service keep an input's time short.
constexpr int64_t kConstantBytes = int64_t{1} << 20;
// Nodes of a graph that is optimised and fused.
constexpr size_t kMostNodes = 256;
constexpr int64_t kMostElements = int64_t{1} << 16;

bool IsSmall(const graph::Graph& graph) {
  if (graph.nodes.size() > kMostNodes) return false;
  for (const graph::Value& value : graph.values) {
    if (graph::NumElements(value.type) > kMostElements) return false;
  }
  return true;
}

}  // namespace

void Run(std::string_view input) {
  graph::ImportOptions options;
  options.constant_bytes = kConstantBytes;
  const absl::StatusOr<graph::Graph> graph = graph::ImportOnnx(input, options);
  (void)graph::SummarizeOnnx(input);
  (void)graph::LikelyShapes(input, options);
  if (!graph.ok()) {
    Require(absl::IsInvalidArgument(graph.status()) || absl::IsUnimplemented(graph.status()),
            "a model is invalid or not supported, and nothing else");
    return;
  }
  Require(graph::CheckGraph(*graph).ok(), "an imported graph is legal");
  if (!IsSmall(*graph)) return;
  const absl::StatusOr<graph::Graph> optimized = graph::Optimize(*graph);
  Require(optimized.ok(), "the passes take every legal graph");
  Require(graph::Fuse(*optimized).ok(), "fusion takes every optimised graph");
}

}  // namespace heddle::fuzz
