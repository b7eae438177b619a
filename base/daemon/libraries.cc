#include "base/daemon/libraries.h"

#include <cstdlib>

#include "absl/synchronization/mutex.h"

namespace heddle {

void SetUpLibraries() {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace heddle
