// What one more slot or another policy would do to the jobs that wait and run now.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "scheduler/page/source.h"

namespace heddle::scheduler {

// Simulates the queue as it is, with one more device slot of each of the first three device keys, with
// one more CPU slot, and under each other policy. A new slot is on a host of its own and as fast as the
// first of its kind. FailedPrecondition: there is nothing to simulate, or a simulation was given up
// because it took too many steps. `made_unix_ns` and `took_s` of the answer are not set.
// `go_on` is asked before each simulation; Cancelled once it is false.
absl::StatusOr<views::WhatIf> SimulateQueue(const WhatIfQuestion& question,
                                            const std::function<bool()>& go_on);

}  // namespace heddle::scheduler
