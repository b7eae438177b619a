#include "compiler/graph/passes/passes.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/graph/core/graph_builder.h"
#include "compiler/graph/passes/alternate_products.h"
#include "compiler/graph/passes/fold_batch_norm.h"
#include "compiler/graph/passes/fold_constants.h"
#include "compiler/graph/passes/fold_flatten.h"
#include "compiler/graph/passes/merge_equal.h"
#include "compiler/graph/passes/merge_linear.h"
#include "compiler/graph/passes/merge_products.h"
#include "compiler/graph/passes/narrow_columns.h"
#include "compiler/graph/passes/pair_concats.h"
#include "compiler/graph/passes/recognize_normalize.h"
#include "compiler/graph/passes/simplify_graph.h"

namespace heddle::graph {
namespace {

struct Pass {
  const char* name;
  absl::StatusOr<Graph> (*run)(const Graph&, const PassOptions&);
};

template <absl::StatusOr<Graph> (*run)(const Graph&)>
absl::StatusOr<Graph> Plain(const Graph& graph, const PassOptions& /*options*/) {
  return run(graph);
}
absl::StatusOr<Graph> Alternate(const Graph& graph, const PassOptions& options) {
  return AlternateProducts(graph, options.target.graph_core);
}
absl::StatusOr<Graph> Forests(const Graph& graph, const PassOptions& options) {
  return AssignForestForms(graph, options.forests, options.target, options.memo);
}
absl::StatusOr<Graph> Layouts(const Graph& graph, const PassOptions& options) {
  return AssignLayouts(graph, options.layout, options.target);
}

absl::StatusOr<Graph> Folded(const Graph& graph, const PassOptions& options) {
  return FoldConstants(graph, options.memo);
}

absl::StatusOr<Graph> ByRules(const Graph& graph, const PassOptions& options) {
  return options.rules ? options.rules(graph, options.memo) : graph;
}

absl::StatusOr<Graph> Cleaned(const Graph& graph, const PassOptions& /*options*/) {
  return RemoveDead(graph);
}

constexpr Pass kSimplify[] = {
    {"narrow-columns", Plain<NarrowColumns>},  // first: what is left out is not folded either
    // Folds transposes of weights (Gemm's transB), so that batch norm can fold into them.
    {"fold-constants", Folded},
    {"simplify", Plain<SimplifyGraph>},
    {"recognize-normalize", Plain<RecognizeNormalize>},
    {"merge-linear",
     Plain<MergeLinear>},  // after normalisations, whose parts are linear, are found
    {"fold-batch-norm", Plain<FoldBatchNorm>},  // before layout: expects channels-first weights
    {"pair-concats", Plain<PairConcats>},       // the form that rules match
    {"apply-rules", ByRules},
};

// Some passes run again after layout, under another name, because layout makes new work for them.
constexpr Pass kPlace[] = {
    {"join-concats", Plain<JoinConcats>},
    {"forest-forms", Forests},
    {"merge-products", Plain<MergeProducts>},  // after fold-batch-norm, which needs single matrices
    {"merge-equal", Plain<MergeEqual>},
    {"alternate-products", Alternate},  // after merge-products, to include its results
    {"layout", Layouts},
    {"fold-flatten", Plain<FoldFlatten>},       // folds transposes that layout put before products
    {"fold-layout-constants", Folded},          // folds weight transposes that layout made
    {"simplify-layout", Plain<SimplifyGraph>},  // joins layout's transposes with the model's own
    {"dead-code", Cleaned},
};

absl::StatusOr<Graph> Run(std::span<const Pass> passes, const Graph& graph,
                          const PassOptions& options) {
  const std::vector<std::string> names = PassNames();
  for (const std::string& name : options.disabled) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no pass '", name, "'; there are ", absl::StrJoin(names, ", ")));
    }
  }
  Graph current = graph;
  for (const Pass& pass : passes) {
    if (options.disabled.count(pass.name)) continue;
    const auto start = std::chrono::steady_clock::now();
    HEDDLE_ASSIGN_OR_RETURN(current, pass.run(current, options));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (absl::Status s = options.check ? CheckGraph(current) : absl::OkStatus(); !s.ok()) {
      return absl::InternalError(absl::StrCat("after pass ", pass.name, ": ", s.message()));
    }
    if (options.observer) options.observer(pass.name, current, took.count());
  }
  return current;
}

}  // namespace

absl::StatusOr<Graph> Simplify(const Graph& graph, const PassOptions& options) {
  return Run(kSimplify, graph, options);
}

absl::StatusOr<Graph> Place(const Graph& graph, const PassOptions& options) {
  return Run(kPlace, graph, options);
}

absl::StatusOr<Graph> Optimize(const Graph& graph, const PassOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const Graph simple, Simplify(graph, options));
  return Place(simple, options);
}

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const Pass& pass : kSimplify) names.emplace_back(pass.name);
  for (const Pass& pass : kPlace) names.emplace_back(pass.name);
  return names;
}

}  // namespace heddle::graph
