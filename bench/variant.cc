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
          {"beside", [](Method& m, double v) { m.beside_default = v; }},
          {"others_rounds", [](Method& m, double v) { m.others.rounds = int(v); }},
          {"others_depth", [](Method& m, double v) { m.others.depth = int(v); }},
          {"batch_share", [](Method& m, double v) { m.batch_share = v; }},
          {"chains", [](Method& m, double v) { m.chains = size_t(v); }},
          {"cold_start", [](Method& m, double v) { m.cold_start = v; }},
          {"depth", [](Method& m, double v) { m.model.depth = int(v); }},
          {"diversity", [](Method& m, double v) { m.diversity = v; }},
          {"drafts", [](Method& m, double v) { m.drafts = int(v); }},
          {"elites", [](Method& m, double v) { m.elites = size_t(v); }},
          {"epsilon", [](Method& m, double v) { m.epsilon = v; }},
          {"evaluations", [](Method& m, double v) { m.evaluations = int(v); }},
          {"levels", [](Method& m, double v) { m.score_levels = int(v); }},
          {"members", [](Method& m, double v) { m.model.members = int(v); }},
          {"patience", [](Method& m, double v) { m.patience = int(v); }},
          {"relative", [](Method& m, double v) { m.relative = v > 0; }},
          {"rounds", [](Method& m, double v) { m.model.rounds = int(v); }},
          {"shortlist", [](Method& m, double v) { m.shortlist = int(v); }},
          {"smallest", [](Method& m, double v) { m.smallest_batch = int(v); }},
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
    if (pair.size() == 2 && pair[0] == "with") {
      std::erase(method.without, pair[1]);
      HEDDLE_RETURN_IF_ERROR(cost_model::ColumnsWithout(std::vector{pair[1]}).status());
      continue;
    }
    const auto field = Fields().find(pair[0]);
    double value = 0;
    if (field == Fields().end() || pair.size() != 2 || !absl::SimpleAtod(pair[1], &value) ||
        !(value >= 0 && value <= 1e5)) {
      std::string names = "with, without";
      for (const auto& [name, set] : Fields()) absl::StrAppend(&names, ", ", name);
      return absl::InvalidArgumentError(
          absl::StrCat("'", parts[k], "' is no FIELD=NUMBER; the fields are ", names));
    }
    field->second(method, value);
  }
  return method;
}

int TrialsOf(const std::string& method, int trials) {
  const std::string name = method.substr(0, method.find_first_of(":+@"));
  return cost_model::FindMethod(name) == nullptr ? 2 * trials : trials;
}

}  // namespace heddle::bench
