// The tables of rules. Internal to this folder.
#pragma once

#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "compiler/schedule/rules/forms.h"
#include "compiler/schedule/rules/rule.h"
#include "compiler/schedule/rules/rules.h"

namespace heddle::schedule {

// A rule on one stage. Its rank is its place: a stage goes to the first rule that matches and whose
// preferred decisions work.
struct StageRule {
  std::string_view name;
  bool (*matches)(const StageSite& site);
  std::unique_ptr<Rule> (*make)(const StageSite& site, Knobs& knobs);
};
absl::Span<const StageRule> StageRules();

// A rule on the whole program. Forms have a table of their own because they do not exclude each
// other: every one that matches stays, as a choice of the space's first decision, and has its
// stages shared out anew. The one that ranks highest is preferred; of equals the first.
struct FormEntry {
  std::string_view name;  // as decisions are described
  bool (*matches)(const FormSite& site);
  std::unique_ptr<FormRule> (*make)(const FormSite& site);
  int (*rank)(const FormSite& site);  // without measuring
};
absl::Span<const FormEntry> Forms();

}  // namespace heddle::schedule
