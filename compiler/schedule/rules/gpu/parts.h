// Sums of GPU reductions, made in parts. Internal to this folder.
//
// Where results are few and sums long, each part is summed by blocks of threads of its own; then a
// thread for each result adds up its parts.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/machine/target_info.h"
#include "compiler/schedule/rules/recorder.h"
#include "compiler/schedule/rules/stage.h"

namespace heddle::schedule {

// The numbers of parts to choose from: those that divide `pieces`, 1 first.
std::vector<int64_t> PartsOf(const Stage& stage, int64_t pieces, const machine::TargetInfo& target);
// Cuts the sums along a reduce axis, whose extent `parts` divides. Returns the stage that makes the
// parts: it has the parts as one more spatial axis, the last, and no epilogue.
absl::StatusOr<Stage> CutSums(const Stage& stage, size_t axis, int64_t parts, Recorder& out);
// Adds up the parts once they are scheduled, in the block that keeps the name and the epilogue.
absl::Status AddUpParts(const Stage& stage, const machine::TargetInfo& target, Recorder& out);

}  // namespace heddle::schedule
