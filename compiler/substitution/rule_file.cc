#include "compiler/substitution/rule_file.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fatal.h"

namespace heddle::substitution {

extern const char kShippedRules[];  // made from rules.txt when the program is built

std::string ToText(const RuleFile& file) {
  std::string text = absl::StrCat("heddle rules 1\naxioms ", file.axioms, "\n");
  for (const std::string& remark : file.remarks) absl::StrAppend(&text, "# ", remark, "\n");
  for (const Rule& rule : file.rules) absl::StrAppend(&text, ToText(rule), "\n");
  return text;
}

absl::StatusOr<RuleFile> ParseRuleFile(std::string_view text) {
  RuleFile file;
  int number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::string where = absl::StrCat("line ", ++number, ": ");
    if (number == 1) {
      if (line != "heddle rules 1")
        return absl::InvalidArgumentError(where + "expected 'heddle rules 1'");
    } else if (number == 2) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() != 2 || words[0] != "axioms")
        return absl::InvalidArgumentError(where + "expected 'axioms' and their digest");
      file.axioms = words[1];
    } else if (line.substr(0, 2) == "# ") {
      file.remarks.emplace_back(line.substr(2));
    } else if (!line.empty()) {
      absl::StatusOr<Rule> rule = ParseRule(std::string_view(line.data(), line.size()));
      if (!rule.ok())
        return absl::InvalidArgumentError(absl::StrCat(where, rule.status().message()));
      file.rules.push_back(*std::move(rule));
    }
  }
  return file;
}

const RuleFile& ShippedRules() {
  static const RuleFile* const kRules = [] {
    absl::StatusOr<RuleFile> file = ParseRuleFile(kShippedRules);
    if (!file.ok()) Fatal(absl::StrCat("rules.txt: ", file.status().message()));
    return new RuleFile(*std::move(file));
  }();
  return *kRules;
}

}  // namespace heddle::substitution
