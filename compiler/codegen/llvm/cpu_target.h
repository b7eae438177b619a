// CPU targets, compared with the machine that this process runs on. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/vocabulary/target.h"
#include "compiler/machine/target_info.h"

namespace heddle::codegen {

// The functions of Backend with the same names. A CPU `native` becomes this machine's CPU name,
// plus the features in which the machine differs from that name's definition. Cache sizes are this
// machine's if the target is this machine. What is not known comes from the table of CPU families
// (machine/cpu_family.h), or is a default.
absl::StatusOr<Target> ResolveCpu(const Target& target);
absl::StatusOr<machine::TargetInfo> DescribeCpu(const Target& resolved);
bool CpuRunsHere(const Target& resolved);
// Uses LLVM's names.
std::vector<std::string> CpuFeatures(const Target& resolved);

}  // namespace heddle::codegen
