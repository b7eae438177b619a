#include "compiler/ir/workload.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verify/verifier.h"

namespace heddle::ir {

absl::StatusOr<Program> ParseWorkload(std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(Program naive, Parse(text));
  if (naive.outputs.empty()) return absl::InvalidArgumentError("malformed workload: no outputs");
  const absl::Status status = Verify(naive);
  if (status.ok()) return naive;
  return absl::InvalidArgumentError(absl::StrCat("malformed workload: ", status.message()));
}

}  // namespace heddle::ir
