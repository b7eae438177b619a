// Random tensor programs of every element type, whose results do not depend on rounding.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/space.h"

namespace heddle::testing {

// Up to three stages on two inputs [n, m] of random types: arithmetic, comparisons, casts,
// selections, divisions by data (zero among it), then perhaps a reduction of the rows. On inputs
// that are multiples of 1/64 in [-1, 1] all float operations are exact, so that a comparison of
// computed values has one right answer whatever contracts, and no i64 overflows. `*any_order` says
// that the order of a reduction does not matter even for NaNs and infinities.
absl::StatusOr<ir::Program> RandomTypedProgram(schedule::Rng& rng, bool* any_order);

}  // namespace heddle::testing
