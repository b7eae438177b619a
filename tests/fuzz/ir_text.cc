// The text of loop programs (compiler/ir/text.h): workloads come from workers, records and clients.
#include "compiler/ir/text.h"

#include "compiler/ir/verify/verifier.h"
#include "compiler/ir/visit.h"
#include "tests/fuzz/fuzz_target.h"

namespace heddle::fuzz {

void Run(std::string_view input) {
  const absl::StatusOr<ir::Program> program = ir::Parse(input);
  if (!program.ok()) return;
  if (!ir::Verify(*program).ok()) return;
  const std::string text = ir::Print(*program);
  const absl::StatusOr<ir::Program> again = ir::Parse(text);
  Require(again.ok(), "the text of a verified program parses");
  Require(ir::Print(*again) == text, "a verified program's text round-trips");
  Require(ir::Verify(*again).ok(), "a verified program's text verifies");
  (void)ir::CountFlops(*program);
}

}  // namespace heddle::fuzz
