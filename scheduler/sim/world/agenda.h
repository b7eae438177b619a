// A virtual clock, and the actions that are to happen at given times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

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
  // As At, but the action is dropped if a new life of this scheduler's process begins before its time.
  void AtInThisLife(int process, absl::Duration after, Action action) {
    At(after, [this, process, life = Life(process), action = std::move(action)] {
      if (life == Life(process)) action();
    });
  }
  // A scheduler's process dies, and everything that only it and its stages awaited with it.
  void BeginLife(int process) { ++Life(process); }

  // Removes the next action and moves the clock to its time.
  Action Next() {
    auto first = actions_.begin();
    now_ = std::max(now_, first->first.first);
    Action action = std::move(first->second);
    actions_.erase(first);
    return action;
  }

 private:
  int64_t& Life(int process) {
    const auto index = static_cast<size_t>(process);
    if (index >= lives_.size()) lives_.resize(index + 1);
    return lives_[index];
  }

  const absl::Time start_ = absl::FromUnixSeconds(1'000'000);
  absl::Time now_ = start_;
  int64_t order_ = 0;
  std::vector<int64_t> lives_;  // by process
  std::map<std::pair<absl::Time, int64_t>, Action> actions_;
};

}  // namespace heddle::sim
