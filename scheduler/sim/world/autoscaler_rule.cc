#include "scheduler/sim/world/autoscaler_rule.h"

#include <algorithm>
#include <utility>

namespace heddle::sim {

AutoscalerRule::Decision AutoscalerRule::Decide(const BatchClass& rules, const Seen& seen,
                                                double now) {
  std::erase_if(told_, [&](int number) { return !seen.instances.count(number); });
  int here = 0;
  int useful = 0;  // of these, those that take work, or will
  int slots = 0;   // of the useful ones
  const auto slots_of = [&rules](const Instance& instance) {
    return instance.fit < 0 ? rules.slots : std::min(rules.slots, instance.fit);
  };
  std::map<int, double> idle;
  for (const auto& [number, instance] : seen.instances) {
    if (instance.state == State::kLeaving || told_.count(number)) continue;
    ++here;
    useful += slots_of(instance) > 0 ? 1 : 0;
    slots += slots_of(instance);
    const bool unused = instance.state == State::kPending ? seen.waiting == 0 : instance.idle;
    if (!unused) continue;
    const auto before = idle_.find(number);
    idle[number] = before == idle_.end() ? now : before->second;
  }
  idle_ = std::move(idle);

  const int work = seen.busy + seen.waiting;
  const bool calls = seen.waiting > 0 && seen.oldest >= rules.wait;
  const int most = static_cast<int>(rules.workers.size());
  const int lack =
      std::max(calls ? (work - slots + rules.slots - 1) / rules.slots : 0, rules.min - useful);
  Decision decision;
  for (int number = 0, starts = std::min({lack, most - here, rules.most_at_once});
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
  for (const auto& [since, number] : leave) {
    const int mine = slots_of(seen.instances.at(number));
    if (mine > 0 && (slots - mine < work || useful - 1 < rules.min)) continue;
    slots -= mine;
    useful -= mine > 0 ? 1 : 0;
    decision.drain.push_back(number);
    told_.insert(number);
    idle_.erase(number);
  }
  return decision;
}

}  // namespace heddle::sim
