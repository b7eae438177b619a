// Checks imported records by what a comparison of modules measures.
//
// An imported record says how fast its kernel is, and nobody here has measured that. If it is the
// fastest of its task, the module gets its kernel, and the comparison times it within the module, in
// turns with the default one (compiler/measure/in_turns.h). The two ways of timing differ: a record is
// of repeated calls with cold caches, and a module's caches are warm. So a kernel in a module is as a
// rule no slower than its record says. A record is broken if its kernel is slower all the same, beyond
// what explains a difference between machines of one device key and moments of one machine.
#pragma once

#include <string>
#include <vector>

#include "proto/jobs.pb.h"
#include "proto/worker.pb.h"
#include "scheduler/core/events.h"

namespace heddle::scheduler {

// A kernel that the compared module has by an imported record.
struct ClaimedKernel {
  v1::Claim claim;
  int uses = 1;           // in one inference
  double untuned_ns = 0;  // median of the default schedule, by a record of the device; 0: unknown
};

// A kernel may take so many times as long as its record says. Two covers caches, clocks and units of
// one device key; what is within that costs the module less than what tuning gains as a rule, and a
// kernel that is not faster than the default one is taken back in any case.
inline constexpr double kClaimMargin = 2;
// Without a record of the default schedule, nothing tells whether the device is slower now than when
// records are made.
inline constexpr double kLooseClaimMargin = 4;
// What a call takes besides, at most: reading the clock, and waking the threads. A record spreads that
// over many calls.
inline constexpr double kClaimCallNs = 1000;

// The records that the comparison breaks. A kernel counts with the least time that the comparison does
// not rule out (the end of Gain's interval). Where the default schedule is slower in the module than
// its own record says, so may the kernel be. `job` is named in the reasons.
std::vector<BrokenRecord> FindBroken(const v1::CompareResult& result,
                                     const std::vector<ClaimedKernel>& kernels,
                                     const std::string& job);

}  // namespace heddle::scheduler
