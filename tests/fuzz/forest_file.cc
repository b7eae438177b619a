// Models of XGBoost (JSON, UBJSON) and LightGBM (text), and any other JSON or UBJSON document (compiler/classical).
#include "compiler/classical/document.h"
#include "compiler/classical/forest.h"
#include "compiler/classical/import_forest.h"
#include "compiler/classical/read.h"
#include "compiler/graph/core/graph.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {
namespace {

// Larger forests take their time to walk, not to read.
constexpr size_t kMostTreesWalked = 64;
constexpr int kMostFeaturesWalked = 4096;

}  // namespace

void Run(std::string_view input) {
  if (!classical::IsForestFile(input)) {
    (void)classical::ParseDocument(input);
    return;
  }
  const absl::StatusOr<classical::Forest> forest = classical::ReadForest(input);
  if (!forest.ok()) {
    Require(forest.status().message().find('\n') == std::string_view::npos,
            "a refusal is one line");
    return;
  }
  Require(classical::CheckForest(*forest).ok(), "a forest that was read is a forest");
  if (forest->trees.size() > kMostTreesWalked || forest->features > kMostFeaturesWalked) return;
  for (const float value : {0.0F, -1.5F, 3e38F}) {
    std::vector<double> outputs = classical::Margins(
        *forest, std::vector<float>(static_cast<size_t>(forest->features), value));
    classical::ApplyTransform(forest->transform, outputs);
  }
  const absl::StatusOr<graph::Graph> graph = classical::ImportForest(*forest, {{"rows", {2}}});
  if (graph.ok()) Require(graph::CheckGraph(*graph).ok(), "a forest becomes a legal graph");
}

}  // namespace heddle::fuzz
