#include "bench/search/variant.h"

#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "cost_model/features/features.h"

namespace heddle::bench {
namespace {

using cost_model::Method;

struct Field {
  std::function<void(Method&, double)> set;
  double least = 0;
  double most = 1e5;
  bool whole = true;

  bool Takes(double v) const { return v >= least && v <= most && (!whole || v == std::floor(v)); }
};

Field Share(double Method::*member) {
  return {[=](Method& m, double v) { m.*member = v; }, 0, 1, false};
}
Field Count(int Method::*member, double least = 0) {
  return {[=](Method& m, double v) { m.*member = int(v); }, least};
}

const std::map<std::string, Field>& Fields() {
  static const auto* const kFields = new std::map<std::string, Field>{
      {"batch", {[](Method& m, double v) { m.smallest_batch = m.largest_batch = int(v); }, 1}},
      {"batch_share", Share(&Method::batch_share)},
      {"beside", Share(&Method::beside_default)},
      {"beside_steps", Count(&Method::beside_steps, 1)},
      {"chains", {[](Method& m, double v) { m.chains = size_t(v); }, 1}},
      {"cold_start", Share(&Method::cold_start)},
      {"depth", {[](Method& m, double v) { m.model.depth = int(v); }, 1}},
      {"diversity", {[](Method& m, double v) { m.diversity = v; }, 0, 1e5, false}},
      {"drafts", Count(&Method::drafts, 1)},
      {"elites", {[](Method& m, double v) { m.elites = size_t(v); }}},
      {"epsilon", Share(&Method::epsilon)},
      {"evaluations", Count(&Method::evaluations)},
      {"hedge", Share(&Method::hedge)},
      {"levels", Count(&Method::score_levels)},
      {"members", {[](Method& m, double v) { m.model.members = int(v); }, 1}},
      {"others_beside", Share(&Method::others_beside)},
      {"others_drafts", Count(&Method::others_drafts, 1)},
      {"others_depth", {[](Method& m, double v) { m.others.depth = int(v); }, 1}},
      {"others_rounds", {[](Method& m, double v) { m.others.rounds = int(v); }}},
      {"patience", Count(&Method::patience)},
      {"relative", {[](Method& m, double v) { m.relative = v > 0; }, 0, 1}},
      {"rounds", {[](Method& m, double v) { m.model.rounds = int(v); }}},
      {"shortlist", Count(&Method::shortlist, 1)},
      {"smallest", Count(&Method::smallest_batch, 1)},
      {"steps", Count(&Method::steps)},
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
    if (field == Fields().end() || pair.size() != 2 || !absl::SimpleAtod(pair[1], &value)) {
      std::string names = "with, without";
      for (const auto& [name, known] : Fields()) absl::StrAppend(&names, ", ", name);
      return absl::InvalidArgumentError(
          absl::StrCat("'", parts[k], "' is no FIELD=NUMBER; the fields are ", names));
    }
    const Field& known = field->second;
    if (!known.Takes(value)) {
      return absl::InvalidArgumentError(absl::StrCat("'", parts[k], "': ", pair[0], " is a ",
                                                     known.whole ? "whole " : "", "number from ",
                                                     known.least, " to ", known.most));
    }
    known.set(method, value);
  }
  return method;
}

int TrialsOf(const std::string& method, int trials) {
  const std::string name = method.substr(0, method.find_first_of(":+@"));
  return cost_model::FindMethod(name) == nullptr ? 2 * trials : trials;
}

}  // namespace heddle::bench
