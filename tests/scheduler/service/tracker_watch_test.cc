// What the scheduler makes of the tracker's messages: the slots of a watch, and the renewal of leases.
#include "scheduler/service/stages/tracker_watch.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "proto/access/channel.h"
#include "scheduler/service/stages/lease_keeper.h"
#include "tests/eventually.h"
#include "tests/scheduler/service/fake_cluster.h"

namespace heddle::scheduler {
namespace {

using testing::Eventually;

std::shared_ptr<v1::TrackerService::StubInterface> StubOf(const FakeCluster& cluster) {
  return v1::TrackerService::NewStub(
      MakeChannel(cluster.tracker_address(), PeerName(Role::kTracker), Credentials{}));
}

// Waits for the answer.
absl::StatusOr<v1::Lease> Acquire(LeaseKeeper* keeper, const SlotId& slot,
                                  std::function<void()> lost = nullptr) {
  absl::StatusOr<v1::Lease> lease;
  absl::Notification answered;
  keeper->Acquire(slot, "test", std::move(lost), [&](absl::StatusOr<v1::Lease> answer) {
    lease = std::move(answer);
    answered.Notify();
  });
  answered.WaitForNotification();
  return lease;
}

// Random lists one after the other. Whoever takes the changes has the same slots as who takes each list.
TEST(WatchedSlots, ChangesLeadToTheSameSlotsAsLists) {
  const auto ours = [](const SlotId&, const v1::SlotStatus& status) {
    return status.holder() == "me";
  };
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    WatchedSlots by_changes;
    std::map<std::string, v1::WorkerStatus> workers;
    by_changes.TakeList({}, ours);
    for (int step = 0; step < 60; ++step) {
      v1::ListWorkersResponse changes;
      for (int i = 0; i < 3; ++i) {
        const std::string name = absl::StrCat("w", rng() % 6);
        if (rng() % 4 == 0) {
          if (workers.erase(name) > 0) changes.add_gone(name);
          continue;
        }
        v1::WorkerStatus& worker = workers[name];
        worker.set_worker(name);
        worker.set_host(absl::StrCat("h", rng() % 2));
        worker.clear_slots();
        for (uint64_t s = 0; s < rng() % 3; ++s) {
          v1::SlotStatus& slot = *worker.add_slots();
          slot.mutable_slot()->set_name(absl::StrCat("s", s));
          slot.set_state(static_cast<v1::SlotState>(1 + rng() % 5));
          slot.set_holder(rng() % 2 == 0 ? "me" : "other");
          slot.set_reason(absl::StrCat("reason ", rng() % 2));
        }
      }
      // A worker that went and came back is not gone.
      v1::ListWorkersResponse list, merged;
      for (const auto& [name, worker] : workers) *list.add_workers() = worker;
      for (const std::string& name : changes.gone()) {
        if (workers.count(name) == 0) merged.add_gone(name);
      }
      *merged.mutable_workers() = list.workers();
      WatchedSlots by_list;
      by_list.TakeList(list, ours);
      const std::vector<SlotInfo> before = by_changes.List();
      const bool changed = by_changes.TakeChanges(merged, ours);
      EXPECT_EQ(by_changes.List(), by_list.List());
      EXPECT_EQ(changed, before != by_changes.List());
      EXPECT_FALSE(by_changes.TakeChanges(merged, ours)) << "the same again";
    }
  }
}

TEST(WatchedSlots, ALeaseOfThisProcessChangesNothing) {
  v1::ListWorkersResponse list;
  v1::WorkerStatus& worker = *list.add_workers();
  worker.set_worker("w");
  v1::SlotStatus& slot = *worker.add_slots();
  slot.mutable_slot()->set_name("cpu0");
  slot.set_state(v1::SLOT_FREE);
  const auto ours = [](const SlotId&, const v1::SlotStatus& status) {
    return status.lease_id() == "mine";
  };
  WatchedSlots slots;
  EXPECT_TRUE(slots.TakeList(list, ours));
  slot.set_state(v1::SLOT_HELD);
  slot.set_lease_id("mine");
  EXPECT_FALSE(slots.TakeChanges(list, ours));
  EXPECT_TRUE(slots.List().at(0).usable);
  slot.set_retires("the worker is draining");
  EXPECT_TRUE(slots.TakeChanges(list, ours)) << "so that its stage gets no further candidates";
  EXPECT_FALSE(slots.List().at(0).usable);
  EXPECT_FALSE(slots.List().at(0).foreign);
  EXPECT_EQ(slots.List().at(0).why_not, "the worker is draining");
  slot.set_lease_id("of another");
  EXPECT_TRUE(slots.TakeChanges(list, ours));
  EXPECT_TRUE(slots.List().at(0).foreign);
}

TEST(LeaseKeeper, RenewsAllInOneCallAndTellsOfThoseThatEnded) {
  FakeCluster cluster;
  // Long, so that none ends on a machine that stands still for a while; renewed after five seconds.
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(15));
  std::atomic<int> lost_kept{0}, lost_revoked{0};
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Acquire(&keeper, {"w1", absl::StrCat("kept", i)}, [&] { ++lost_kept; }).ok());
  }
  ASSERT_TRUE(Acquire(&keeper, {"w1", "revoked"}, [&] { ++lost_revoked; }).ok());
  cluster.tracker.Revoke("revoked");
  ASSERT_TRUE(Eventually([&] { return lost_revoked == 1; }));
  EXPECT_LT(cluster.tracker.renewals, 6) << "one call for all six";
  EXPECT_EQ(lost_kept, 0);
  EXPECT_EQ(lost_revoked, 1);
  EXPECT_EQ(keeper.counts().held, 5);
  EXPECT_EQ(keeper.counts().lost, 1);
}

