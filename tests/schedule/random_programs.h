// Random small tensor programs of the shapes that networks are made of.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/space.h"

namespace heddle::schedule {

// Naive loops of one random program: elementwise chains, broadcasts, sums, maxima, matrix products,
// convolutions with padding, depthwise convolutions, pooling, softmax, transposes, each perhaps
// followed by an elementwise epilogue.
absl::StatusOr<ir::Program> RandomProgram(Rng& rng);

}  // namespace heddle::schedule
