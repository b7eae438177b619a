// The groups of the predictive policy (see the head of predictive.cc), packed into one number.
#pragma once

#include <cstdint>

namespace heddle::scheduler {

// What kind of urgency a group of items has.
enum Urgency : int64_t { kOverdue, kDeadline, kLaterDeadline, kCriticalPath, kShared, kOrdinary };
// How soon a stage gives its device work.
enum Path : int64_t { kUser, kBuild, kPropose, kUpdate, kCpuHeavy, kDeviceHeavy };

struct Group {
  int64_t tenant, priority, urgency, lane, path;
  // 24 bits tenant, 6 priority (0 first), 3 urgency, 20 lane, 3 path
  int64_t Pack() const {
    return (((tenant * 64 + priority) * 8 + urgency) << 20 | lane) << 3 | path;
  }
  static Group Unpack(int64_t packed) {
    Group group{};
    group.path = packed & 7;
    group.lane = packed >> 3 & 0xfffff;
    packed >>= 23;
    group.urgency = packed % 8;
    group.priority = packed / 8 % 64;
    group.tenant = packed / 512;
    return group;
  }
};

}  // namespace heddle::scheduler
