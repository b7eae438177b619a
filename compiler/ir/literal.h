// Number literals of the text form.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

// The constant that a token ("3", "3i32", "3.0", "3.0f64") means, negated if it followed a minus
// sign. InvalidArgument with a short message if its type suffix is wrong or the number does not
// fit.
absl::StatusOr<Expr> Literal(std::string_view text, bool negative);

}  // namespace heddle::ir
