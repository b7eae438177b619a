// Cursors: what a primitive made, told to whoever schedules on.
//
// Names of loops and blocks are unique in a program, and a primitive never renames what it keeps. A
// cursor therefore stays good until a primitive takes its loop or block away: split and fuse take
// the loops they are given, compute_at and reverse_compute_at the loops that were around the block
// alone, inlining the block.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"

namespace heddle::schedule {

struct Loop {
  std::string name;
  int64_t extent = 1;
  bool operator==(const Loop&) const = default;
};

// A new block and the loops around it, from outside, as far as they are new too.
struct NewBlock {
  std::string name;
  std::vector<Loop> loops;
};

// What a primitive gives back. primitives.h says under `makes:` what `loops` and `blocks` hold.
struct Rewritten {
  Rewritten() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): most primitives make nothing new.
  Rewritten(ir::Program rewritten, std::vector<Loop> new_loops = {},
            std::vector<NewBlock> new_blocks = {})
      : program(std::move(rewritten)), loops(std::move(new_loops)), blocks(std::move(new_blocks)) {}

  ir::Program program;
  std::vector<Loop> loops;
  std::vector<NewBlock> blocks;
};

}  // namespace heddle::schedule
