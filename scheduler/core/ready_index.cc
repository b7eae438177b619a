#include "scheduler/core/ready_index.h"

#include <algorithm>

namespace heddle::scheduler {

ReadyIndex::Cursor::Cursor(const ReadyIndex& index, const Policy& policy, int lane) {
  if (lane >= index.lanes()) return;
  const Lane& from = index.lanes_[static_cast<size_t>(lane)];
  heads_.reserve(from.tiers.size());
  for (const auto& [tier, nodes] : from.tiers) {
    const TierRank rank = policy.RankOfTier(tier);
    if (rank != kHeldBack) heads_.push_back({rank, nodes.begin(), nodes.end()});
  }
  const auto first = std::min_element(heads_.begin(), heads_.end(),
                                      [](const Head& a, const Head& b) { return After(b, a); });
  if (first != heads_.end()) std::iter_swap(heads_.begin(), first);
}

void ReadyIndex::Cursor::Next() {
  if (!heap_) std::make_heap(heads_.begin(), heads_.end(), After);
  heap_ = true;
  std::pop_heap(heads_.begin(), heads_.end(), After);
  if (Head& head = heads_.back(); ++head.at == head.end) {
    heads_.pop_back();
  } else {
    std::push_heap(heads_.begin(), heads_.end(), After);
  }
}

void ReadyIndex::Insert(const Entry& entry) {
  if (!entry.ranked) return;
  Lane& lane = lanes_[static_cast<size_t>(entry.item.lane)];
  lane.tiers[entry.tier].insert(entry.node);
  ++lane.count;
  if (entry.patient_until != kForEver) lane.patience.insert({entry.patient_until, entry.node.job});
}

void ReadyIndex::Erase(const Entry& entry) {
  if (!entry.ranked) return;
  Lane& lane = lanes_[static_cast<size_t>(entry.item.lane)];
  auto tier = lane.tiers.find(entry.tier);
  tier->second.erase(entry.node);
  if (tier->second.empty()) lane.tiers.erase(tier);
  --lane.count;
  lane.patience.erase({entry.patient_until, entry.node.job});
}

void ReadyIndex::CountStart(int lane) {
  if (lane < lanes()) ++lanes_[static_cast<size_t>(lane)].starts;
}

void ReadyIndex::Set(const Job& job, const std::vector<Item>& items, bool rank_again,
                     Policy* policy, absl::Time now) {
  auto owner = owners_.find(job.id);
  if (owner == owners_.end()) {
    if (items.empty()) return;
    owner = owners_.emplace(job.id, Owner{}).first;
  }
  std::vector<Entry>& old = owner->second.entries;
  const bool same = old.size() == items.size() &&
                    std::equal(old.begin(), old.end(), items.begin(),
                               [](const Entry& a, const Item& b) { return a.item == b; });
  if (same && !rank_again) return;
  std::vector<Entry> entries;
  entries.reserve(items.size());
  absl::Time until = absl::InfiniteFuture(), start = until;
  for (size_t i = 0; i < items.size(); ++i) {
    Entry entry;
    entry.item = items[i];
    const size_t lane = static_cast<size_t>(items[i].lane);
    if (lane >= lanes_.size()) lanes_.resize(lane + 1);
    const int64_t starts = lanes_[lane].starts;
    entry.since = now;
    entry.from = starts;
    for (const Entry& before : old) {
      if (before.item != items[i]) continue;
      entry.since = before.since;
      entry.from = before.from;
    }
    const Wait wait{entry.since, now, starts - entry.from};
    const Rank rank = policy->RankOf(items[i].work, job, wait);
    entry.ranked = !rank.waits;
    if (rank.patience != kForEver) entry.patient_until = entry.from + rank.patience;
    entry.tier = rank.tier;
    entry.node = {rank.key, job.id, static_cast<int>(i), items[i].work, entry.since};
    until = std::min(until, rank.until);
    if (rank.waits) start = std::min(start, rank.until);
    entries.push_back(std::move(entry));
  }
  for (const Entry& entry : old) Erase(entry);
  for (const Entry& entry : entries) Insert(entry);
  auto move = [&](std::set<std::pair<absl::Time, JobId>>* times, absl::Time* from, absl::Time to) {
    if (to == *from) return;
    times->erase({*from, job.id});
    if (to != absl::InfiniteFuture()) times->insert({to, job.id});
    *from = to;
  };
  move(&expiries_, &owner->second.until, until);
  move(&starts_, &owner->second.start, start);
  if (entries.empty()) {
    owners_.erase(owner);
    return;
  }
  old = std::move(entries);
}

std::vector<JobId> ReadyIndex::TakeExpired(absl::Time now) {
  std::vector<JobId> jobs;
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const auto [time, job] = *expiries_.begin();
    expiries_.erase(expiries_.begin());
    Owner& owner = owners_.at(job);
    owner.until = absl::InfiniteFuture();
    if (owner.start <= now) {
      starts_.erase({owner.start, job});
      owner.start = absl::InfiniteFuture();
    }
    jobs.push_back(job);
  }
  for (Lane& lane : lanes_) {
    while (!lane.patience.empty() && lane.patience.begin()->first <= lane.starts) {
      jobs.push_back(lane.patience.begin()->second);
      lane.patience.erase(lane.patience.begin());
    }
  }
  return jobs;
}

void ReadyIndex::ForEach(const std::function<void(const WorkItem&, absl::Time since)>& look) const {
  for (const auto& [job, owner] : owners_) {
    for (const Entry& entry : owner.entries) look(entry.item.work, entry.since);
  }
}

std::vector<WorkItem> ReadyIndex::All(const Policy& policy) const {
  std::vector<Cursor> cursors;
  for (int lane = 0; lane < lanes(); ++lane) {
    Cursor cursor(*this, policy, lane);
    if (!cursor.done()) cursors.push_back(std::move(cursor));
  }
  std::vector<WorkItem> all;
  while (!cursors.empty()) {
    auto best = cursors.begin();
    for (auto it = cursors.begin() + 1; it != cursors.end(); ++it) {
      if (it->Before(*best)) best = it;
    }
    all.push_back(best->node().work);
    best->Next();
    if (best->done()) cursors.erase(best);
  }
  return all;
}

}  // namespace heddle::scheduler
