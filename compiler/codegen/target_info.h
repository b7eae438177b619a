// What LLVM knows of a target.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/machine/target_info.h"

namespace heddle::codegen {

// Replaces `native` by this machine's CPU name and the features in which this machine differs from
// that name, checks that CPU name, features and triple exist (InvalidArgument listing near names),
// and returns the canonical target.
absl::StatusOr<Target> ResolveTarget(const Target& target);

// What is known of the target's machine: vectors from LLVM, limits of a GPU from the table of
// architectures, caches of this machine if the target is its CPU, else the defaults of TargetInfo.
absl::StatusOr<machine::TargetInfo> DescribeTarget(const Target& resolved);

// True when code for `target` can run on this machine (same architecture, every feature present).
bool RunsHere(const Target& resolved);

// LLVM's names of the features code for `target` may use, sorted; of those that machines report
// about themselves. Empty for a target of another architecture.
std::vector<std::string> TargetFeatures(const Target& resolved);

// All CPU names for this machine's architecture.
std::vector<std::string> KnownCpus();

}  // namespace heddle::codegen
