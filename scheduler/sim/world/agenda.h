// A virtual clock, and the actions that are to happen at given times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/time/time.h"

namespace heddle::sim {

class Agenda {
 public:
  using Action = std::function<void()>;

  absl::Time start() const { return start_; }
  absl::Time now() const { return now_; }
  // Seconds from the start to `time`.
  double Since(absl::Time time) const { return absl::ToDoubleSeconds(time - start_); }
  bool empty() const { return actions_.empty(); }

  // Actions of the same time happen in the order in which they were added.
  void At(absl::Duration after, Action action) {
    actions_[{now_ + after, ++order_}] = std::move(action);
  }
  // As At, but the action is dropped if a new life begins before its time.
  void AtInThisLife(absl::Duration after, Action action) {
    At(after, [this, life = life_, action = std::move(action)] {
      if (life == life_) action();
    });
  }
  // The scheduler's process dies, and everything that only it and its stages awaited with it.
  void BeginLife() { ++life_; }

  // Removes the next action and moves the clock to its time.
  Action Next() {
    auto first = actions_.begin();
    now_ = std::max(now_, first->first.first);
    Action action = std::move(first->second);
    actions_.erase(first);
    return action;
  }

 private:
  const absl::Time start_ = absl::FromUnixSeconds(1'000'000);
  absl::Time now_ = start_;
  int64_t order_ = 0, life_ = 0;
  std::map<std::pair<absl::Time, int64_t>, Action> actions_;
};

}  // namespace heddle::sim
