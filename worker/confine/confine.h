// Confines the process of a stage, from inside, before it looks at anything that came from outside.
#pragma once

#include "absl/status/status.h"
#include "worker/confine/mechanisms.h"
#include "worker/confine/policy.h"

namespace heddle::worker::confine {

// Applies the mechanisms of `how` to the calling process for good: namespaces first, which need
// privileges, then the user, Landlock and the filter, which take them away. The process ends with its
// parent, and keeps no capabilities. It must have one thread. Does nothing if `how` has no mechanism.
//
// Any error means that a mechanism which the worker found on this host does not work; the process
// should end.
absl::Status Confine(const Policy& policy, const Confinement& how);

}  // namespace heddle::worker::confine
