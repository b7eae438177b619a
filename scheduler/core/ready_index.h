// Ready work in the order of the policy, lane by lane (see slot_index.h). When something happens to
// a job, only that job's items are replaced.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/core/job_state.h"
#include "scheduler/core/policy.h"

namespace heddle::scheduler {

class ReadyIndex {
 public:
  struct Item {
    WorkItem work;
    int lane = 0;
    friend bool operator==(const Item&, const Item&) = default;
  };
  // One entry of the order.
  struct Node {
    std::array<double, 2> key{};
    JobId job;
    int position = 0;  // in the job's own order
    WorkItem work;
    absl::Time since;  // when it became ready
    auto Order() const { return std::tuple(key, job, position); }
    bool operator<(const Node& other) const { return Order() < other.Order(); }
  };

  // The items of one tenant in one tier.
  struct Tenant {
    int64_t id = 0;
    double share = 0;
    std::set<Node> nodes;  // never empty
  };
  struct Earlier {
    bool operator()(const Tenant* a, const Tenant* b) const {
      return a->share != b->share ? a->share < b->share : *a->nodes.begin() < *b->nodes.begin();
    }
  };
  using Order = std::set<const Tenant*, Earlier>;

  // Walks the items of one lane in order. Valid until the index or the policy changes. To make one takes time in
  // the number of tiers, whatever the number of tenants, and Next in its logarithm.
  class Cursor {
   public:
    Cursor(const ReadyIndex& index, const Policy& policy, int lane);
    bool done() const { return heads_.empty(); }
    const Node& node() const { return *heads_.front().at; }
    const TierRank& tier() const { return heads_.front().rank; }
    void Next();
    // Whether this one's item comes before the other's; neither is done.
    bool Before(const Cursor& other) const {
      return tier() != other.tier() ? tier() < other.tier() : node() < other.node();
    }

   private:
    struct Head {
      TierRank rank;
      std::set<Node>::const_iterator at, end;
      int64_t tier = 0, tenant = 0;
      // The tenants of the tier after this one. They are looked at once the first item of this one is passed, since
      // none of theirs comes before it. Both are the end for a tenant whose first item was passed.
      Order::const_iterator more, last;
    };
    // Whether the next item of `a` comes after that of `b`.
    static bool After(const Head& a, const Head& b) {
      return a.rank != b.rank ? b.rank < a.rank : *b.at < *a.at;
    }
    // Adds the first tenant of a tier that may start now, from `tenant` on.
    void Open(int64_t tier, Order::const_iterator tenant, Order::const_iterator last);

    const Policy* policy_;
    // The next item of the tenants that were looked at and have one; the first of them all is in front.
    std::vector<Head> heads_;
    bool heap_ = false;  // whether heads_ is a heap: only once a second item is asked for
  };

  // Sets all ready items of the job, in its own order. Asks the policy for ranks only if the items
  // differ from before, or if `rank_again`.
  void Set(const Job& job, const std::vector<Item>& items, bool rank_again, Policy* policy,
           absl::Time now);
  // Orders the tenants anew whose share has changed. Call before a Cursor is made.
  void TakeShares(Policy* policy);
  // A stage of the lane has begun.
  void CountStart(int lane);
  // Returns jobs that have an expired rank (Rank::until or Rank::patience).
  std::vector<JobId> TakeExpired(absl::Time now);
  // When the next item that must wait (Rank::waits) is ranked again; InfiniteFuture if there is
  // none. The expiry of other ranks matters only once a slot becomes free, and that comes with an
  // event.
  absl::Time NextStart() const {
    return starts_.empty() ? absl::InfiniteFuture() : starts_.begin()->first;
  }

  int Count(int lane) const {
    return lane < static_cast<int>(lanes_.size()) ? lanes_[static_cast<size_t>(lane)].count : 0;
  }
  int lanes() const { return static_cast<int>(lanes_.size()); }
  // Every item, also those that the policy holds back, with the time at which it became ready. In no
  // order.
  void ForEach(const std::function<void(const WorkItem&, absl::Time since)>& look) const;
  // All items in order, over all lanes.
  std::vector<WorkItem> All(const Policy& policy) const;

 private:
  static constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();
  struct Entry {
    Item item;
    absl::Time since;
    int64_t from = 0;  // Lane::starts when it became ready
    int64_t patient_until = kForEver;
    bool ranked = false;  // false: the policy lets it wait
    int64_t tier = 0, tenant = 0;
    Node node;
  };
  struct Owner {
    std::vector<Entry> entries;
    absl::Time until = absl::InfiniteFuture();
    absl::Time start = absl::InfiniteFuture();  // earliest of the items that must wait
  };
  struct Tier {
    std::map<int64_t, Tenant> tenants;  // never empty
    Order order;
  };
  struct Lane {
    int count = 0;
    int64_t starts = 0;
    std::set<std::pair<int64_t, JobId>> patience;  // by the value of `starts` at which it ends
    std::map<int64_t, Tier> tiers;
    bool WearsOut() const { return !patience.empty() && patience.begin()->first <= starts; }
  };

  void Insert(const Entry& entry, const Policy& policy);
  void Erase(const Entry& entry);

  std::vector<Lane> lanes_;
  std::map<JobId, Owner> owners_;  // jobs with items
  std::map<int64_t, std::set<std::pair<int, int64_t>>>
      places_;              // lanes and tiers that have items of a tenant
  std::set<int> worn_out_;  // lanes that may have ended patience
  std::set<std::pair<absl::Time, JobId>> expiries_;
  std::set<std::pair<absl::Time, JobId>> starts_;
};

}  // namespace heddle::scheduler
