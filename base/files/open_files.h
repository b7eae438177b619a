// Raises the number of files and connections that this process may have open at a time.
#pragma once

#include <cstddef>

namespace heddle {

// For daemons that hold a connection for each of many peers; the usual limit of a shell is 1024.
inline constexpr size_t kFilesOfDaemon = 65'536;

// Raises the limit to `wanted`, or as far as the system lets this process; never lowers it.
void RaiseOpenFiles(size_t wanted);

}  // namespace heddle
