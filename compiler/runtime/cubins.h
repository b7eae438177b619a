// GPU code: one cubin, or several in one string, as separate compilations of the kernels of a
// module give them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::runtime {

// One cubin stays as it is. Several get a header with their sizes.
std::string JoinCubins(const std::vector<std::string>& cubins);

// The parts of what JoinCubins gave, which point into `code`. They are not checked. InvalidArgument:
// the header does not fit the rest.
absl::StatusOr<std::vector<std::string_view>> SplitCubins(std::string_view code);

}  // namespace heddle::runtime
