#include "scheduler/core/policies/deadline_watch.h"

#include <algorithm>

#include "scheduler/core/slot_index.h"

namespace heddle::scheduler {
namespace {

// A job takes kContended times its span when it competes with stages that are not interrupted, and
// kUnknown times that while none of its candidates has been measured.
constexpr double kContended = 1.4, kUnknown = 2;
// A job with measurements cannot meet its deadline when the time left is less than this share of
// its span.
constexpr double kLost = 0.8;
// A job that is tight stays so until the time left exceeds what it needs by this factor.
constexpr double kStays = 1.1;
// Only this many of the earliest deadlines are looked at.
constexpr int kLooks = 100;
// Tolerance for times that are computed from rounded seconds.
constexpr absl::Duration kRounding = absl::Microseconds(1);

}  // namespace

void DeadlineWatch::Find(const PolicyView& view, absl::Time now, std::vector<JobId>* stale) {
  if (jobs_.empty() && !tight_) return;
  if (now < until_ && slots_ == view.slots->version()) return;
  slots_ = view.slots->version();
  until_ = absl::InfiniteFuture();
  auto again = [&](absl::Time time) {
    if (time + kRounding >= now) until_ = std::min(until_, time - kRounding);
  };
  const int cpu = SlotIndex::kCpuLane;
  before_.assign(static_cast<size_t>(view.slots->lanes()), 0);
  auto wait = [&](int lane) {
    return before_[static_cast<size_t>(lane)] / std::max(1, view.slots->Count(lane));
  };
  std::optional<Due> tight;
  const PlannedJob* tight_job = nullptr;
  int looks = kLooks;
  for (auto it = jobs_.lower_bound({now, JobId{}}); it != jobs_.end(); ++it) {
    const auto& [due, job] = *it;
    again(due.first);
    const Forecast::Load* load = job->load;
    if (load == nullptr) continue;
    if (--looks < 0) break;
    const double left = absl::ToDoubleSeconds(due.first - now);
    const double lost = (job->measured ? kLost : kHopeful) * load->span_s;
    if (left < lost) continue;
    again(due.first - absl::Seconds(lost));
    const double needs = std::max(wait(cpu), wait(load->lane)) +
                         kContended * (job->measured ? 1 : kUnknown) * load->span_s;
    if (left < (tight_ == due ? kStays : 1) * needs) {
      tight = due;
      tight_job = job;
      break;
    }
    again(due.first - absl::Seconds(needs));
    before_[static_cast<size_t>(cpu)] += load->joint_s;
    before_[static_cast<size_t>(load->lane)] += load->device_s;
  }
  tight_job_ = tight_job;
  if (tight == tight_) return;
  for (const auto& one : {tight, tight_}) {
    if (one) stale->push_back(one->second);
  }
  tight_ = tight;
}

}  // namespace heddle::scheduler
