#include "scheduler/service/stages/tracker_choice.h"

#include <algorithm>

namespace heddle::scheduler {

TrackerChoice::TrackerChoice(size_t trackers, absl::Time now, const Options& options)
    : options_(options), trackers_(trackers) {
  for (Tracker& tracker : trackers_) tracker.until_by_others = now + options_.appointed_for;
}

bool TrackerChoice::MayServe(const Tracker& tracker, absl::Time now) {
  return now < std::max(tracker.until_by_others, tracker.until_by_us);
}

bool TrackerChoice::Answers(const Tracker& tracker, absl::Time now) const {
  return tracker.answer.clock_ns != 0 && now - tracker.received <= options_.recent;
}

void TrackerChoice::Choose(absl::Time now) {
  if (used_) {
    if (now < chosen_at_ + options_.appointed_for || MayServe(trackers_[*used_], now)) return;
    used_.reset();
  }
  // Among those that answer, the one that served last, or serves still: it knows the workers.
  const auto since_served = [&](size_t i) {
    const Tracker& tracker = trackers_[i];
    return tracker.answer.remaining > now - tracker.received
               ? absl::ZeroDuration()
               : tracker.answer.idle + (now - tracker.received);
  };
  std::optional<size_t> best;
  bool all_answer = true;
  for (size_t i = 0; i < trackers_.size(); ++i) {
    if (!Answers(trackers_[i], now)) {
      all_answer = false;
    } else if (!best || since_served(i) < since_served(*best)) {
      best = i;
    }
  }
  if (!best) return;
  // If this one serves, no other does, and no other is waited for.
  const bool serves = since_served(*best) == absl::ZeroDuration();
  for (size_t i = 0; i < trackers_.size() && !serves; ++i) {
    if (i != *best && MayServe(trackers_[i], now)) return;
  }
  used_ = best;
  chosen_at_ = now;
  forget_ = !all_answer && !serves;
}

TrackerChoice::Call TrackerChoice::CallTo(size_t index, absl::Time now) {
  Choose(now);
  Tracker& tracker = trackers_[index];
  if (used_ != index || tracker.answer.clock_ns == 0) return {};
  // It told that time before the answer was received here.
  tracker.until_by_us = std::max(tracker.until_by_us, tracker.received + options_.appointed_for);
  return {.echo_ns = tracker.answer.clock_ns, .forget = forget_};
}

void TrackerChoice::TakeAnswer(size_t index, const Answer& answer, absl::Time received) {
  Tracker& tracker = trackers_[index];
  // From this call on the tracker refuses schedulers that led before.
  tracker.until_by_others =
      answer.remaining > absl::ZeroDuration() ? received + answer.remaining : absl::InfinitePast();
  tracker.answer = answer;
  tracker.received = received;
  if (used_ == index && answer.remaining > absl::ZeroDuration()) forget_ = false;
}

}  // namespace heddle::scheduler
