// Which outputs of a lowered program may lie in the memory of an input.
#pragma once

#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::pass {

struct Overwrite {
  int output = 0;  // indices into the program's outputs and inputs
  int input = 0;
};

// Every pair for which the program, its statements in order, gives the same result when both are
// one buffer. Proven so: they have one shape and type; the output is never read, so it holds no
// partial results; the input is read by nothing but the stores to that output, each at the element
// it writes; and these stores run no more often than the output has elements. Since every element
// is written, each is written once, after the only time that it is read. Empty for a program with
// blocks. Each pair holds by itself: two inputs never lie in one output.
std::vector<Overwrite> FindOverwrites(const ir::Program& lowered);

}  // namespace heddle::pass
