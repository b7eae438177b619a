// The tiers of the predictive policy (see the head of predictive.cc), each packed into one number.
#pragma once

#include <cstdint>

namespace heddle::scheduler {

// How urgent a tier is, most urgent first.
enum Urgency : int64_t { kOverdue, kDeadline, kCriticalPath, kShared, kOrdinary };
// How a stage affects the supply of the CPU slots and devices: see rule 5 of predictive.cc. kUser
// is an import or compile; the last two are profile stages of jobs that need more CPU time or more
// device time.
enum Path : int64_t { kUser, kBuild, kPropose, kUpdate, kCpuHeavy, kDeviceHeavy };

struct Tier {
  int64_t priority, urgency, lane, path;
  // 6 bits of priority (0 is highest), 3 of urgency, 20 of lane and 3 of path.
  int64_t Pack() const { return ((priority * 8 + urgency) << 20 | lane) << 3 | path; }
  static Tier Unpack(int64_t packed) {
    Tier tier{};
    tier.path = packed & 7;
    tier.lane = packed >> 3 & 0xfffff;
    packed >>= 23;
    tier.urgency = packed % 8;
    tier.priority = packed / 8;
    return tier;
  }
};

}  // namespace heddle::scheduler
