// A workload: the canonical text of one fused operator's naive program, as tasks and records name
// it.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// The program of the text, verified. InvalidArgument for anything that is wrong with the text.
absl::StatusOr<Program> ParseWorkload(std::string_view text);

}  // namespace heddle::ir
