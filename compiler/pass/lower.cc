#include "compiler/pass/lower.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "compiler/ir/simplify.h"
#include "compiler/ir/status_macros.h"
#include "compiler/ir/verifier.h"
#include "compiler/pass/compact_buffers.h"
#include "compiler/pass/lift_lane_buffers.h"
#include "compiler/pass/lower_blocks.h"
#include "compiler/pass/partition_loops.h"
#include "compiler/pass/prefetch_ahead.h"
#include "compiler/pass/prefetch_epilogue.h"
#include "compiler/pass/unroll.h"

namespace heddle::pass {

namespace {

using ir::Program;

Program Simplify(const Program& program) {
  Program result = program;
  result.body = ir::Simplify(program.body, /*keep_loops=*/false);
  return result;
}

struct Pass {
  const char* name;
  Program (*run)(const Program&);
  bool optional;
};

constexpr Pass kPasses[] = {
    {"lower_blocks", LowerBlocks, false},
    // Indices in loop variables show what an allocation inside loops is used for.
    {"compact_buffers", CompactBuffers, true},
    {"lift_lane_buffers", LiftLaneBuffers, true},
    {"simplify", Simplify, true},
    // Before unrolling, while a guard is still one condition over a loop variable.
    {"partition_loops", PartitionLoops, true},
    // While what a loop reads of a buffer is still one load in loop variables.
    {"prefetch_ahead", PrefetchAhead, true},
    {"prefetch_epilogue", PrefetchEpilogue, true},
    {"unroll", Unroll, true},
};

}  // namespace

absl::StatusOr<Program> Lower(const Program& scheduled, const LowerOptions& options) {
  Program program = scheduled;
  for (const Pass& pass : kPasses) {
    if (pass.optional && options.disabled.count(pass.name)) continue;
    auto start = std::chrono::steady_clock::now();
    program = pass.run(program);
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
