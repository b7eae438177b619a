// The stages of a program, as rules look at them: a block in a naive nest, and the blocks around it
// that go with it. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/access.h"
#include "compiler/schedule/cursor.h"

namespace heddle::schedule {

// A stage and what its rule schedules along with it.
struct Stage {
  StageView view;
  const ir::Block* block = nullptr;    // alive as long as the analysed program
  std::string epilogue;                // empty: a reduction is copied out instead
  std::vector<std::string> producers;  // injective blocks that only this stage reads
  // A walk: injective blocks, the first one first. Each says at which place the next one looks something up, at
  // the same iterators, and nothing else reads it; the last one says so to this stage. They are not among
  // the producers.
  //
  // Blocks that only change the place that the block before them has found, at the same iterators, are steps, too.
  std::vector<std::string> walk;
  bool walk_waits = false;  // a step looks something up at the place that the step before it says
  ir::DType walk_dtype = ir::DType::kI32;  // of the places, if there is a walk
  std::vector<std::string> constants;      // buffers it reads that are known when a module is made
  // All of these: its block, its producers, its walk and its epilogue. Alive as long as `block`.
  std::vector<const ir::Block*> computed;
  bool reads_half = false;  // a producer reads 16-bit floats
  bool alone = false;       // offered without epilogue and producers
  bool constant = false;    // computed when a module is made: may be slow
  // The spatial axis along which vectors fit best, an index into view.spatial; -1 if none
  // does. This axis and lane_axis are -1 in stages offered alone.
  int vector_axis = -1;
  bool vectors_scattered = false;  // some access along it is neither contiguous nor invariant
  // A reduce axis along which every access is contiguous or invariant, or looks an element of a small
  // table up by a number that is accessed so; an index into view.reduce. -1 if there is none.
  int lane_axis = -1;
};

// Whether walks differ along a spatial axis of the stage that reads what Stage::walk finds. Otherwise the axis tells apart
// values that one walk finds.
bool DecidesWalk(const ir::Block& block, const Axis& axis);

// The name of the rule that schedules a block, by block.
using Owners = std::map<std::string, std::string_view>;

// The reductions of a program that nobody owns, in program order. If an injective stage is the only
// reader of a reduction's result, and reads it point by point, it is scheduled with the reduction
// (its epilogue). So are the injective stages that only the reduction reads (its producers).
std::vector<Stage> ReductionsOf(const ir::Program& program, const Owners& owners);
// The other stages that nobody owns, each alone, in program order. Stages that make only one
// element are left out.
std::vector<Stage> StagesLeft(const ir::Program& program, const Owners& owners);

// Lanes of one vector register for elements of this type.
int64_t LanesOf(const machine::TargetInfo& target, ir::DType dtype);

// The product of the extents.
int64_t ElementsOf(const std::vector<Axis>& axes);

inline Loop LoopOf(const Axis& axis) { return {axis.loop, axis.extent}; }
std::vector<Loop> LoopsOf(const std::vector<Axis>& axes);

}  // namespace heddle::schedule
