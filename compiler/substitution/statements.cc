#include "compiler/substitution/statements.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/fatal.h"
#include "compiler/substitution/generator.h"

namespace heddle::substitution {
namespace {

constexpr std::string_view kStatements[] = {
    // An operator of concatenated operands, and a sum that reads the parts where they are.
    "conv[s](concat[1](x, y), z) => add(conv[s](x, split0[1](z)), conv[s](y, split1[1](z)))",
    "matmul(concat[1](x, y), z) => add(matmul(x, split0[0](z)), matmul(y, split1[0](z)))",
};

}  // namespace

std::vector<Rule> Statements() {
  std::vector<Rule> rules;
  for (const std::string_view text : kStatements) {
    absl::StatusOr<Rule> rule = ParseRule(text);
    if (!rule.ok())
      Fatal(absl::StrCat("statement ", std::string(text), ": ", rule.status().message()));
    rules.push_back(Canonical(*rule));
  }
  return rules;
}

}  // namespace heddle::substitution
