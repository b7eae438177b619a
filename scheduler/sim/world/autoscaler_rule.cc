#include "scheduler/sim/world/autoscaler_rule.h"

#include <algorithm>
#include <utility>

namespace heddle::sim {

AutoscalerRule::Decision AutoscalerRule::Decide(const BatchClass& rules, const Seen& seen,
                                                double now) {
  std::erase_if(told_, [&](int number) { return !seen.instances.count(number); });
  int here = 0;
  std::map<int, double> idle;
  for (const auto& [number, instance] : seen.instances) {
    if (instance.state == State::kLeaving || told_.count(number)) continue;
    ++here;
    const bool unused = instance.state == State::kPending ? seen.waiting == 0 : instance.idle;
    if (!unused) continue;
    const auto before = idle_.find(number);
    idle[number] = before == idle_.end() ? now : before->second;
  }
  idle_ = std::move(idle);

  const int need = (seen.busy + seen.waiting + rules.slots - 1) / rules.slots;
  const bool calls = seen.waiting > 0 && seen.oldest >= rules.wait;
  const int most = static_cast<int>(rules.workers.size());
  const int target = std::min(std::max({calls ? need : 0, rules.min, here}), most);
  Decision decision;
  for (int number = 0, starts = std::min(target - here, rules.most_at_once);
       number < most && starts > 0; ++number) {
    if (seen.instances.count(number)) continue;
    decision.start.push_back(number);
    --starts;
  }

  std::vector<std::pair<double, int>> leave;
  for (const auto& [number, since] : idle_) {
    if (now - since >= rules.idle) leave.emplace_back(since, number);
  }
  std::sort(leave.begin(), leave.end());
  const int spare = std::max(0, here - std::max(rules.min, need));
  if (leave.size() > static_cast<size_t>(spare)) leave.resize(static_cast<size_t>(spare));
  for (const auto& [since, number] : leave) {
    decision.drain.push_back(number);
    told_.insert(number);
    idle_.erase(number);
  }
  return decision;
}

}  // namespace heddle::sim