// A tracker that does not answer holds nobody up once for each lease, and gets all of them back once it answers.
TEST(LeaseKeeper, WhatATrackerDoesNotAnswerIsReleasedLater) {
  FakeCluster cluster;
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
  std::vector<std::string> leases;
  for (int i = 0; i < 100; ++i) {
    leases.push_back(Acquire(&keeper, {"w1", absl::StrCat("s", i)})->id());
  }
  cluster.tracker.lose_releases = 1000;
  keeper.ReleaseAll(leases);
  EXPECT_GT(cluster.tracker.lose_releases, 950)
      << "it was asked again after the first, once a second";
  cluster.tracker.lose_releases = 0;
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 100; ++i) {
      if (cluster.tracker.Held(absl::StrCat("s", i))) return false;
    }
    return true;
  }));
}

// A scheduler that takes over serves at once, also where the tracker is away.
TEST(LeaseKeeper, LeasesOfTheFormerAreReleasedMeanwhile) {
  FakeCluster cluster;
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
  std::vector<std::string> leases;
  {
    LeaseKeeper former(StubOf(cluster), "me", absl::Seconds(60));
    for (int i = 0; i < 100; ++i)
      leases.push_back(Acquire(&former, {"w1", absl::StrCat("s", i)})->id());
  }
  cluster.tracker.lose_releases = 1000;
  keeper.ReleaseLater(leases);
  EXPECT_GT(cluster.tracker.lose_releases, 990) << "nobody waited for an answer to each";
  v1::SlotStatus status;
  status.set_lease_id(leases.front());
  EXPECT_TRUE(keeper.IsOurs({"w1", "s0"}, status)) << "the list still shows it as held";
  cluster.tracker.lose_releases = 0;
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 100; ++i) {
      if (cluster.tracker.Held(absl::StrCat("s", i))) return false;
    }
    return true;
  }));
}

// A tracker that ends a watch so that it begins anew is there.
TEST(TrackerWatch, AListThatBeginsAnewIsToldAsSuch) {
  class Restarting final : public v1::TrackerService::Service {
    grpc::Status WatchWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                              grpc::ServerWriter<v1::ListWorkersResponse>*) override {
      return {grpc::StatusCode::ABORTED, "call again for the whole list"};
    }
  } tracker;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&tracker);
  const auto server = builder.BuildAndStart();
  const std::string address = absl::StrCat("127.0.0.1:", port);
  const std::shared_ptr<v1::TrackerService::StubInterface> stub =
      v1::TrackerService::NewStub(MakeChannel(address, PeerName(Role::kTracker), Credentials{}));
  LeaseKeeper keeper(stub, "me", absl::Seconds(60));
  absl::Mutex mutex;
  std::string problem;
  {
    const TrackerWatch watch(
        stub, [address] { return "the tracker at " + address; }, &keeper,
        [&](const SlotsChanged& event) {
          absl::MutexLock lock(&mutex);
          problem = event.problem;
        });
    EXPECT_TRUE(Eventually([&] {
      absl::MutexLock lock(&mutex);
      return !problem.empty();
    }));
  }
  server->Shutdown();
  EXPECT_EQ(problem, absl::StrCat("the tracker at ", address,
                                  " lists its workers anew: call again for the whole list"));
}

// The next stage of a slot may be ordered while the lease of the last one is still being released.
TEST(LeaseKeeper, WhoeverAcquiresWaitsForAnnouncedReleases) {
  FakeCluster cluster;
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
  const SlotId slot{"w1", "cpu0"};
  const auto first = Acquire(&keeper, slot);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(Acquire(&keeper, slot).ok()) << "it is held";
  keeper.AnnounceRelease(first->id());
  absl::StatusOr<v1::Lease> second;
  std::thread next([&] { second = Acquire(&keeper, slot); });
  v1::SlotStatus status;
  status.set_holder("me");
  EXPECT_TRUE(Eventually([&] { return keeper.IsOurs(slot, status); })) << "it asks";
  absl::SleepFor(absl::Milliseconds(50));  // enough for a call that does not wait to be refused
  keeper.Release(first->id());
  next.join();
  EXPECT_TRUE(second.ok()) << second.status();
}

