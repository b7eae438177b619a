// The instruction sets of this machine. A module that needs others is refused with a message
// instead of ending in SIGILL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::runtime {

// True for the names this check understands: LLVM's names of x86-64 extensions that bring
// instructions ("avx512f"). Features that only tune code ("fast-gather") are unknown. A wrong
// architecture is detected when code is loaded.
bool IsKnownCpuFeature(std::string_view feature);

// The known ones among `features` that this machine lacks, in their order.
std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& features);

}  // namespace heddle::runtime
