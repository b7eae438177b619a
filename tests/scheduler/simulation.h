// A fake world under virtual time that drives the very dispatcher, job book and store interface of
// production: workers that die, leases that are lost or refused, messages that come twice or late,
// pauses, cancellations, restarts that forget what was not durable yet. Everything follows from the
// seed.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::scheduler {

// A fault put between dispatcher and world, to see that the checks see it.
enum class Planted { kNone, kDropClose, kDropFeed, kRecordTwice, kWrongSlot, kStartTwice };

struct SimulationOptions {
  uint64_t seed = 0;
  Planted planted = Planted::kNone;
  bool faults = true;
};

struct SimulationResult {
  std::string violation;  // empty: every promise was kept
  int64_t steps = 0;
  int64_t trials = 0;
  int64_t restarts = 0;
  int64_t infrastructure_faults = 0;
  int64_t lost = 0;
  int64_t done_jobs = 0;
  uint64_t fingerprint = 0;  // of all decisions, to show that the same seed repeats
};

SimulationResult Simulate(const SimulationOptions& options);

}  // namespace heddle::scheduler
