// Takes away what a process may do because of who it is.
#pragma once

#include <sys/types.h>

#include "absl/status/status.h"

namespace heddle::worker::confine {

// Makes the process run as this user and group, without supplementary groups and capabilities.
// PermissionDenied: it is not root. InvalidArgument: the user is root, or is not known in this
// namespace.
absl::Status DropUser(uid_t uid, gid_t gid);

// Gives up all capabilities, those of root too, which is then a user like any other that owns many
// files.
absl::Status DropCapabilities();

}  // namespace heddle::worker::confine
