// Steps that several rules take. Internal to this folder.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/rules/recorder.h"
#include "compiler/schedule/rules/stage.h"

namespace heddle::schedule {

// Keeps the accumulators of a reduction in registers. Returns the block that takes the result from
// there: the epilogue, or a copy if there is none.
absl::StatusOr<std::string> Accumulate(const Stage& stage, Recorder& out);

// Where a producer is computed.
struct ProducerPlace {
  enum Kind { kInlined, kAtRoot, kInLoop };
  Kind kind = kInlined;
  Loop loop;  // of kInLoop
};

// Puts each producer of the stage into its place. At the root it is a plain stage. In a loop it
// computes what an iteration reads; its last loop is vectorized by the largest suitable power of
// two that divides it.
absl::Status PlaceProducers(const Stage& stage, const std::vector<ProducerPlace>& places,
                            const machine::TargetInfo& target, Recorder& out);
absl::Status InlineProducers(const Stage& stage, Recorder& out);

// Fuses directly nested loops and makes the result parallel. Does nothing if there are none.
absl::Status FuseParallel(const std::vector<Loop>& loops, Recorder& out);

absl::Status UnrollAll(const std::vector<Loop>& loops, Recorder& out);
// Vectorizes the loop unless it has one iteration.
absl::Status VectorizeLanes(const Loop& loop, Recorder& out);

// Unrolls the loops of a register tile and vectorizes its lanes. Does the same for the block that
// takes the tile out: `copy` are that block's loops, which repeat `tile` and `lanes`.
absl::Status UnrollTile(const std::vector<Loop>& tile, const Loop& lanes,
                        const std::vector<Loop>& copy, Recorder& out);

// The loops of all parts, one part after another.
std::vector<Loop> Concat(std::initializer_list<absl::Span<const Loop>> parts);

}  // namespace heddle::schedule
