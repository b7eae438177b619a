// The instruction sets of this machine. A module that needs others is refused with a message
// instead of ending in SIGILL.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::runtime {

// Whether this check knows the feature. It knows LLVM's names of x86-64 extensions that add
// instructions ("avx512f"), but not features that only tune code ("fast-gather"). A wrong
// architecture is detected when code is loaded.
bool IsKnownCpuFeature(std::string_view feature);

// The known features among `features` that this machine lacks, in the given order.
std::vector<std::string> MissingCpuFeatures(const std::vector<std::string>& features);

}  // namespace heddle::runtime
