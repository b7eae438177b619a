// What LLVM knows of a target.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/target.h"

namespace heddle::codegen {

// Replaces `native` by this machine's CPU name and the features in which this machine differs from
// that name, checks that CPU name, features and triple exist (InvalidArgument listing near names),
// and returns the canonical target.
absl::StatusOr<ir::Target> ResolveTarget(const ir::Target& target);

// Vector width, registers and cache sizes for schedules. Caches are those of this machine when the
// target is this machine's, else defaults.
absl::StatusOr<ir::TargetInfo> DescribeTarget(const ir::Target& resolved);

// True when code for `target` can run on this machine (same architecture, every feature present).
bool RunsHere(const ir::Target& resolved);

// LLVM's names of the features code for `target` may use, sorted; of those that machines report
// about themselves. Empty for a target of another architecture.
std::vector<std::string> TargetFeatures(const ir::Target& resolved);

// All CPU names for this machine's architecture.
std::vector<std::string> KnownCpus();

}  // namespace heddle::codegen
