#include "compiler/graph/core/table_names.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace heddle::graph {
namespace {

constexpr size_t kShownBytes = 40;  // of a name that is too long

// How the names exceed the limits; empty if they do not.
std::string OverLimits(const std::vector<std::string>& names) {
  if (names.size() > kMostNames)
    return absl::StrCat(names.size(), " names, and ", kMostNames, " are the most");
  for (const std::string& name : names) {
    if (name.size() <= kMostNameBytes) continue;
    return absl::StrCat("a name of ", name.size(), " bytes, '",
                        absl::CHexEscape(name.substr(0, kShownBytes)), "..', and ", kMostNameBytes,
                        " are the most");
  }
  return "";
}

}  // namespace

std::vector<std::string> DropNamesOverLimits(Graph* graph) {
  std::vector<std::string> dropped;
  const auto drop = [&](ValueId value, const char* what, std::vector<std::string>* names) {
    const std::string over = OverLimits(*names);
    if (over.empty()) return;
    names->clear();
    dropped.push_back(absl::StrCat("the ", what, " of '",
                                   absl::CHexEscape(graph->values[value].name),
                                   "' have no names in the module: there is ", over));
  };
  const auto drop_all = [&](const std::vector<ValueId>& values, std::vector<TensorNames>* tensors) {
    for (size_t i = 0; i < tensors->size(); ++i) {
      drop(values[i], "columns", &(*tensors)[i].columns);
      drop(values[i], "labels", &(*tensors)[i].labels);
    }
  };
  drop_all(graph->inputs, &graph->tables.inputs);
  drop_all(graph->outputs, &graph->tables.outputs);
  return dropped;
}

}  // namespace heddle::graph
