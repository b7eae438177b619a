#include "compiler/pass/lower.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/ir/analysis/simplify.h"
#include "compiler/ir/verify/verifier.h"
#include "compiler/pass/compact_buffers.h"
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
#include "compiler/pass/widen_halves.h"

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

  bool RunsFor(machine::Execution execution) const {
    return where == kBoth || where == (execution == machine::Execution::kGrid ? kGpu : kCpu);
  }
};

constexpr Pass kPasses[] = {
    {"lower_blocks", Plain<LowerBlocks>, false, Pass::kBoth},
    // Before the passes that look at vectors, because these are then vectors of f32.
    {"widen_halves", Plain<WidenHalves>, true, Pass::kCpu},
    // After lower_blocks, indices in loop variables show which part of an allocation the loops use.
    {"compact_buffers", Plain<CompactBuffers>, true, Pass::kBoth},
    {"lift_lane_buffers", Plain<LiftLaneBuffers>, true, Pass::kCpu},
    {"simplify", Plain<Simplify>, true, Pass::kBoth},
    {"pad_shared", PadShared, true, Pass::kGpu},
    {"overlap_fetches", OverlapFetches, true, Pass::kGpu},
    {"insert_barriers", Plain<InsertBarriers>, false, Pass::kGpu},
    // Before unrolling, while a guard is still one condition over a loop variable.
    {"partition_loops", Plain<PartitionLoops>, true, Pass::kCpu},
    {"widen_copies", WidenCopies, true, Pass::kCpu},
    // Before unrolling, while the reads of a buffer in a loop are still one load in loop variables.
    {"prefetch_ahead", PrefetchAhead, true, Pass::kCpu},
    {"prefetch_epilogue", PrefetchEpilogue, true, Pass::kCpu},
    {"unroll", Plain<Unroll>, true, Pass::kCpu},
};

}  // namespace

absl::StatusOr<Program> Lower(const Program& scheduled, const LowerOptions& options) {
  Program program = scheduled;
  for (const Pass& pass : kPasses) {
    if (!pass.RunsFor(options.target.execution)) continue;
    if (pass.optional && options.disabled.count(pass.name)) continue;
    auto start = std::chrono::steady_clock::now();
    program = pass.run(program, options.target);
    if (program.body == nullptr) {
      return absl::InternalError(
          absl::StrCat("after pass ", pass.name,
                       ": the program has no body; an empty one is an empty sequence"));
    }
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

std::vector<std::string> OptionalPasses(machine::Execution execution) {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) {
    if (pass.optional && pass.RunsFor(execution)) names.push_back(pass.name);
  }
  return names;
}

}  // namespace heddle::pass
