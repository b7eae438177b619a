// The circumstances of a measurement, read from the host.
#pragma once

#include <vector>

#include "proto/common.pb.h"

namespace heddle::worker {

// The clock of the first core, the hottest sensor, the load (each 0 if unknown), and the toolchain.
v1::Evidence CollectEvidence(const std::vector<int>& cores);

}  // namespace heddle::worker
