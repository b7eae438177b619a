// Which of several trackers a service uses, as the scheduler that leads decides. Pure: time is an argument, by a clock that does
// not jump.
//
// A tracker serves only while it is appointed (tracker/appointment.h). Never do two of them serve at the same time, so that no
// slot is given away twice: another one is appointed only when it is certain that the one before has stopped, because it said so,
// or because the last time that was repeated to it is too old. A tracker that answers is kept, also by the scheduler that leads
// next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace heddle::scheduler {

class TrackerChoice {
 public:
  struct Options {
    // How long a tracker serves after the time that is repeated to it. Trackers are called about six times as often.
    absl::Duration appointed_for = absl::Seconds(6);
    absl::Duration recent = absl::Seconds(3);  // an answer that a tracker can be chosen by
  };
  // This scheduler leads since `now`. One that led before may have appointed any of the trackers just then.
  TrackerChoice(size_t trackers, absl::Time now) : TrackerChoice(trackers, now, Options()) {}
  TrackerChoice(size_t trackers, absl::Time now, const Options& options);

  // What the next call to a tracker says. The call is made soon, and one tracker is called once at a time.
  struct Call {
    int64_t echo_ns = 0;  // 0: it only asks
    bool forget = false;
  };
  Call CallTo(size_t tracker, absl::Time now);
  // What the tracker answered.
  struct Answer {
    int64_t clock_ns = 0;
    absl::Duration remaining;                        // for which it serves
    absl::Duration idle = absl::InfiniteDuration();  // since it served
  };
  void TakeAnswer(size_t tracker, const Answer& answer, absl::Time received);
  // The tracker in use: appointed, or to be appointed next. It changes in CallTo only.
  std::optional<size_t> used() const { return used_; }

 private:
  struct Tracker {
    Answer answer;  // the last one; clock_ns is 0 if there is none
    absl::Time received = absl::InfinitePast();
    // Until when it may serve: by a scheduler that led before, and by what this one repeated.
    absl::Time until_by_others, until_by_us = absl::InfinitePast();
  };
  void Choose(absl::Time now);
  static bool MayServe(const Tracker& tracker, absl::Time now);
  bool Answers(const Tracker& tracker, absl::Time now) const;

  const Options options_;
  std::vector<Tracker> trackers_;
  std::optional<size_t> used_;
  absl::Time chosen_at_;
  bool forget_ = false;  // until the one in use serves
};

}  // namespace heddle::scheduler
