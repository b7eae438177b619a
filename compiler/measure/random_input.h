// The input values that kernels are checked with. Internal to this folder.
#pragma once

#include "base/splitmix.h"
#include "compiler/ir/ir.h"

namespace heddle::internal {

// Fills an input of `program` with floats in [-1, 1) or integers from 1 to 4, so that nothing divides
// by zero and indices stay small. Integers with a range (Buffer::below) are spread over it.
//
// A table that is walked, as the left children of forest_walk are (LinkDimension), gets the children of complete
// trees. Random ones would send a walk anywhere in a tree, and so to memory that no real walk touches so often. The floats
// make about half of all comparisons true, so half of the walks go right.
void FillInput(const ir::Program& program, const ir::Buffer& buffer, void* data, SplitMix& random);

// The dimension in which the elements of the integer input `table` are places of the table itself: an element that was
// read says, perhaps after some arithmetic and through other buffers, where the table is read next. -1: there is none.
int LinkDimension(const ir::Program& program, const ir::Buffer& table);

}  // namespace heddle::internal
