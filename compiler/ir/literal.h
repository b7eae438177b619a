// Numbers as the text form writes them.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// The number of a token ("3", "3i32", "3.0", "3.0f64"), negated if it stood behind a sign.
// InvalidArgument in a few words if it has no such type or does not fit.
absl::StatusOr<Expr> Literal(std::string_view text, bool negative);

}  // namespace heddle::ir
