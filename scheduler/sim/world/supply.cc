#include "scheduler/sim/world/supply.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "scheduler/sim/chance.h"

namespace heddle::sim {

using State = AutoscalerRule::State;

Supply::Supply(const Scenario& scenario, Agenda* agenda, Machines* machines, Workers* workers,
               WorldResult* result, Hooks hooks)
    : scenario_(scenario),
      agenda_(*agenda),
      machines_(*machines),
      workers_(*workers),
      result_(*result),
      hooks_(std::move(hooks)) {
  for (const BatchClass& rules : scenario.batches) {
    for (size_t i = 0; i < rules.workers.size(); ++i) {
      members_[rules.workers[i]] = {classes_.size(), static_cast<int>(i)};
      machines_.absent.insert(rules.workers[i]);
    }
    classes_.push_back({&rules, {}, {}, {}, 0});
  }
}

const Supply::Member* Supply::MemberOf(const std::string& worker) const {
  const auto found = members_.find(worker);
  return found == members_.end() ? nullptr : &found->second;
}

void Supply::Begin() {
  for (size_t i = 0; i < classes_.size(); ++i)
    agenda_.At(absl::ZeroDuration(), [this, i] { Round(i); });
  std::set<std::string> there;
  for (const SimSlot& slot : scenario_.slots) {
    const std::string& worker = slot.info.id.worker;
    if (MemberOf(worker) == nullptr && there.insert(worker).second) Arrive(worker);
  }
}

void Supply::End(double seconds) {
  for (const Class& of : classes_) {
    for (const auto& [number, since] : of.since)
      result_.node_seconds += std::max(0.0, seconds - since);
  }
}

// ---- batch systems ----

void Supply::Round(size_t cls) {
  if (hooks_.over()) return;
  Class& of = classes_[cls];
  const AutoscalerRule::Decision decision =
      of.rule.Decide(*of.rules, Observe(of), agenda_.Since(agenda_.now()));
  for (const int number : decision.start) Start(cls, number);
  for (const int number : decision.drain) {
    if (of.instances.at(number).state == State::kPending) {
      of.instances.erase(number);
    } else {
      Leave(of.rules->workers[static_cast<size_t>(number)]);
    }
  }
  agenda_.At(absl::Seconds(of.rules->every), [this, cls] { Round(cls); });
}

AutoscalerRule::Seen Supply::Observe(const Class& of) const {
  const BatchClass& rules = *of.rules;
  AutoscalerRule::Seen seen;
  hooks_.for_each_waiting([&](const Job& job, const WorkItem& work, absl::Time since) {
    const bool suits =
        work.device ? rules.devices && job.params.target == rules.target &&
                          (job.params.device_key.empty() || job.params.device_key == rules.key)
                    : rules.cpu;
    if (!suits) return;
    ++seen.waiting;
    seen.oldest = std::max(seen.oldest, absl::ToDoubleSeconds(agenda_.now() - since));
  });
  seen.instances = of.instances;
  for (auto& [number, instance] : seen.instances) instance.idle = instance.state == State::kRunning;
  for (const auto& [id, stage] : workers_.running()) {
    const Member* member = MemberOf(stage.start.slot.worker);
    if (member == nullptr || classes_[member->cls].rules != of.rules) continue;
    ++seen.busy;
    const auto instance = seen.instances.find(member->number);
    if (instance != seen.instances.end()) instance->second.idle = false;
  }
  for (const SlotId& slot : machines_.quarantined) {
    const Member* member = MemberOf(slot.worker);
    if (member == nullptr || classes_[member->cls].rules != of.rules) continue;
    const auto instance = seen.instances.find(member->number);
    if (instance == seen.instances.end() || instance->second.state != State::kRunning) continue;
    int& fit = instance->second.fit;
    fit = (fit < 0 ? rules.slots : fit) - 1;
  }
  return seen;
}

void Supply::Start(size_t cls, int number) {
  Class& of = classes_[cls];
  of.instances[number] = {};
  ++result_.batch_starts;
  const double waits = of.rules->queue.Draw(Mix({scenario_.seed, 8, cls}), ++of.starts);
  agenda_.At(absl::Seconds(waits), [this, cls, number, start = of.starts] {
    Class& now = classes_[cls];
    const auto instance = now.instances.find(number);
    // It was told to leave before it had a machine, and perhaps ordered again since.
    if (instance == now.instances.end() || instance->second.start != start) return;
    instance->second.state = State::kRunning;
    now.since[number] = agenda_.Since(agenda_.now());
    Arrive(now.rules->workers[static_cast<size_t>(number)]);
  });
  of.instances[number].start = of.starts;
}

// ---- workers ----

void Supply::Arrive(const std::string& worker) {
  if (machines_.absent.erase(worker) > 0) hooks_.report(worker);
  const int64_t arrival = ++arrivals_[worker];
  if (scenario_.preemption.rate <= 0) return;
  const double hours =
      -std::log(Unit(Mix({scenario_.seed, 9, ++draws_}))) / scenario_.preemption.rate;
  agenda_.At(absl::Hours(1) * hours, [this, worker, arrival] {
    if (arrivals_.at(worker) == arrival && !machines_.absent.count(worker)) Preempt(worker);
  });
}

void Supply::Leave(const std::string& worker) {
  machines_.draining.erase(worker);
  machines_.absent.insert(worker);
  hooks_.report(worker);
  // What still runs there is handed back, and no candidate is blamed for that.
  std::vector<AttemptId> running;
  for (const auto& [id, stage] : workers_.running()) {
    if (stage.start.slot.worker == worker) running.push_back(id);
  }
  for (const AttemptId id : running)
    workers_.Break(id, "the worker left", Workers::Ending::kInterrupted);
  const Member* member = MemberOf(worker);
  if (member == nullptr) return;
  Class& of = classes_[member->cls];
  of.instances.erase(member->number);
  const auto since = of.since.find(member->number);
  result_.node_seconds += agenda_.Since(agenda_.now()) - since->second;
  of.since.erase(since);
}

// The worker takes no new stages from now on, and what it runs may end within the notice.
void Supply::Preempt(const std::string& worker) {
  if (hooks_.over()) return;
  ++result_.preemptions;
  machines_.draining.insert(worker);
  const Member* member = MemberOf(worker);
  if (member != nullptr) classes_[member->cls].instances.at(member->number).state = State::kLeaving;
  hooks_.report(worker);
  agenda_.At(absl::Seconds(scenario_.preemption.notice), [this, worker, member] {
    Leave(worker);
    if (member != nullptr) return;
    const double back = scenario_.preemption.back.Draw(Mix({scenario_.seed, 10}), ++draws_);
    agenda_.At(absl::Seconds(back), [this, worker] { Arrive(worker); });
  });
}

}  // namespace heddle::sim
