// Folders in which the dynamic loader looks for libraries, besides those of the system.
#pragma once

#include <string>
#include <vector>

namespace heddle::worker::confine {

// The folders that a configuration of the loader names, such as /etc/ld.so.conf, and the files that it
// includes. At most 256 of them, from at most 64 files; what cannot be read names none.
std::vector<std::string> LoaderFolders(const std::string& configuration);

}  // namespace heddle::worker::confine
