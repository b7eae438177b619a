// Random operations under virtual time against a model that is as simple as can be: a list of every
// lease ever granted and what became of it, and a list of how late each heartbeat was. A failure prints the seed; HEDDLE_SEED=n runs only
// that one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tracker/device_pool.h"

namespace heddle::tracker {
namespace {

constexpr int kWorkers = 3;  // 0 and 1 on one host
constexpr double kWorkerExpiry = 10;
constexpr double kSyncInterval = 4, kLongestPause = 3;
constexpr const char* kOwnerOfAll = "scheduler/main";  // of all leases

struct ModelWorker {
  bool there = false;
  int boot = 0;
  bool draining = false;
  double heard = 0;  // seconds of long pauses are left out
};
struct ModelLease {
  std::string id;
  int worker;
  int slot;
  double expires;
  bool ended = false;
};

const std::vector<std::vector<int>> kSlotCores = {{0}, {1}, {0, 1}, {2, 3}, {3}};

class Model {
 public:
  void Advance(double now) {
    const double excess = now - std::exchange(last_call, now) - kLongestPause;
    excused += excess > 0;
    for (int w = 0; w < kWorkers; ++w) {
      workers[w].heard += std::max(0.0, excess);
      if (workers[w].there && workers[w].heard + kWorkerExpiry + Late() <= now) {
        workers[w].there = false;
        EndAll(w);
      }
    }
    for (ModelLease& lease : leases) {
      if (lease.expires <= now) lease.ended = true;
    }
  }
  // The median of how late the newest heartbeats were; those that never came count as 0.
  double Late() const {
    std::vector<double> newest(Lateness::kLatest);
    const size_t count = std::min(late.size(), newest.size());
    std::copy(late.end() - static_cast<std::ptrdiff_t>(count), late.end(), newest.begin());
    std::sort(newest.begin(), newest.end());
    return std::min(2 * kWorkerExpiry, newest[newest.size() / 2]);
  }
  void EndAll(int worker) {
    for (ModelLease& lease : leases) {
      if (lease.worker == worker) lease.ended = true;
    }
  }
  bool MayGrant(int worker, int slot) const {
    if (!workers[worker].there || workers[worker].draining || quarantined.count({worker, slot}) > 0)
      return false;
    for (const ModelLease& lease : leases) {
      if (lease.ended || Host(lease.worker) != Host(worker)) continue;
      for (int a : kSlotCores[lease.slot]) {
        for (int b : kSlotCores[slot]) {
          if (a == b) return false;
        }
      }
    }
    return true;
  }
  std::set<std::string> LiveOf(int worker) const {
    std::set<std::string> live;
    for (const ModelLease& lease : leases) {
      if (lease.worker == worker && !lease.ended) live.insert(lease.id);
    }
    return live;
  }
  static int Host(int worker) { return worker < 2 ? 0 : 1; }

  ModelWorker workers[kWorkers];
  std::vector<ModelLease> leases;
  std::vector<double> late;  // each heartbeat
  double last_call = 0;
  int excused = 0;  // pauses
  std::set<std::pair<int, int>> quarantined;
};

class Episode {
 public:
  explicit Episode(uint64_t seed)
      : rng_(seed),
        pool_(PoolOptions{.worker_expiry = absl::Seconds(kWorkerExpiry),
                          .sync_interval = absl::Seconds(kSyncInterval),
                          .longest_pause = absl::Seconds(kLongestPause)}) {}

  void Steps(int count) {
    for (int k = 0; k < count && !::testing::Test::HasFailure(); ++k) {
      // Whole and half seconds, so that instants coincide with expiries now and then.
      now_ += 0.5 * Pick(4) + (Pick(40) == 0 ? 8 : 0);
      model_.Advance(now_);
      switch (Pick(7)) {
        case 0:
        case 1:
          Synchronize(Pick(kWorkers));
          break;
        case 2:
        case 3:
        case 4:
          Acquire(Pick(kWorkers), Pick(static_cast<int>(kSlotCores.size())));
          break;
        case 5:
          Renew();
          break;
        case 6:
          Release();
          break;
      }
      CheckList();
      if (Pick(3) == 0) Follow();
    }
    Follow();
  }
  int granted() const { return static_cast<int>(model_.leases.size()); }
  int changes_told() const { return changes_told_; }
  int excused() const { return model_.excused; }
  int late() const { return late_; }