// Otherwise one lease after the other would be announced while somebody waits.
TEST(LeaseKeeper, WhatIsAnnouncedMeanwhileIsNotWaitedFor) {
  FakeCluster cluster;
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
  const SlotId slot{"w1", "cpu0"};
  v1::SlotStatus status;
  status.set_holder("me");
  // The keeper releases what was announced a second ago, which a machine that stands still may bring about here.
  EXPECT_TRUE(Eventually([&] {
    const auto first = Acquire(&keeper, slot);
    const auto late = Acquire(&keeper, {"w1", "late"});
    EXPECT_TRUE(first.ok() && late.ok());
    keeper.AnnounceRelease(first->id());
    absl::StatusOr<v1::Lease> second;
    bool waits = true;
    std::thread next([&] {
      second = Acquire(&keeper, slot);
      waits = !cluster.tracker.Held("late");
    });
    EXPECT_TRUE(Eventually([&] { return keeper.IsOurs(slot, status); })) << "it asks";
    keeper.AnnounceRelease(late->id());
    keeper.Release(first->id());
    next.join();
    EXPECT_TRUE(second.ok()) << second.status();
    keeper.ReleaseAll({second.ok() ? second->id() : "", late->id()});
    return !waits;
  }));
}

// Slots share cores on one host only. A release that takes long holds up no other host.
TEST(LeaseKeeper, ReleasesOfOtherHostsAreNotWaitedFor) {
  FakeCluster cluster;
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
  v1::ListWorkersResponse list;
  for (const auto& [name, host] :
       {std::pair("w1", "h1"), std::pair("w2", "h1"), std::pair("w3", "h2")}) {
    v1::WorkerStatus& worker = *list.add_workers();
    worker.set_worker(name);
    worker.set_host(host);
  }
  keeper.SetHosts(list, /*whole=*/true);
  // Whether whoever acquires a slot of the worker waits for the release of one of w1.
  const auto waits = [&](const std::string& worker) {
    const auto announced = Acquire(&keeper, {"w1", "announced"});
    EXPECT_TRUE(announced.ok()) << announced.status();
    keeper.AnnounceRelease(announced->id());
    const auto other = Acquire(&keeper, {worker, "other"});
    EXPECT_TRUE(other.ok()) << other.status();
    const bool released = !cluster.tracker.Held("announced");
    keeper.ReleaseAll({announced->id(), other->id()});
    return released;
  };
  // Nobody else releases it, so the keeper does. A machine that stands still may change the order.
  EXPECT_TRUE(Eventually([&] { return waits("w1"); }));
  EXPECT_TRUE(Eventually([&] { return waits("w2"); }));
  EXPECT_TRUE(Eventually([&] { return !waits("w3"); }));
}

// A stage whose end the dispatcher cannot take, as while the store is blocked, holds its slot no longer.
TEST(LeaseKeeper, AnAnnouncedReleaseThatDoesNotComeIsMade) {
  FakeCluster cluster;
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
  const auto lease = Acquire(&keeper, {"w1", "cpu0"});
  ASSERT_TRUE(lease.ok());
  keeper.AnnounceRelease(lease->id());
  EXPECT_TRUE(Eventually([&] { return !cluster.tracker.Held("cpu0"); }));
  EXPECT_EQ(keeper.counts().held, 0);
  keeper.Release(lease->id());
}

// A keeper that is destroyed does not wait for announced releases, but it does wait for the tracker's answers.
TEST(LeaseKeeper, WhoeverWaitsAtTheEndGetsAnAnswer) {
  FakeCluster cluster;
  absl::StatusOr<v1::Lease> second;
  {
    LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
    const auto first = Acquire(&keeper, {"w1", "cpu0"});
    ASSERT_TRUE(first.ok());
    keeper.AnnounceRelease(first->id());
    keeper.Acquire({"w1", "cpu1"}, "test", nullptr,
                   [&](absl::StatusOr<v1::Lease> answer) { second = std::move(answer); });
  }
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST(LeaseKeeper, ASlotIsOursWhileItIsBeingGranted) {
  FakeCluster cluster;
  LeaseKeeper keeper(StubOf(cluster), "me", absl::Seconds(60));
  v1::SlotStatus status;
  status.set_holder("me");
  status.set_lease_id("unknown");
  EXPECT_FALSE(keeper.IsOurs({"w1", "cpu0"}, status));
  const auto lease = Acquire(&keeper, {"w1", "cpu0"});
  ASSERT_TRUE(lease.ok());
  status.set_lease_id(lease->id());
  EXPECT_TRUE(keeper.IsOurs({"w1", "cpu0"}, status));
  keeper.Release(lease->id());
  EXPECT_TRUE(keeper.IsOurs({"w1", "cpu0"}, status)) << "the list may be older";
}

}  // namespace
}  // namespace heddle::scheduler
