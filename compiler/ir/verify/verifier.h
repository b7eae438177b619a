// The executable specification of the loop IR: named rules that check whatever can be checked of
// the global rules in ir.h. Lowering runs it after every pass.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/ir.h"

namespace heddle::ir {

enum class Level {
  kScheduled,  // blocks allowed
  kLowered,    // no blocks
};

// OK, or FailedPrecondition with the rule, the statement and what is wrong with it. Checks:
//   * names are unique and in scope; types and arity; loop and iterator kinds;
//   * blocks store in iterators only; a block that reads the buffer it writes reduces, and stands in
//     plain loops that are bound one to one, in order, to its iterators;
//   * iterator bindings and buffer indices lie within bounds. The analysis uses guards; an index
//     that it cannot bound is an error;
//   * no i64 operation in a binding, an index or a guard overflows, whatever values loop variables and
//     inputs with a range (Buffer.below) have;
//   * inputs are never written, and every output is written;
//   * parallel, vectorized and GPU loops carry no reduction iterator, and their iterations write
//     different elements as far as affine analysis can tell;
//   * GPU nesting: threads inside blocks, at most 1024 iterations of a thread axis, shared memory
//     inside blocks only, no barrier inside a thread loop;
//   * sizes are at most 2^40 elements.
absl::Status Verify(const Program& program, Level level = Level::kScheduled);

}  // namespace heddle::ir
