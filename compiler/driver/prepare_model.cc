// Turns a model into kernels: import, passes, fusion.
#include <set>
#include <string>

#include "base/status_macros.h"
#include "compiler/driver/check_substitution.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/import_model.h"
#include "compiler/driver/model_layout.h"
#include "compiler/substitution/rule_file.h"
#include "compiler/substitution/search.h"

namespace heddle {

absl::StatusOr<graph::FusedGraph> PrepareModel(std::string_view onnx, const ModelOptions& options,
                                               const Target& target, const plan::Plan& plan,
                                               plan::Plan* complete) {
  HEDDLE_ASSIGN_OR_RETURN(ModelOptions chosen, ForTarget(options, target));
  if (plan.layouts.has_value()) chosen.passes.layout.fixed = &*plan.layouts;
  graph::LayoutPlan layouts;
  graph::ForestForms forests;
  chosen.passes.forests.fixed = plan.forests;
  chosen.passes.forests.plan = &forests;
  chosen.passes.layout.plan = &layouts;
  chosen.fuse.separate.insert(plan.separate.begin(), plan.separate.end());
  chosen.fuse.columns.insert(plan.columns.begin(), plan.columns.end());
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported, ImportModel(onnx, options.import));
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph simple, graph::Simplify(imported, chosen.passes));
  if (!plan.substitutions.empty()) {
    const auto rules = substitution::Applicable(substitution::ShippedRules().rules);
    graph::FoldMemo folded;
    std::set<std::string> checked;
    HEDDLE_ASSIGN_OR_RETURN(
        simple, SubstitutedAndChecked(simple, rules, plan.substitutions, &folded, &checked));
  }
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph optimised, graph::Place(simple, chosen.passes));
  if (complete != nullptr) {
    *complete = plan;
    complete->layouts = graph::Fixed(layouts);
    complete->separate = chosen.fuse.separate;
    complete->columns = chosen.fuse.columns;
    complete->forests = std::move(forests);
  }
  return graph::Fuse(std::move(optimised), chosen.fuse);
}

}  // namespace heddle
