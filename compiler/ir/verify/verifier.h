// The executable specification of the loop IR: every global rule of ir.h that can be checked is
// checked here, by a flat list of named rules. Passes run it after every step.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

enum class Level {
  kScheduled,  // blocks allowed
  kLowered,    // no blocks
};

// OK, or FailedPrecondition naming the rule, the statement and what is wrong with it. Checks at
// least: names unique and in scope; types and arity; loop and iterator kinds; stores in iterators
// only; iterator bindings and buffer indices within bounds (interval analysis that uses guards; an
// index the analysis cannot bound is an error); inputs never written; every output written;
// parallel, vectorized and GPU loops carry no reduction iterator and write disjoint elements (as
// far as affine analysis can tell); GPU nesting (threads inside blocks, at most 1024 iterations
// of a thread axis, shared memory only inside blocks, no barrier inside a thread loop); sizes
// below 2^40 elements.
absl::Status Verify(const Program& program, Level level = Level::kScheduled);

}  // namespace heddle::ir
