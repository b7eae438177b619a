#include "scheduler/sim/scenario.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "base/vocabulary/target.h"
#include "scheduler/core/slot_index.h"
#include "scheduler/sim/chance.h"

namespace heddle::sim {

double Distribution::Draw(uint64_t key, uint64_t index) const {
  const uint64_t word = Mix({key, index});
  switch (kind) {
    case kConstant:
      return a;
    case kUniform:
      return a + (b - a) * Unit(word);
    case kLognormal: {
      // Mean a and standard deviation a * b: sigma^2 = ln(1 + b^2), mu = ln a - sigma^2 / 2.
      const double variance = std::log1p(b * b);
      return a * std::exp(std::sqrt(variance) * Normal(word) - variance / 2);
    }
    case kRecorded:
      return recorded[index % recorded.size()];
  }
  return a;
}

double Distribution::Mean() const {
  switch (kind) {
    case kUniform:
      return (a + b) / 2;
    case kRecorded:
      return std::accumulate(recorded.begin(), recorded.end(), 0.0) /
             static_cast<double>(recorded.size());
    default:
      return a;
  }
}

std::vector<bool> Scenario::Useful() const {
  std::set<std::tuple<std::string, std::string, int>> needed;  // a few, of perhaps many jobs
  for (const SimJob& job : jobs) needed.emplace(job.target, job.device_key, job.threads);
  std::vector<bool> useful;
  for (const SimSlot& slot : slots) {
    useful.push_back(!slot.info.device ||
                     std::any_of(needed.begin(), needed.end(), [&](const auto& one) {
                       scheduler::JobParams needs;
                       std::tie(needs.target, needs.device_key, needs.threads) = one;
                       return scheduler::SlotIndex::Suits(slot.info, v1::STAGE_PROFILE, needs);
                     }));
  }
  return useful;
}

void Scenario::BuildEverywhere() {
  std::set<std::string> kinds;
  for (const SimJob& job : jobs) kinds.emplace(KindOf(job.target));
  for (SimSlot& slot : slots) {
    if (!slot.info.device) slot.info.builds.assign(kinds.begin(), kinds.end());
  }
}

const std::vector<std::string>& ChaosKinds() {
  static const auto* const kinds = new std::vector<std::string>{
      "kill_worker",   "restart",      "fail_over",  "lose_lease", "old_lease",
      "foreign_lease", "tracker_down", "lie",        "pause",      "cancel",
      "fetch",         "disk_full",    "stop_worker"};
  return *kinds;
}

}  // namespace heddle::sim
