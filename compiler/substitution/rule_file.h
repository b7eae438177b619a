// The rules' file: text, one line for each rule, every one proved from the axioms with the given digest.
//
//   heddle rules 1
//   axioms 5f3c..            SHA-256 of the axioms (axioms.h)
//   # any remark
//   matmul(x, matmul(y, z)) => matmul(matmul(x, y), z)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/substitution/term.h"

namespace heddle::substitution {

struct RuleFile {
  std::string axioms;  // digest
  std::vector<std::string> remarks;
  std::vector<Rule> rules;
};
std::string ToText(const RuleFile& file);
// InvalidArgument, naming the line: the text is no such file.
absl::StatusOr<RuleFile> ParseRuleFile(std::string_view text);

// The rules that are part of this program: compiler/substitution/rules.txt.
const RuleFile& ShippedRules();

}  // namespace heddle::substitution
