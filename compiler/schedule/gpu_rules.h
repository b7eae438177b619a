// The rules of GPU spaces, and the pieces they share. Internal to this folder.
//
// All threads of a block lie along threadIdx.x, all blocks along blockIdx.x: loops are fused, then
// bound. Thread loops stand inside the loops over the reduction, so that a tile is fetched by all
// threads, used by all, and fetched again, with the barriers that lowering puts between.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/schedule/rules.h"

namespace heddle::schedule {

// One thread for each element, or for a few neighbours: injective stages, and reductions that reuse
// nothing, whose sum stays in a register.
std::unique_ptr<Rule> MakeGpuPlain(const ReductionStage& stage, int axis,
                                   const ir::TargetInfo& target, Knobs& knobs);
// A tile of the result for each block, spread over registers of its threads; operands come through
// shared memory. Products and convolutions.
std::unique_ptr<Rule> MakeGpuTiled(const ReductionStage& stage, int axis,
                                   const ir::TargetInfo& target, Knobs& knobs);
// One block for each result: its threads sum parts, then fewer threads sum those.
std::unique_ptr<Rule> MakeGpuRow(const ReductionStage& stage, int axis,
                                 const ir::TargetInfo& target, Knobs& knobs);

// The rules that fit a stage, best first.
using GpuRuleMaker = std::unique_ptr<Rule> (*)(const ReductionStage&, int, const ir::TargetInfo&,
                                               Knobs&);
std::vector<GpuRuleMaker> GpuRulesFor(const ReductionStage& stage, const ir::TargetInfo& target);

// Fuses the loops, which stand one in the other; the name of the result. One loop stays as it is.
absl::StatusOr<std::string> FuseAll(const std::vector<std::string>& loops, Recorder& out);
// The loop's extent, 0 if there is none.
int64_t ExtentOf(const Recorder& out, const std::string& loop);
// Binds a serial nest of one block to the threads of a GPU block: fused, `lanes` neighbours
// (fewer where they do not divide it) for each of at most `threads` threads; vectorized if
// `vectorize`, else unrolled.
absl::Status SpreadOverThreads(const std::vector<std::string>& loops, int64_t threads,
                               int64_t lanes, bool vectorize, Recorder& out);

}  // namespace heddle::schedule
