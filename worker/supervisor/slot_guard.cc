#include "worker/supervisor/slot_guard.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/quantiles.h"

namespace heddle::worker {
namespace {

// Canaries that determine the usual time: those of 32 measurements, a few seconds.
constexpr size_t kHistory = 64;
// Canaries that determine the reference: those of 8 measurements.
constexpr size_t kForReference = 16;
// Plausible canary times; a canary takes about a millisecond.
constexpr double kLeastNs = 1e3;
constexpr double kMostNs = 1e10;
constexpr size_t kMaxReasonBytes = 200;
constexpr double kMostOfALimit =
    1e6;  // GFLOP/s or GB/s of a slot; a larger value is implausible, and would be kept as the best

}  // namespace

double SlotGuard::CanaryUsualNs(const std::string& slot) const {
  absl::MutexLock lock(&mutex_);
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : Usual(found->second);
}

void SlotGuard::KeepLimits(const std::string& name, int threads, v1::Evidence* evidence) {
  const auto better = [](double found, double best) {
    return std::isfinite(found) && found > best && found < kMostOfALimit;
  };
  absl::MutexLock lock(&mutex_);
  Limits& best = slots_[name].limits[threads];
  if (better(evidence->peak_gflops(), best.peak_gflops)) best.peak_gflops = evidence->peak_gflops();
  if (better(evidence->memory_gbps(), best.memory_gbps)) best.memory_gbps = evidence->memory_gbps();
  evidence->set_peak_gflops(best.peak_gflops);
  evidence->set_memory_gbps(best.memory_gbps);
}

void SlotGuard::Observe(const std::string& name, const v1::Evidence& evidence, absl::Time now) {
  if (evidence.times_measured() <= 0) return;
  absl::MutexLock lock(&mutex_);
  Slot& slot = slots_[name];
  if (evidence.disturbance().empty()) {
    slot.disturbed = 0;
    if (slot.trouble.empty()) slot.rests = 0;  // a quarantine that has begun lasts as announced
  } else if (slot.disturbed++ == 0) {
    slot.disturbed_since = now;
  }
  AddCanary(slot, evidence.canary_before() * evidence.canary_usual_ns());
  AddCanary(slot, evidence.canary_after() * evidence.canary_usual_ns());
  if (!options_.on || !slot.trouble.empty()) return;
  const absl::Duration lasted = now - slot.disturbed_since;
  if (slot.disturbed >= options_.disturbed_in_a_row && lasted >= options_.disturbed_for) {
    slot.trouble = absl::StrFormat(
        "%d measurements in a row were disturbed over %.0f s, at last: %s", slot.disturbed,
        absl::ToDoubleSeconds(lasted), evidence.disturbance().substr(0, kMaxReasonBytes));
  } else {
    slot.trouble = CanaryOff(slot);
  }
  if (slot.trouble.empty()) return;
  slot.troubled_since = now;
  ++slot.rests;
  spdlog::warn("slot {} is in quarantine: {}", name, slot.trouble);
}

void SlotGuard::Check(const std::string& name, const Reading& before, const Reading& after) {
  absl::MutexLock lock(&mutex_);
  Slot& slot = slots_[name];
  AddCanary(slot, before.canary_ns);
  AddCanary(slot, after.canary_ns);
  if (slot.trouble.empty() || !CanaryOff(slot).empty()) return;
  const Quietness quietness = Judge(before, after, Usual(slot));
  const bool usual_speed =
      quietness.canary_after > kCanaryFast && quietness.canary_after < kCanarySlow;
  const bool rested = after.at - slot.troubled_since >= RestOf(slot);
  if (!quietness.disturbance.empty() && !(usual_speed && rested)) return;
  spdlog::info("slot {}: the canary passed, the quarantine ends", name);
  slot.trouble.clear();
  slot.disturbed = 0;
}

std::map<std::string, std::string> SlotGuard::Troubles() const {
  absl::MutexLock lock(&mutex_);
  std::map<std::string, std::string> troubles;
  for (const auto& [name, slot] : slots_) {
    if (!slot.trouble.empty()) troubles[name] = slot.trouble;
  }
  return troubles;
}

void SlotGuard::AddCanary(Slot& slot, double ns) {
  if (!std::isfinite(ns) || ns < kLeastNs || ns > kMostNs) return;
  slot.canaries_ns.push_back(ns);
  if (slot.canaries_ns.size() > kHistory) slot.canaries_ns.pop_front();
  if (slot.reference_ns != 0 || slot.disturbed > 0) return;
  slot.quiet_ns.push_back(ns);
  if (slot.quiet_ns.size() < kForReference) return;
  slot.reference_ns = Median({slot.quiet_ns.begin(), slot.quiet_ns.end()});
  slot.canaries_ns = std::exchange(slot.quiet_ns, {});  // leaves out disturbed ones
}

double SlotGuard::Usual(const Slot& slot) {
  return Median({slot.canaries_ns.begin(), slot.canaries_ns.end()});
}

absl::Duration SlotGuard::RestOf(const Slot& slot) const {
  constexpr int kMostDoublings = 20;
  return std::min(options_.longest_rest,
                  options_.first_rest * (1 << std::clamp(slot.rests - 1, 0, kMostDoublings)));
}

std::string SlotGuard::CanaryOff(const Slot& slot) const {
  if (slot.reference_ns == 0) return "";
  const double ratio = Usual(slot) / slot.reference_ns;
  if (ratio < options_.canary_off && ratio > 1 / options_.canary_off) return "";
  return absl::StrFormat(
      "the canary takes %.2f times what it took when the worker began; if that is right now, "
      "restart the worker",
      ratio);
}

}  // namespace heddle::worker
