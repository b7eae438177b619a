// What the files of the compile driver share. Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/driver/compile.h"
#include "compiler/ir/ir.h"
#include "compiler/machine/target_info.h"

namespace heddle::internal {

// The options with what is left open chosen for the target: BlockFor, and its threads.
absl::StatusOr<ModelOptions> ForTarget(ModelOptions options, const Target& target);

// Parses and verifies the text of a workload. InvalidArgument for anything wrong with it.
absl::StatusOr<ir::Program> ParseWorkload(std::string_view workload);

// A scheduled and lowered workload. Buffers keep the names they have in the naive program.
struct LoweredWorkload {
  ir::Program kernel;
  std::optional<ir::Program> prepack;  // see pass/hoist_constants.h; named `symbol`.prepack
  bool winograd = false;               // computed in Winograd's form: tolerance.h
  bool tf32 = false;                   // with f32 rounded to tf32
};

// The naive program under the chosen schedule, lowered, under the name `symbol`. Errors as
// BuildCandidate.
absl::StatusOr<LoweredWorkload> ScheduleAndLower(const ir::Program& naive, ScheduleChoice choice,
                                                 std::string_view trace,
                                                 const machine::TargetInfo& target,
                                                 const std::string& symbol);

// "naive", "default" or "tuned", as modules name it.
std::string_view Name(ScheduleChoice choice);

}  // namespace heddle::internal
