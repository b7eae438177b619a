// Results whose size depends on data, such as that of NonZero. Internal to the importer.
//
// The shapes of a graph are fixed. So such a result becomes a tensor of the largest size that it may
// have, and a scalar, computed beside it, tells how many elements along a dimension are meant: the
// dimension has a length. The rest is filling, whose content has no meaning. The extent of a dimension
// with a length is at least two, so that a reshape cannot confuse it with dimensions of one.
//
// Lengths move along with values. NodeImport::Emit asks EmitWithLengths for every operator of the
// graph that gets an operand with lengths. It has one rule for each kind of operator. Where elements
// along such a dimension meet, as in a sum, the filling is first replaced by something that does not
// change the result. What has no rule is refused. A translation that looks at extents itself would
// take the largest size for the real one. Therefore only the ONNX operators that CheckLengths knows
// take operands with lengths.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/onnx/node.h"

namespace heddle::graph {

// Results above so many elements along the dimension that depends on data are refused.
inline constexpr int64_t kLargestBound = int64_t{1} << 24;

// Unsupported, naming the operand and what its size depends on, if the operator of `n` takes no
// operands with lengths, and has one.
void CheckLengths(NodeImport& n);

// As NodeImport::Emit; some operand has lengths.
ValueId EmitWithLengths(NodeImport& n, OpKind kind, std::vector<ValueId> inputs, Attrs attrs);

// `v`, of which only the first `length` elements along the dimension are meant: with a length, or a
// part of v if the length is known. `v` may have lengths already, also in this dimension.
ValueId WithLength(NodeImport& n, ValueId v, int dimension, ValueId length);
// v without the length of this dimension: the filling becomes `fill`.
ValueId Filled(NodeImport& n, ValueId v, int dimension, ValueId fill);
// The extent of a dimension as an i64 scalar, constant unless it has a length.
ValueId ExtentOf(NodeImport& n, ValueId v, int dimension);
// A vector of the extents from dimension `begin` to `end`.
ValueId ExtentsOf(NodeImport& n, ValueId v, int begin, int end);
// Parts [start, start + length) along a dimension of v, which all lie in v; `most` is a bound of
// `length`. Both are i64 scalars.
ValueId Window(NodeImport& n, ValueId v, int dimension, ValueId start, ValueId length,
               int64_t most);

// The numbers 0 .. count - 1 as i64.
ValueId Count(NodeImport& n, int64_t count);
// An i64 scalar.
ValueId Scalar(NodeImport& n, int64_t value);
// An operand of one element as an i64 scalar.
ValueId ScalarOperand(NodeImport& n, int i);

// One extent in an operand that decides a shape: a number, or a length with its bound.
struct Extent {
  int64_t value = 0;
  ValueId length = -1;
};
// The elements of a vector or scalar of integers, as far as import can follow how they are made. An
// element that is not constant is a length if it has a known bound. nullopt: some element is unknown.
std::optional<std::vector<Extent>> Extents(NodeImport& n, ValueId v);
// The extents of operand i, which decides a shape. Unsupported if they are unknown.
std::vector<Extent> ShapeOperand(NodeImport& n, int i);
// Gives the dimensions of v the lengths in `extents`. Its shape has their values.
ValueId WithExtents(NodeImport& n, ValueId v, const std::vector<Extent>& extents);

}  // namespace heddle::graph
