// The text of targets (base/vocabulary/target.h): in every job, record and slot.
#include "base/vocabulary/target.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {

void Run(std::string_view input) {
  const absl::StatusOr<Target> target = ParseTarget(input);
  if (!target.ok()) return;
  const std::string text = ToText(*target);
  const absl::StatusOr<Target> again = ParseTarget(text);
  Require(again.ok(), "the canonical text parses");
  Require(ToText(*again) == text, "the canonical text is canonical");
  const DeviceNeeds needs = NeedsOf(*target);
  Require(ParseTarget(needs.target).ok(), "what a device must offer is a target");
  Require(needs.cores >= 0, "a number of cores is not negative");
}

}  // namespace heddle::fuzz
