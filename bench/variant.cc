#include "bench/variant.h"

#include <functional>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/ir/status_macros.h"
#include "cost_model/features.h"

namespace heddle::bench {
namespace {

using cost_model::Method;

const std::map<std::string, std::function<void(Method&, double)>>& Fields() {
  static const auto* const kFields =
      new std::map<std::string, std::function<void(Method&, double)>>{
          {"batch", [](Method& m, double v) { m.smallest_batch = m.largest_batch = int(v); }},
          {"chains", [](Method& m, double v) { m.chains = size_t(v); }},
          {"cold_start", [](Method& m, double v) { m.cold_start = v; }},
          {"depth", [](Method& m, double v) { m.model.depth = int(v); }},
          {"diversity", [](Method& m, double v) { m.diversity = v; }},
          {"elites", [](Method& m, double v) { m.elites = size_t(v); }},
          {"epsilon", [](Method& m, double v) { m.epsilon = v; }},
          {"levels", [](Method& m, double v) { m.score_levels = int(v); }},
          {"members", [](Method& m, double v) { m.model.members = int(v); }},
          {"rounds", [](Method& m, double v) { m.model.rounds = int(v); }},
          {"shortlist", [](Method& m, double v) { m.shortlist = int(v); }},
          {"steps", [](Method& m, double v) { m.steps = int(v); }},
      };
  return *kFields;
}

}  // namespace

absl::StatusOr<Method> ParseVariant(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const Method* base = cost_model::FindMethod(parts[0]);
  if (base == nullptr) {
    std::string names;
    for (const Method& m : cost_model::Methods()) absl::StrAppend(&names, " ", std::string(m.name));
    return absl::InvalidArgumentError(
        absl::StrCat("no method '", parts[0], "' with a model; there are:", names));
  }
  Method method = *base;
  for (size_t k = 1; k < parts.size(); ++k) {
    const std::vector<std::string> pair = absl::StrSplit(parts[k], absl::MaxSplits('=', 1));
    if (pair.size() == 2 && pair[0] == "without") {
      method.without.push_back(pair[1]);
      HEDDLE_RETURN_IF_ERROR(cost_model::ColumnsWithout(method.without).status());
      continue;
    }
    const auto field = Fields().find(pair[0]);
    double value = 0;
    if (field == Fields().end() || pair.size() != 2 || !absl::SimpleAtod(pair[1], &value) ||
        !(value >= 0 && value <= 1e5)) {
      std::string names = "without";
      for (const auto& [name, set] : Fields()) absl::StrAppend(&names, ", ", name);
      return absl::InvalidArgumentError(
          absl::StrCat("'", parts[k], "' is no FIELD=NUMBER; the fields are ", names));
    }
    field->second(method, value);
  }
  return method;
}

}  // namespace heddle::bench
