// The text of plans (compiler/plan/plan.h): from workers, and in every module.
#include "compiler/plan/plan.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {

void Run(std::string_view input) {
  const absl::StatusOr<plan::Plan> plan = plan::ParsePlan(input);
  if (!plan.ok()) return;
  const absl::StatusOr<plan::Plan> again = plan::ParsePlan(plan::ToText(*plan));
  Require(again.ok() && *again == *plan, "a plan's text round-trips");
}

}  // namespace heddle::fuzz