 private:
  int Pick(int n) { return static_cast<int>(rng_() % n); }
  absl::Time Now() const { return absl::UnixEpoch() + absl::Seconds(now_); }
  static std::string Name(int worker) { return "w" + std::to_string(worker); }
  static std::string SlotName(int slot) { return "s" + std::to_string(slot); }

  void Synchronize(int w) {
    ModelWorker& worker = model_.workers[w];
    const bool rebooted = Pick(6) == 0 && worker.boot > 0;
    if (rebooted) {
      ++worker.boot;
      model_.EndAll(w);
    } else if (worker.boot == 0) {
      worker.boot = 1;
    }
    if (worker.there && !rebooted)
      model_.late.push_back(std::max(0.0, now_ - worker.heard - kSyncInterval));
    worker.there = true;
    worker.draining = Pick(8) == 0;
    worker.heard = now_;
    WorkerReport report{.worker = Name(w),
                        .boot_id = std::to_string(worker.boot),
                        .address = "a",
                        .host = Model::Host(w) == 0 ? "h0" : "h1",
                        .slots = {},
                        .draining = worker.draining,
                        .load_average = 0,
                        .version = "",
                        .troubles = {}};
    for (int s = 0; s < static_cast<int>(kSlotCores.size()); ++s) {
      report.slots.push_back({SlotName(s), SlotKind::kCpu, kSlotCores[s], "", "", ""});
      // A slot's trouble begins and ends now and then.
      const bool troubled = (model_.quarantined.count({w, s}) > 0) != (Pick(12) == 0);
      if (troubled) {
        model_.quarantined.insert({w, s});
        report.troubles[SlotName(s)] = "test";
      } else {
        model_.quarantined.erase({w, s});
      }
    }
    const auto leases = pool_.Synchronize(report, Now());
    ASSERT_TRUE(leases.ok()) << leases.status();
    std::set<std::string> ids;
    for (const Lease& lease : *leases) ids.insert(lease.id);
    EXPECT_EQ(ids, model_.LiveOf(w));
    late_ += model_.Late() > 0;
    model_.Advance(now_);  // heartbeats that are read sooner again end the time of others
  }

  void Acquire(int w, int s) {
    const bool expected = model_.MayGrant(w, s);
    const int seconds = 1 + Pick(12);
    token_ += 1 + Pick(3);
    const auto lease = pool_.Acquire({.worker = Name(w),
                                      .slot = SlotName(s),
                                      .holder = "h",
                                      .owner = kOwnerOfAll,
                                      .purpose = "",
                                      .duration = absl::Seconds(seconds)},
                                     token_, Now());
    ASSERT_EQ(lease.ok(), expected) << lease.status();
    if (!lease.ok()) return;
    EXPECT_GT(lease->fencing_token, last_granted_);
    last_granted_ = lease->fencing_token;
    model_.leases.push_back({lease->id, w, s, now_ + seconds});
  }

  void Renew() {
    if (model_.leases.empty()) return;
    ModelLease& lease = Recent();
    const int seconds = 1 + Pick(6);
    const bool own = Pick(4) != 0;
    const auto renewed =
        pool_.Renew(lease.id, own ? kOwnerOfAll : "other", absl::Seconds(seconds), Now());
    ASSERT_EQ(renewed.ok(), own && !lease.ended);
    if (renewed.ok()) lease.expires = std::max(lease.expires, now_ + seconds);
  }

  void Release() {
    if (model_.leases.empty()) return;
    ModelLease& lease = Recent();
    const bool own = Pick(4) != 0;
    ASSERT_EQ(pool_.Release(lease.id, own ? kOwnerOfAll : "other", Now()).ok(), own || lease.ended);
    if (own) lease.ended = true;
  }

