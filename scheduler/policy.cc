#include "scheduler/policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace heddle::scheduler {

int64_t RoundRobin::LastTurn(const WorkItem& work) const {
  auto it = last_turn_.find({work.job, work.device});
  return it == last_turn_.end() ? 0 : it->second;
}

void RoundRobin::Order(std::vector<WorkItem>* work) const {
  std::stable_sort(work->begin(), work->end(), [this](const WorkItem& a, const WorkItem& b) {
    const int64_t turn_a = LastTurn(a), turn_b = LastTurn(b);
    return turn_a != turn_b ? turn_a < turn_b : a.job < b.job;
  });
}

void RoundRobin::Served(const WorkItem& work) { last_turn_[{work.job, work.device}] = ++turn_; }

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  if (name == "sequential" || name == "round_robin" || name == "predictive") {
    return std::make_unique<RoundRobin>();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown policy \"", std::string(name),
                                                 "\"; known: sequential, round_robin, predictive"));
}

}  // namespace heddle::scheduler
