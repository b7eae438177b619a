// CPU targets beside the machine that this process runs on. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/target.h"
#include "compiler/machine/target_info.h"

namespace heddle::codegen {

// Backend's functions of the same meaning. A CPU `native` becomes this machine's CPU name and the
// features in which the machine differs from what that name stands for. Cache sizes are this
// machine's if the target is, else defaults.
absl::StatusOr<Target> ResolveCpu(const Target& target);
absl::StatusOr<machine::TargetInfo> DescribeCpu(const Target& resolved);
bool CpuRunsHere(const Target& resolved);
// By LLVM's names.
std::vector<std::string> CpuFeatures(const Target& resolved);

}  // namespace heddle::codegen
