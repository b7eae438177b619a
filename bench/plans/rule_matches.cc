// heddle-rule-matches: which rules match in a model, where they apply, and why they are refused elsewhere. Prints
// a table, most matches first.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/command_documents.h"
#include "base/status_macros.h"
#include "client/modules/model_file.h"
#include "compiler/codegen/backend.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/model_layout.h"
#include "compiler/substitution/match.h"
#include "compiler/substitution/rule_file.h"

namespace heddle::bench {
namespace {

struct Row {
  std::string rule;
  size_t matches = 0, applied = 0;
  std::map<std::string, size_t> refused;  // by reason
};

absl::Status List(const std::string& path, size_t most) {
  HEDDLE_ASSIGN_OR_RETURN(const client::ModelFile model, client::OpenModel(path));
  HEDDLE_ASSIGN_OR_RETURN(const Target target, codegen::ResolveTarget({}));
  ModelOptions options;
  options.import.external = model.Loader();
  HEDDLE_ASSIGN_OR_RETURN(options, ForTarget(options, target));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph imported,
                          graph::ImportOnnx(model.onnx, options.import));
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph simple, graph::Simplify(imported, options.passes));
  std::vector<Row> rows;
  const auto rules = substitution::Applicable(substitution::ShippedRules().rules);
  for (const substitution::DirectedRule& rule : rules) {
    Row row{ToText(rule.rule)};
    const auto matches = substitution::FindMatches(simple, rule);
    row.matches = matches.size();
    for (const substitution::Match& match : matches) {
      const auto after = substitution::Apply(simple, rule, match);
      if (after.ok()) {
        ++row.applied;
      } else if (absl::IsFailedPrecondition(after.status())) {
        ++row.refused[std::string(after.status().message())];
      } else {
        return after.status();
      }
    }
    if (row.matches > 0) rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.matches > b.matches; });
  std::printf("%s: %zu nodes, %zu of %zu directed rules match\n", path.c_str(), simple.nodes.size(),
              rows.size(), rules.size());
  std::printf("%8s %8s  %s\n", "matches", "applied", "rule");
  for (size_t i = 0; i < rows.size() && i < most; ++i) {
    std::printf("%8zu %8zu  %s\n", rows[i].matches, rows[i].applied, rows[i].rule.c_str());
    for (const auto& [reason, count] : rows[i].refused)
      std::printf("%8s %8zu    refused: %s\n", "", count, reason.c_str());
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app{"List the substitution rules that match in models"};
  std::vector<std::string> models;
  size_t most = 1000;
  app.add_option("models", models, "ONNX files")->required();
  app.add_option("--most", most, "Rules listed for each model");
  if (const auto end = heddle::ParseCommandLine(&app, argc, argv)) return *end;
  for (const std::string& model : models) {
    const absl::Status status = List(model, most);
    if (status.ok()) continue;
    std::fprintf(stderr, "heddle-rule-matches: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::Main(argc, argv); }
