// The tables of rules. Internal to this folder.
#pragma once

#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "compiler/schedule/rules/forms.h"
#include "compiler/schedule/rules/rule.h"
#include "compiler/schedule/rules/rules.h"

namespace heddle::schedule {

// A rule on one stage. Rules come in the order of their priority: a stage goes to the first rule
// that matches and whose preferred decisions work.
struct StageRule {
  std::string_view name;
  bool (*matches)(const StageSite& site);
  std::unique_ptr<Rule> (*make)(const StageSite& site, Knobs& knobs);
};
absl::Span<const StageRule> StageRules();

// A rule on the whole program. Forms have their own table because they do not exclude each other:
// every form that matches becomes a choice of the space's first decision, and its stages are
// assigned to rules separately. The form with the highest rank is preferred, the first of equals.
struct FormEntry {
  std::string_view name;  // appears in the descriptions of decisions
  bool (*matches)(const FormSite& site);
  std::unique_ptr<FormRule> (*make)(const FormSite& site);
  int (*rank)(const FormSite& site);  // known without measuring
};
absl::Span<const FormEntry> Forms();

}  // namespace heddle::schedule
