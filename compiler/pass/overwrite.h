// Which outputs of a lowered program may lie in the memory of an input.
#pragma once

#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::pass {

struct Overwrite {
  int output = 0;  // indices into the program's outputs and inputs
  int input = 0;
};

// Every pair for which the program gives the same result when both are one buffer. The proof: both
// have one shape and type; the output is never read, so it holds no partial results; only the
// stores to that output read the input, each at the element that it writes; and these stores run no
// more often than the output has elements. Since every element is written, each is written once,
// after the only time that it is read. Empty for a program with blocks. Each pair holds by itself:
// no output takes two inputs.
std::vector<Overwrite> FindOverwrites(const ir::Program& lowered);

}  // namespace heddle::pass
