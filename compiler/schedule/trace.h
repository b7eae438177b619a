// A trace: the ordered list of steps that turns a naive program into a scheduled one. Steps are
// small comparable values without pointers. The text form replays to the same program.
//
// Text: one step a line, words separated by blanks, e.g.
//   split conv2d.h 4 7 2
//   reorder conv2d.h.0 conv2d.w.0 conv2d.h.1
//   compute_at pad conv2d.h.0
//   cache_write conv2d local
//   vectorize conv2d.c.2
//   bind conv2d.h.0 blockIdx.x
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/cursor.h"

namespace heddle::schedule {

enum class Primitive : uint8_t {
  kSplit,
  kFuse,
  kReorder,
  kComputeAt,
  kReverseComputeAt,
  kComputeInline,
  kReverseComputeInline,
  kCacheRead,
  kCacheWrite,
  kDecomposeReduction,
  kRfactor,
  kParallel,
  kVectorize,
  kUnroll,
  kBind,
  kSetScope,
  kPack,
  kWinograd,
  kTf32,
  kTensorize,
};

struct Step {
  Primitive primitive;
  std::vector<std::string>
      names;  // loops, blocks, buffers, scope or axis words, in the primitive's argument order
  std::vector<int64_t> ints;  // factors
  bool operator==(const Step&) const = default;
};

struct Trace {
  std::vector<Step> steps;
  bool operator==(const Trace&) const = default;
};

std::string ToText(const Trace& trace);
absl::StatusOr<Trace> ParseTrace(std::string_view text);  // InvalidArgument with the line number

absl::StatusOr<Rewritten> ApplyStep(const ir::Program& program, const Step& step);
// The error of a trace's step, with its number counted from 1: "step 3 `split i 4 2`: ..". `index`
// counts from 0.
absl::Status StepError(size_t index, const Step& step, const absl::Status& error);
// Applies every step in order; StepError of the first that fails.
absl::StatusOr<ir::Program> Replay(const ir::Program& naive, const Trace& trace);

}  // namespace heddle::schedule