  // Mostly live leases, now and then one long gone.
  ModelLease& Recent() {
    const int n = static_cast<int>(model_.leases.size());
    return model_.leases[Pick(5) == 0 ? Pick(n) : n - 1 - Pick(std::min(n, 5))];
  }

  // Whoever follows the changes knows the list.
  void Follow() {
    const PoolChanges changes = pool_.ChangesSince(followed_, Now());
    EXPECT_EQ(changes.version, pool_.version());
    EXPECT_EQ(changes.whole, followed_ == 0);
    followed_ = changes.version;
    // One that came and went in between was never told.
    for (const std::string& name : changes.gone) followers_.erase(name);
    for (const WorkerView& worker : changes.workers) {
      const bool news = followers_[worker.report.worker] != Text(worker);
      // A change that was undone since is told, too.
      changes_told_ += news ? 1 : 0;
      followers_[worker.report.worker] = Text(worker);
    }
    std::map<std::string, std::string> list;
    for (const WorkerView& worker : pool_.List(Now())) list[worker.report.worker] = Text(worker);
    EXPECT_EQ(followers_, list);
    const PoolChanges none = pool_.ChangesSince(followed_, Now());
    EXPECT_TRUE(none.whole || (none.workers.empty() && none.gone.empty()));
  }
  // All that a list shows, but for what time changes.
  static std::string Text(const WorkerView& worker) {
    std::string text = worker.report.boot_id + worker.report.address + worker.report.host;
    for (const SlotView& slot : worker.slots) {
      text += "\n" + slot.spec.name + " " + std::to_string(static_cast<int>(slot.state)) + " " +
              slot.reason + " " + slot.lease_id + " " + slot.holder;
    }
    return text;
  }

  void CheckList() {
    std::set<std::pair<std::string, int>> busy;  // host, core
    std::set<std::string> listed;
    for (const WorkerView& worker : pool_.List(Now())) {
      listed.insert(worker.report.worker);
      const int w = worker.report.worker[1] - '0';
      std::set<std::string> held;
      for (const SlotView& slot : worker.slots) {
        const int s = slot.spec.name[1] - '0';
        EXPECT_EQ(slot.state == SlotState::kFree, model_.MayGrant(w, s));
        EXPECT_EQ(slot.reason.empty(), slot.state == SlotState::kFree);
        if (slot.state != SlotState::kHeld) continue;
        EXPECT_GT(slot.lease_remaining, absl::ZeroDuration());
        held.insert(slot.lease_id);
        for (int core : slot.spec.cores) {
          EXPECT_TRUE(busy.insert({worker.report.host, core}).second)
              << "two live leases share core " << core;
        }
      }
      EXPECT_EQ(held, model_.LiveOf(w));
    }
    for (int w = 0; w < kWorkers; ++w)
      EXPECT_EQ(listed.count(Name(w)) > 0, model_.workers[w].there);
  }

  std::mt19937_64 rng_;
  DevicePool pool_;
  Model model_;
  double now_ = 0;
  uint64_t token_ = 0;
  uint64_t last_granted_ = 0;
  uint64_t followed_ = 0;
  std::map<std::string, std::string> followers_;  // worker -> Text
  int changes_told_ = 0;
  int late_ = 0;  // heartbeats after which the tracker counted as late
};

TEST(DevicePoolProperty, AgreesWithTheModel) {
  const char* only = std::getenv("HEDDLE_SEED");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t last = only != nullptr ? first : 200;
  int granted = 0, told = 0, excused = 0, late = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("HEDDLE_SEED=" + std::to_string(seed));
    Episode run(seed);
    run.Steps(400);
    granted += run.granted();
    told += run.changes_told();
    excused += run.excused();
    late += run.late();
    if (HasFailure()) return;
  }
  EXPECT_GT(granted, 20 * static_cast<int>(last - first + 1))
      << "the operations hardly ever get a lease";
  EXPECT_GT(told, granted / 2) << "leases are granted without a change";
  EXPECT_GT(excused, static_cast<int>(last - first + 1)) << "no pauses";
  EXPECT_GT(late, static_cast<int>(last - first + 1)) << "no heartbeat was late";
}

}  // namespace
}  // namespace heddle::tracker
