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
#include "compiler/schedule/rules/rules.h"

namespace heddle::schedule {

// One thread for each element, or for a few neighbours: injective stages, and reductions that reuse
// nothing, whose sum stays in a register.
std::unique_ptr<Rule> MakeGpuPlain(const ReductionStage& stage, int axis,
                                   const machine::TargetInfo& target, Knobs& knobs);
// A tile of the result for each block, spread over registers of its threads; operands come through
// shared memory. Products and convolutions.
std::unique_ptr<Rule> MakeGpuTiled(const ReductionStage& stage, int axis,
                                   const machine::TargetInfo& target, Knobs& knobs);
// Products whose tiles of 16 x 8 are made by tensor cores; null where operands are not f16, bf16
// or, if the target allows tf32, f32, or extents do not fit.
std::unique_ptr<Rule> MakeGpuTensor(const ReductionStage& stage, int axis,
                                    const machine::TargetInfo& target, Knobs& knobs);
// One block for each result: its threads sum parts, then fewer threads sum those.
std::unique_ptr<Rule> MakeGpuRow(const ReductionStage& stage, int axis,
                                 const machine::TargetInfo& target, Knobs& knobs);

// The rules that may fit a stage, best first; with those for tensor cores if so asked.
using GpuRuleMaker = std::unique_ptr<Rule> (*)(const ReductionStage&, int,
                                               const machine::TargetInfo&, Knobs&);
std::vector<GpuRuleMaker> GpuRulesFor(const ReductionStage& stage,
                                      const machine::TargetInfo& target, bool tensor);

// What a reduction loads.
struct GpuOperand {
  std::string buffer;
  int64_t element_bytes = 4;
  int64_t row = 1;  // extent of its last dimension
};
std::vector<GpuOperand> OperandsOf(const ir::Block& block);
// Brings what a step (one iteration of loop `step`) reads of the operand into shared memory, by all
// threads, up to `lanes` neighbours at a time; or, if not `shared`, leaves the reading to each
// thread. An injective block that makes the operand is computed there. Adds to `bytes` what that
// takes.
absl::Status FetchOperand(const ReductionStage& stage, const GpuOperand& operand, bool shared,
                          const std::string& step, int64_t threads, int64_t lanes, int64_t* bytes,
                          Recorder& out);
// ResourceExhausted where a block of threads asks for more shared memory than there is.
absl::Status CheckShared(int64_t bytes, const machine::TargetInfo& target);

// Where results are few and sums long, sums may be made in parts, each by blocks of its own; then a
// thread for each result adds up its parts. The numbers of parts to choose from: those that divide
// `pieces`, 1 first.
std::vector<int64_t> PartsOf(const ReductionStage& stage, int64_t pieces,
                             const machine::TargetInfo& target);
// Cuts the sums along a reduce axis, whose extent `parts` divides. The stage of the parts: they are
// one more spatial axis, the last, and it has no epilogue.
absl::StatusOr<ReductionStage> CutSums(const ReductionStage& stage, size_t axis, int64_t parts,
                                       Recorder& out);
// Adds up the parts once they are scheduled, in the block that keeps the name and the epilogue.
absl::Status AddUpParts(const ReductionStage& stage, const machine::TargetInfo& target,
                        Recorder& out);

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
