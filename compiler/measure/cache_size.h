// How large a cache of this machine is.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// Bytes of the third-level cache that the first core can use, as Linux describes it below `folder` (the figure that lscpu
// prints for one instance); 0: it has none, or none is described. sysconf is not asked: on virtual machines of AMD it
// multiplies the cache by a number of threads that the machine does not have (glibc 2.36: 320 MiB for 32 MiB).
int64_t ThirdLevelCacheBytes(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace heddle
