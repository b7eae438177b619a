#include "compiler/pass/lower.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/pass/compact_buffers.h"
#include "compiler/pass/drop_unread.h"
#include "compiler/pass/insert_barriers.h"
#include "compiler/pass/lift_lane_buffers.h"
#include "compiler/pass/lower_blocks.h"
#include "compiler/pass/overlap_fetches.h"
#include "compiler/pass/pad_shared.h"
#include "compiler/pass/partition_loops.h"
#include "compiler/pass/prefetch_ahead.h"
#include "compiler/pass/prefetch_epilogue.h"
#include "compiler/pass/unroll.h"
#include "compiler/pass/widen_copies.h"

namespace heddle::pass {

namespace {

using ir::Program;

template <Program (*run)(const Program&)>
Program Plain(const Program& program, const machine::TargetInfo& /*target*/) {
  return run(program);
}

Program Simplify(const Program& program) {
  Program result = program;
  result.body = ir::Simplify(program.body, /*keep_loops=*/false);
  return result;
}

struct Pass {
  const char* name;
  Program (*run)(const Program&, const machine::TargetInfo&);
  bool optional;
  enum { kBoth, kCpu, kGpu } where;
};

constexpr Pass kPasses[] = {
    {"lower_blocks", Plain<LowerBlocks>, false, Pass::kBoth},
    // Indices in loop variables show what an allocation inside loops is used for.
    {"compact_buffers", Plain<CompactBuffers>, true, Pass::kBoth},
    {"lift_lane_buffers", Plain<LiftLaneBuffers>, true, Pass::kCpu},
    {"simplify", Plain<Simplify>, true, Pass::kBoth},
    // Once decided conditions, and the loads under them, are gone.
    {"drop_unread", Plain<DropUnread>, true, Pass::kCpu},
    {"pad_shared", Plain<PadShared>, true, Pass::kGpu},
    {"overlap_fetches", Plain<OverlapFetches>, true, Pass::kGpu},
    {"insert_barriers", Plain<InsertBarriers>, false, Pass::kGpu},
    // Before unrolling, while a guard is still one condition over a loop variable.
    {"partition_loops", Plain<PartitionLoops>, true, Pass::kCpu},
    {"widen_copies", WidenCopies, true, Pass::kCpu},
    // While what a loop reads of a buffer is still one load in loop variables.
    {"prefetch_ahead", PrefetchAhead, true, Pass::kCpu},
    {"prefetch_epilogue", PrefetchEpilogue, true, Pass::kCpu},
    {"unroll", Plain<Unroll>, true, Pass::kCpu},
};

}  // namespace

absl::StatusOr<Program> Lower(const Program& scheduled, const LowerOptions& options) {
  Program program = scheduled;
  for (const Pass& pass : kPasses) {
    if (pass.where ==
        (options.target.execution == machine::Execution::kGrid ? Pass::kCpu : Pass::kGpu))
      continue;
    if (pass.optional && options.disabled.count(pass.name)) continue;
    auto start = std::chrono::steady_clock::now();
    program = pass.run(program, options.target);
    if (options.observer) {
      std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
      options.observer(pass.name, program, elapsed.count());
    }
    if (!options.verify_each) continue;
    if (absl::Status status = ir::Verify(program, ir::Level::kLowered); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("after pass ", pass.name, ": ",
                                                      std::string(status.message()).c_str()));
    }
  }
  return program;
}

}  // namespace heddle::pass
