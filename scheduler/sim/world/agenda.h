// A virtual clock and what is to happen at which time.
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
  absl::Time start() const { return start_; }
  absl::Time now() const { return now_; }
  double Since(absl::Time time) const { return absl::ToDoubleSeconds(time - start_); }
  bool empty() const { return actions_.empty(); }

  // Actions of one time happen in the order they were put in.
  void At(absl::Duration after, std::function<void()> action) {
    actions_[{now_ + after, ++order_}] = std::move(action);
  }
  // Takes the next action out; its time is now.
  std::function<void()> Next() {
    auto first = actions_.begin();
    now_ = std::max(now_, first->first.first);
    std::function<void()> action = std::move(first->second);
    actions_.erase(first);
    return action;
  }

 private:
  const absl::Time start_ = absl::FromUnixSeconds(1'000'000);
  absl::Time now_ = start_;
  int64_t order_ = 0;
  std::map<std::pair<absl::Time, int64_t>, std::function<void()>> actions_;
};

}  // namespace heddle::sim
