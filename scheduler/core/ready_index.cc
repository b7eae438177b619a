#include "scheduler/core/ready_index.h"

#include <algorithm>
#include <iterator>
#include <type_traits>

namespace heddle::scheduler {

ReadyIndex::Cursor::Cursor(const ReadyIndex& index, const Policy& policy, int lane)
    : policy_(&policy) {
  if (lane >= index.lanes()) return;
  const Lane& from = index.lanes_[static_cast<size_t>(lane)];
  heads_.reserve(from.tiers.size());
  for (const auto& [number, tier] : from.tiers) Open(number, tier.order.begin(), tier.order.end());
  const auto first = std::min_element(heads_.begin(), heads_.end(),
                                      [](const Head& a, const Head& b) { return After(b, a); });
  if (first != heads_.end()) std::iter_swap(heads_.begin(), first);
}

void ReadyIndex::Cursor::Open(int64_t tier, Order::const_iterator tenant,
                              Order::const_iterator last) {
  for (; tenant != last; ++tenant) {
    const TierRank rank = policy_->RankOfTier(tier, (*tenant)->id);
    if (rank == kHeldBack) continue;
    const std::set<Node>& nodes = (*tenant)->nodes;
    const Node& first = *nodes.begin();
    if (policy_->HoldsBack(tier, (*tenant)->id, first.key, first.job)) continue;
    heads_.push_back(
        {rank, nodes.begin(), nodes.end(), tier, (*tenant)->id, std::next(tenant), last});
    return;
  }
}

void ReadyIndex::Cursor::Next() {
  if (!heap_) std::make_heap(heads_.begin(), heads_.end(), After);
  heap_ = true;
  std::pop_heap(heads_.begin(), heads_.end(), After);
  Head passed = heads_.back();
  heads_.pop_back();
  const size_t before = heads_.size();
  Open(passed.tier, std::exchange(passed.more, passed.last), passed.last);
  if (heads_.size() > before) std::push_heap(heads_.begin(), heads_.end(), After);
  if (++passed.at == passed.end ||
      policy_->HoldsBack(passed.tier, passed.tenant, passed.at->key, passed.at->job))
    return;
  heads_.push_back(passed);
  std::push_heap(heads_.begin(), heads_.end(), After);
}

void ReadyIndex::Insert(const Entry& entry, const Policy& policy) {
  if (!entry.ranked) return;
  const int number = entry.item.lane;
  Lane& lane = lanes_[static_cast<size_t>(number)];
  Tier& tier = lane.tiers[entry.tier];
  const auto [place, fresh] = tier.tenants.try_emplace(entry.tenant);
  Tenant& tenant = place->second;
  if (fresh) {
    tenant.id = entry.tenant;
    tenant.share = policy.ShareOf(entry.tenant);
    places_[entry.tenant].insert({number, entry.tier});
  }
  // The order of the tenants goes by their first items.
  const bool first = fresh || entry.node < *tenant.nodes.begin();
  if (first && !fresh) tier.order.erase(&tenant);
  tenant.nodes.insert(entry.node);
  if (first) tier.order.insert(&tenant);
  ++lane.count;
  if (entry.patient_until == kForEver) return;
  lane.patience.insert({entry.patient_until, entry.node.job});
  if (lane.WearsOut()) worn_out_.insert(number);
}

void ReadyIndex::Erase(const Entry& entry) {
  if (!entry.ranked) return;
  const int number = entry.item.lane;
  Lane& lane = lanes_[static_cast<size_t>(number)];
  const auto tier = lane.tiers.find(entry.tier);
  const auto place = tier->second.tenants.find(entry.tenant);
  Tenant& tenant = place->second;
  const auto node = tenant.nodes.find(entry.node);
  const bool first = node == tenant.nodes.begin();
  if (first) tier->second.order.erase(&tenant);
  tenant.nodes.erase(node);
  if (!tenant.nodes.empty()) {
    if (first) tier->second.order.insert(&tenant);
  } else {
    tier->second.tenants.erase(place);
    if (tier->second.tenants.empty()) lane.tiers.erase(tier);
    const auto places = places_.find(entry.tenant);
    places->second.erase({number, entry.tier});
    if (places->second.empty()) places_.erase(places);
  }
  --lane.count;
  lane.patience.erase({entry.patient_until, entry.node.job});
}

void ReadyIndex::TakeShares(Policy* policy) {
  for (const int64_t moved : policy->TakeMoved()) {
    const auto places = places_.find(moved);
    if (places == places_.end()) continue;
    const double share = policy->ShareOf(moved);
    for (const auto& [lane, number] : places->second) {
      Tier& tier = lanes_[static_cast<size_t>(lane)].tiers.at(number);
      Tenant& tenant = tier.tenants.at(moved);
      if (tenant.share == share) continue;
      tier.order.erase(&tenant);
      tenant.share = share;
      tier.order.insert(&tenant);
    }
  }
}

void ReadyIndex::CountStart(int number) {
  if (number >= lanes()) return;
  Lane& lane = lanes_[static_cast<size_t>(number)];
  ++lane.starts;
  if (lane.WearsOut()) worn_out_.insert(number);
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
    static_assert(std::is_nothrow_move_constructible_v<Lane>, "Tier::order has addresses");
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
    entry.tenant = rank.tenant;
    entry.node = {rank.key, job.id, static_cast<int>(i), items[i].work, entry.since};
    until = std::min(until, rank.until);
    if (rank.waits) start = std::min(start, rank.until);
    entries.push_back(std::move(entry));
  }
  for (const Entry& entry : old) Erase(entry);
  for (const Entry& entry : entries) Insert(entry, *policy);
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
  for (const int number : std::exchange(worn_out_, {})) {
    Lane& lane = lanes_[static_cast<size_t>(number)];
    while (lane.WearsOut()) {
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
