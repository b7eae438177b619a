#include "scheduler/sim/world/pools.h"

#include <algorithm>
#include <limits>

#include "scheduler/core/slot_index.h"

namespace heddle::sim {

Pools::Pools(const Scenario& scenario)
    : scenario_(scenario),
      slots_(scenario.schedulers.pools ? static_cast<size_t>(scenario.schedulers.count) : 1),
      pool_of_job_(scenario.jobs.size(), -1),
      jobs_(slots_.size()),
      leaders_(slots_.size()),
      dead_(static_cast<size_t>(scenario.schedulers.count)) {
  for (size_t i = 0; i < scenario.slots.size(); ++i) {
    const auto next = static_cast<int>(pool_of_worker_.size() % slots_.size());
    const int pool = pool_of_worker_.emplace(scenario.slots[i].info.id.worker, next).first->second;
    slots_[static_cast<size_t>(pool)].push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < leaders_.size(); ++i) leaders_[i] = static_cast<int>(i);
}

const std::vector<int>& Pools::DevicesFor(const SimJob& job) {
  auto [it, fresh] =
      devices_.emplace(std::tuple(job.target, job.device_key, job.threads), std::vector<int>());
  if (!fresh) return it->second;
  scheduler::JobParams needs;
  needs.target = job.target;
  needs.device_key = job.device_key;
  needs.threads = job.threads;
  for (const std::vector<int>& slots : slots_) {
    it->second.push_back(static_cast<int>(std::count_if(slots.begin(), slots.end(), [&](int slot) {
      return scheduler::SlotIndex::Suits(scenario_.slots[static_cast<size_t>(slot)].info,
                                         v1::STAGE_PROFILE, needs);
    })));
  }
  return it->second;
}

int Pools::Enter(int index) {
  const SimJob& job = scenario_.jobs[static_cast<size_t>(index)];
  const std::vector<int>& devices = DevicesFor(job);
  const bool any = std::any_of(devices.begin(), devices.end(), [](int count) { return count > 0; });
  size_t best = 0;
  std::pair<double, double> least(std::numeric_limits<double>::max(), 0);
  for (size_t pool = 0; pool < jobs_.size(); ++pool) {
    if (any && devices[pool] == 0) continue;
    const double slots = std::max(1, devices[pool]);
    const auto own = jobs_[pool].by_user.find(job.user);
    const std::pair<double, double> load(
        (own == jobs_[pool].by_user.end() ? 0 : own->second) / slots, jobs_[pool].all / slots);
    if (load < least) best = pool, least = load;
  }
  ++jobs_[best].by_user[job.user];
  ++jobs_[best].all;
  return pool_of_job_[static_cast<size_t>(index)] = static_cast<int>(best);
}

void Pools::Left(int index) {
  Counts& jobs = jobs_[static_cast<size_t>(PoolOfJob(index))];
  --jobs.by_user[scenario_.jobs[static_cast<size_t>(index)].user];
  --jobs.all;
}

std::vector<int> Pools::FailOne() {
  auto leads = [&](int scheduler) {
    return std::find(leaders_.begin(), leaders_.end(), scheduler) != leaders_.end();
  };
  int scheduler = -1;
  for (int one = 0; one < static_cast<int>(dead_.size()); ++one) {
    if (dead_[static_cast<size_t>(one)]) continue;
    if (scheduler < 0 || (leads(one) && !leads(scheduler))) scheduler = one;
  }
  std::vector<int> led;
  if (scheduler < 0) return led;
  dead_[static_cast<size_t>(scheduler)] = true;
  for (size_t pool = 0; pool < leaders_.size(); ++pool) {
    if (leaders_[pool] == scheduler) led.push_back(static_cast<int>(pool));
  }
  return led;
}

void Pools::TakeOver(int pool) {
  std::vector<int> leads(dead_.size());
  for (const int leader : leaders_) ++leads[static_cast<size_t>(leader)];
  int next = -1;
  for (int one = 0; one < static_cast<int>(dead_.size()); ++one) {
    const auto at = static_cast<size_t>(one);
    if (!dead_[at] && (next < 0 || leads[at] < leads[static_cast<size_t>(next)])) next = one;
  }
  if (next >= 0) leaders_[static_cast<size_t>(pool)] = next;
}

}  // namespace heddle::sim
