#include "worker/supervisor/stage_times.h"

#include <utility>
#include <vector>

#include "base/quantiles.h"

namespace heddle::worker {
namespace {

constexpr size_t kRemembered = 64;  // enough for a median that follows a change of jobs

}  // namespace

void StageTimes::Note(v1::StageKind kind, absl::Duration took) {
  std::deque<absl::Duration>& known = took_[kind];
  known.push_back(took);
  if (known.size() > kRemembered) known.pop_front();
}

bool StageTimes::CanEnd(v1::StageKind kind, absl::Duration age, absl::Duration left) const {
  const auto known = took_.find(kind);
  if (known == took_.end()) return true;
  std::vector<absl::Duration> longer;
  for (const absl::Duration took : known->second) {
    if (took > age) longer.push_back(took);
  }
  if (longer.empty()) return true;
  return Median(std::move(longer)) - age <= left;
}

}  // namespace heddle::worker
