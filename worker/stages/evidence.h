// The circumstances of a measurement, read from the host.
#pragma once

#include <vector>

#include "proto/common.pb.h"

namespace heddle::worker {

// Clock of the first core, the hottest sensor, the load; 0 where the host does not tell. Toolchain,
// too.
v1::Evidence CollectEvidence(const std::vector<int>& cores);

}  // namespace heddle::worker
