// Instruction sets this machine has, so that a module made for a larger CPU ends in a message
// instead of SIGILL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::runtime {

// True for the names this check understands: LLVM's names of x86-64 extensions that bring
// instructions ("avx512f"). Features that only tune code ("fast-gather") are unknown. A machine of
// another architecture is caught when code is loaded.
bool IsKnownCpuFeature(std::string_view feature);

// Those of `features` that are known and that this machine lacks, in their order.
std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& features);

}  // namespace heddle::runtime
