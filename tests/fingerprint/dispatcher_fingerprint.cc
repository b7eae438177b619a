#include "absl/strings/str_cat.h"
#include "scheduler/sim/world/fuzz.h"
#include "tests/fingerprint/fingerprint.h"

namespace heddle::fingerprint {

absl::Status FingerprintDispatcher(const std::vector<std::string>& policies, uint64_t first_seed,
                                   uint64_t seeds, const Sink& sink) {
  for (const std::string& policy : policies) {
    for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
      for (const bool faults : {false, true}) {
        const absl::StatusOr<sim::WorldResult> world = sim::FuzzSeed(seed, policy, faults);
        if (!world.ok()) return world.status();
        sink(absl::StrCat("decisions ", policy, faults ? " faults " : " quiet ", seed),
             absl::StrCat(world->fingerprint, " steps ", world->steps, " trials ", world->trials,
                          " done ", world->done_jobs, " restarts ", world->restarts, " ",
                          world->violation));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::fingerprint
