// A process's own view of the host: the files of a list and nothing else, a network without
// interfaces, and no shared memory or message queues of others (namespaces).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/confine/paths.h"

namespace heddle::worker::confine {

// Moves the calling process, which must have one thread, into such a view. `root` is an existing
// empty folder on which the new root is mounted; nobody outside sees that. `folder` becomes the working
// directory; it must be "/", or lie on the way to one of the paths. What the list lets be read only is
// mounted so. Unless it is root, the process gets a user namespace with all capabilities in it, which
// it should give up (DropCapabilities).
//
// Any error means that the process is in no usable state and should end.
absl::Status EnterView(const std::vector<PathRule>& paths, const std::string& root,
                       const std::string& folder);

}  // namespace heddle::worker::confine
