// The rules on stages, one file each; rule_table.cc lists them. Internal to this folder.
//
// A rule consists of two functions. Matches says whether it applies to a stage. Make constructs the
// rule, which declares its decisions; it is called only if Matches is true.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/rules/recorder.h"
#include "compiler/schedule/rules/rule.h"
#include "compiler/schedule/rules/stage.h"

namespace heddle::schedule {

// A stage, the target it is for, and the form of the program it stands in (forms.h).
struct StageSite {
  const Stage& stage;
  const machine::TargetInfo& target;
  std::string_view form;
};

// ---- CPU: one register holds a vector, loops are distributed among threads ----

// Reductions whose only contiguous axis is reduced: one partial result per vector lane along it.
bool MatchesLanes(const StageSite& site);
std::unique_ptr<Rule> MakeLanes(const StageSite& site, Knobs& knobs);

// Reductions over a window that slides along rows or columns, one window for each vector lane.
// Neighbouring windows share registers. Every load is contiguous along the vector axis, and some
// index moves with both a spatial and a reduce axis.
bool MatchesWindow(const StageSite& site);
std::unique_ptr<Rule> MakeWindow(const StageSite& site, Knobs& knobs);

// Reductions of what a walk finds (Stage::walk), as in decision trees: the places of all steps stay in registers, for a
// tile of records or of trees.
bool MatchesWalk(const StageSite& site);
std::unique_ptr<Rule> MakeWalk(const StageSite& site, Knobs& knobs);

// Multi-level tiling around an accumulator tile in registers, vectorized along a spatial axis.
bool MatchesTiled(const StageSite& site);
std::unique_ptr<Rule> MakeTiled(const StageSite& site, Knobs& knobs);

// An injective stage, or a reduction that no other rule takes (one without a vector axis, or whose
// preferred tiles are refused): outer loops parallel, the contiguous axis vectorized.
bool MatchesPlain(const StageSite& site);
std::unique_ptr<Rule> MakePlain(const StageSite& site, Knobs& knobs);
// The steps of a plain stage with its preferred decisions.
absl::Status ApplyPlain(const StageView& view, const ir::Block& block,
                        const machine::TargetInfo& target, Recorder& out);

// ---- GPU: all threads of a block lie along threadIdx.x, all blocks along blockIdx.x ----
//
// Loops are fused, then bound. Thread loops stand inside the loops over the reduction, so that a
// tile is fetched by all threads, used by all, and fetched again, with the barriers that lowering
// puts between.

// Reductions of what a walk finds: a thread for each record, or several that share its trees. The places of all steps and the
// sums stay in registers.
bool MatchesGpuWalk(const StageSite& site);
std::unique_ptr<Rule> MakeGpuWalk(const StageSite& site, Knobs& knobs);

// Products whose tiles of 16 x 8 are made by tensor cores: of f16, bf16 or, if the target allows
// tf32, f32, where tiles divide the extents.
bool MatchesGpuTensor(const StageSite& site);
std::unique_ptr<Rule> MakeGpuTensor(const StageSite& site, Knobs& knobs);

// A tile of the result for each block, spread over registers of its threads; operands come through
// shared memory. Products and convolutions.
bool MatchesGpuTiled(const StageSite& site);
std::unique_ptr<Rule> MakeGpuTiled(const StageSite& site, Knobs& knobs);

// One block for each result: its threads sum parts, then fewer threads sum those.
bool MatchesGpuRow(const StageSite& site);
std::unique_ptr<Rule> MakeGpuRow(const StageSite& site, Knobs& knobs);

// One thread for each element, or for a few neighbours: injective stages, and reductions that reuse
// nothing, whose sum stays in a register.
bool MatchesGpuPlain(const StageSite& site);
std::unique_ptr<Rule> MakeGpuPlain(const StageSite& site, Knobs& knobs);

}  // namespace heddle::schedule
