// What a stage does on one core: the work by which the rules decide whether it gets a parallel loop. Internal to this
// folder.
#pragma once

#include "absl/types/span.h"
#include "compiler/machine/target_info.h"
#include "compiler/machine/worth_threads.h"
#include "compiler/schedule/rules/stage.h"

namespace heddle::schedule {

// The work of a stage with its producers, its walk and its epilogue, all of which its loops compute. It is an estimate: lanes
// of vectors are full, and what is read in order costs nothing beside its bytes.
machine::CoreWork WorkOf(const Stage& stage, const machine::TargetInfo& target);
// The same of blocks that read each other's results. Each has one instance for each value of its iterators.
machine::CoreWork WorkOf(absl::Span<const ir::Block* const> blocks,
                         const machine::TargetInfo& target);

}  // namespace heddle::schedule
