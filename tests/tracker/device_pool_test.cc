// Examples of every rule of the device pool, and what its refusals say.
#include "tracker/device_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/vocabulary/limits.h"

namespace heddle::tracker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

SlotSpec Cpu(const std::string& name, std::vector<int> cores) {
  return {name, SlotKind::kCpu, std::move(cores), "", "", ""};
}
SlotSpec Device(const std::string& name, std::vector<int> cores) {
  return {name, SlotKind::kDevice, std::move(cores), "key", "llvm -mcpu=znver5", ""};
}

WorkerReport Report(const std::string& worker = "w", const std::string& boot = "b1") {
  return {.worker = worker,
          .boot_id = boot,
          .address = worker + ":1",
          .host = "host",
          .slots = {Cpu("cpu0", {0}), Device("profile1", {1}), Device("profile0-1", {0, 1})},
          .draining = false,
          .load_average = 0,
          .version = "1",
          .troubles = {}};
}

constexpr const char* kOwner = "scheduler/main";

AcquireOrder Order(const std::string& slot, double seconds = 30, const std::string& worker = "w") {
  return {.worker = worker,
          .slot = slot,
          .holder = "scheduler",
          .owner = kOwner,
          .purpose = "j1 build",
          .duration = absl::Seconds(seconds)};
}

class DevicePoolTest : public ::testing::Test {
 protected:
  absl::StatusOr<Lease> Acquire(const AcquireOrder& order, double at) {
    return pool_.Acquire(order, ++token_, At(at));
  }
  SlotView View(const std::string& slot, double at) {
    for (const WorkerView& worker : pool_.List(At(at))) {
      for (const SlotView& view : worker.slots) {
        if (view.spec.name == slot) return view;
      }
    }
    ADD_FAILURE() << "no slot " << slot;
    return {};
  }

  DevicePool pool_;
  uint64_t token_ = 0;
};

TEST_F(DevicePoolTest, SharedCoresExcludeEachOther) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  ASSERT_TRUE(Acquire(Order("cpu0"), 1).ok());
  EXPECT_TRUE(Acquire(Order("profile1"), 1).ok()) << "other core";
  const auto both = Acquire(Order("profile0-1"), 1);
  EXPECT_EQ(both.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(both.status().message(),
              HasSubstr("shares a core with cpu0 of w, held by scheduler (j1 build)"));
  EXPECT_EQ(View("profile0-1", 1).state, SlotState::kBlocked);
  EXPECT_EQ(View("cpu0", 1).state, SlotState::kHeld);
}

TEST_F(DevicePoolTest, WorkersOfOneHostShareCoresAndOthersDoNot) {
  WorkerReport neighbour = Report("neighbour");
  WorkerReport stranger = Report("stranger");
  stranger.host = "elsewhere";
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  ASSERT_TRUE(pool_.Synchronize(neighbour, At(0)).ok());
  ASSERT_TRUE(pool_.Synchronize(stranger, At(0)).ok());
  ASSERT_TRUE(Acquire(Order("profile0-1"), 0).ok());
  EXPECT_FALSE(Acquire(Order("cpu0", 30, "neighbour"), 0).ok());
  EXPECT_TRUE(Acquire(Order("cpu0", 30, "stranger"), 0).ok());
}

TEST_F(DevicePoolTest, APersonWhoWaitsComesNext) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const auto asks = [&](const std::string& who, const std::string& slot, double at) {
    AcquireOrder order = Order(slot);
    order.holder = "person:" + who;
    return Acquire(order, at);
  };
  const Lease stage = Acquire(Order("cpu0"), 0).value();
  EXPECT_FALSE(asks("ann", "cpu0", 1).ok()) << "a stage runs";
  EXPECT_FALSE(asks("bob", "cpu0", 1).ok());
  ASSERT_TRUE(pool_.Release(stage.id, kOwner, At(1.5)).ok());
  const auto again = Acquire(Order("cpu0"), 1.5);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(again.status().message(), HasSubstr("kept for person:ann, who waits for it"));
  EXPECT_FALSE(Acquire(Order("profile0-1"), 1.5).ok()) << "it shares a core";
  EXPECT_TRUE(Acquire(Order("profile1"), 1.5).ok()) << "nobody waits for this one";
  EXPECT_FALSE(asks("bob", "cpu0", 1.5).ok()) << "ann was the first";
  EXPECT_TRUE(asks("ann", "cpu0", 2).ok());
}

TEST_F(DevicePoolTest, WhoNoLongerAsksIsForgotten) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease stage = Acquire(Order("cpu0"), 0).value();
  AcquireOrder ann = Order("cpu0");
  ann.holder = "person:ann";
  EXPECT_FALSE(Acquire(ann, 1).ok());
  ASSERT_TRUE(pool_.Release(stage.id, kOwner, At(1.5)).ok());
  EXPECT_FALSE(Acquire(Order("cpu0"), 2.9).ok());
  EXPECT_TRUE(Acquire(Order("cpu0"), 3.1).ok());
  // A scheduler's own refused order keeps nothing.
  EXPECT_FALSE(Acquire(Order("profile0-1"), 4).ok());
  EXPECT_TRUE(Acquire(Order("profile1"), 4).ok());
}

TEST_F(DevicePoolTest, LeasesExpireUnlessRenewed) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease lease = Acquire(Order("cpu0", 5), 0).value();
  EXPECT_FALSE(Acquire(Order("cpu0"), 4).ok());
  ASSERT_TRUE(pool_.Renew(lease.id, kOwner, absl::Seconds(5), At(4)).ok());
  EXPECT_FALSE(Acquire(Order("cpu0"), 8).ok());
  EXPECT_EQ(pool_.Renew(lease.id, kOwner, absl::Seconds(5), At(9)).status().code(),
            absl::StatusCode::kNotFound);
  const auto next = Acquire(Order("cpu0"), 9);
  ASSERT_TRUE(next.ok());
  EXPECT_GT(next->fencing_token, lease.fencing_token);
}

TEST_F(DevicePoolTest, RenewingNeverShortens) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease lease = Acquire(Order("cpu0", 60), 0).value();
  EXPECT_EQ(pool_.Renew(lease.id, kOwner, absl::Seconds(1), At(1))->expires, At(60));
}

TEST_F(DevicePoolTest, ReleasingTwiceIsNoErrorAndFreesOnlyOnce) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease first = Acquire(Order("cpu0"), 0).value();
  ASSERT_TRUE(pool_.Release(first.id, kOwner, At(1)).ok());
  ASSERT_TRUE(Acquire(Order("cpu0"), 1).ok());
  ASSERT_TRUE(pool_.Release(first.id, kOwner, At(1)).ok());
  EXPECT_FALSE(Acquire(Order("cpu0"), 1).ok())
      << "the old lease's release must not free the new one";
}

TEST_F(DevicePoolTest, OnlyItsOwnerRenewsAndReleasesALease) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease lease = Acquire(Order("cpu0", 5), 0).value();
  for (const char* other : {"scheduler/second", "operator/main", "local", ""}) {
    EXPECT_EQ(pool_.Renew(lease.id, other, absl::Seconds(60), At(1)).status().code(),
              absl::StatusCode::kPermissionDenied);
    const absl::Status released = pool_.Release(lease.id, other, At(1));
    EXPECT_EQ(released.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(released.message(), HasSubstr("is held by scheduler/main"));
  }
  EXPECT_EQ(View("cpu0", 4).state, SlotState::kHeld);
  EXPECT_EQ(View("cpu0", 5).state, SlotState::kFree) << "a refused renewal extends nothing";
  EXPECT_TRUE(pool_.Release(lease.id, "local", At(5)).ok()) << "it is gone, whoever asks";
}

TEST_F(DevicePoolTest, SilentWorkersAreGoneWithTheirLeases) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease lease = Acquire(Order("cpu0", 3600), 0).value();
  EXPECT_EQ(pool_.List(At(9)).size(), 1u);
  EXPECT_TRUE(pool_.List(At(10)).empty());
  EXPECT_FALSE(pool_.Renew(lease.id, kOwner, absl::Seconds(5), At(10)).ok());
  EXPECT_EQ(Acquire(Order("cpu0"), 10).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(pool_.Synchronize(Report(), At(11))->empty());
}

TEST_F(DevicePoolTest, ARestartedWorkerLosesItsLeasesAndAnEchoDoesNot) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease lease = Acquire(Order("cpu0"), 0).value();
  const auto same = pool_.Synchronize(Report(), At(1));
  ASSERT_EQ(same->size(), 1u);
  EXPECT_EQ(same->front().id, lease.id);
  EXPECT_TRUE(pool_.Synchronize(Report("w", "b2"), At(2))->empty());
  EXPECT_TRUE(Acquire(Order("cpu0"), 2).ok());
  const auto replaced = pool_.Synchronize(Report("w", "b1"), At(3));
  EXPECT_EQ(replaced.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(replaced.status().message(), HasSubstr("worker id w is used by a newer process"));
}

// An operator who reads a refusal learns which worker or slot it is about, and what to do.
TEST_F(DevicePoolTest, RefusalsNameTheThingAndTheWayOut) {
  const auto refusal = [](DevicePool* pool, const WorkerReport& report) {
    return std::string(pool->Synchronize(report, At(0)).status().message());
  };
  DevicePool small(PoolOptions{.max_workers = 1, .max_slots_per_worker = 3});
  ASSERT_EQ(refusal(&small, Report("a")), "");
  EXPECT_THAT(refusal(&small, Report("b")),
              AllOf(HasSubstr("worker b is not registered"), HasSubstr("run another tracker")));
  DevicePool smaller(PoolOptions{.max_slots_per_worker = 2});
  EXPECT_THAT(refusal(&smaller, Report("a")),
              AllOf(HasSubstr("worker a has 3 slots"), HasSubstr("--cpu-slots")));
  WorkerReport twice = Report("a");
  twice.slots[1].name = twice.slots[0].name;
  EXPECT_THAT(refusal(&smaller, twice), HasSubstr("3 slots"));
  EXPECT_THAT(refusal(&pool_, twice),
              AllOf(HasSubstr("worker a has two slots named cpu0"), HasSubstr("--cpu-slots")));
  WorkerReport nameless = Report("");
  EXPECT_THAT(refusal(&pool_, nameless), AllOf(HasSubstr(nameless.address), HasSubstr("--id")));
  ASSERT_EQ(refusal(&pool_, Report()), "");
  EXPECT_THAT(std::string(Acquire(Order("cpu9"), 0).status().message()),
              AllOf(HasSubstr("no slot cpu9 of a worker w"), HasSubstr("heddle devices")));
  const Lease lease = Acquire(Order("cpu0"), 0).value();
  EXPECT_THAT(
      std::string(
          pool_.Renew(lease.id, lease.owner, absl::ZeroDuration(), At(0)).status().message()),
      HasSubstr("a lease lasts 1s to 1h, not 0"));
}

TEST_F(DevicePoolTest, DrainingWorkersKeepLeasesAndGiveNoNewOnes) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease lease = Acquire(Order("cpu0"), 0).value();
  WorkerReport draining = Report();
  draining.draining = true;
  EXPECT_EQ(pool_.Synchronize(draining, At(1))->size(), 1u);
  EXPECT_EQ(Acquire(Order("profile1"), 1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(pool_.Renew(lease.id, kOwner, absl::Seconds(5), At(1)).ok());
}

TEST_F(DevicePoolTest, ATroubledSlotIsInQuarantineUntilItsWorkerLeavesItOut) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const auto lease = Acquire(Order("profile1"), 0);
  ASSERT_TRUE(lease.ok());
  WorkerReport troubled = Report();
  troubled.troubles["profile1"] = "20 measurements in a row were disturbed";
  const uint64_t before = pool_.version();
  const auto kept = pool_.Synchronize(troubled, At(1));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->size(), 1u) << "a lease that is held goes on";
  EXPECT_GT(pool_.version(), before) << "whoever watches is told";
  ASSERT_TRUE(pool_.Release(lease->id, kOwner, At(2)).ok());
  EXPECT_EQ(View("profile1", 2).state, SlotState::kQuarantined);
  EXPECT_EQ(View("profile1", 2).reason, "quarantined: 20 measurements in a row were disturbed");
  EXPECT_EQ(View("profile0-1", 2).state, SlotState::kFree) << "each slot for itself";
  const auto refused = Acquire(Order("profile1"), 2);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("20 measurements in a row"));
  ASSERT_TRUE(pool_.Synchronize(Report(), At(3)).ok());
  EXPECT_TRUE(Acquire(Order("profile1"), 3).ok()) << "its canary passed";
  troubled.troubles = {{"nothing", "x"}};
  EXPECT_EQ(pool_.Synchronize(troubled, At(4)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DevicePoolTest, AFreeSlotTellsItsNote) {
  WorkerReport report = Report();
  report.slots[1].note = "the daemons share core 1";
  ASSERT_TRUE(pool_.Synchronize(report, At(0)).ok());
  EXPECT_EQ(View("profile1", 0).state, SlotState::kFree);
  EXPECT_EQ(View("profile1", 0).reason, "the daemons share core 1");
}

TEST_F(DevicePoolTest, ChangedSlotsVoidTheLeases) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  ASSERT_TRUE(Acquire(Order("cpu0"), 0).ok());
  WorkerReport changed = Report();
  changed.slots[0].cores = {2};
  EXPECT_TRUE(pool_.Synchronize(changed, At(1))->empty());
}

TEST_F(DevicePoolTest, MalformedRequestsAreRefused) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const auto code = [](const auto& result) { return result.status().code(); };
  EXPECT_EQ(code(Acquire(Order("cpu0", 0.5), 0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Acquire(Order("cpu0", 3601), 0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(pool_.Acquire(Order("cpu0"), 1000, At(0))), absl::StatusCode::kOk);
  EXPECT_EQ(code(pool_.Acquire(Order("profile1"), 1000, At(0))), absl::StatusCode::kInternal)
      << "token does not grow";
  WorkerReport report = Report("x");
  report.slots[1].name = "cpu0";
  EXPECT_EQ(code(pool_.Synchronize(report, At(0))), absl::StatusCode::kInvalidArgument);
  report = Report("x");
  report.slots[0].cores.clear();
  EXPECT_EQ(code(pool_.Synchronize(report, At(0))), absl::StatusCode::kInvalidArgument);
  report = Report("x");
  report.slots[1].machine = std::string(kMaxMachineBytes, 'x');
  EXPECT_EQ(code(pool_.Synchronize(report, At(0))), absl::StatusCode::kOk);
  report.slots[1].machine += 'x';
  EXPECT_EQ(code(pool_.Synchronize(report, At(0))), absl::StatusCode::kInvalidArgument);
  report = Report("");
  EXPECT_EQ(code(pool_.Synchronize(report, At(0))), absl::StatusCode::kInvalidArgument);
}

TEST_F(DevicePoolTest, WhatEndsByItselfIsCounted) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const Lease released = Acquire(Order("cpu0", 5), 0).value();
  ASSERT_TRUE(pool_.Release(released.id, kOwner, At(1)).ok());
  ASSERT_TRUE(Acquire(Order("cpu0", 5), 1).ok());
  pool_.Expire(At(7));
  EXPECT_EQ(pool_.expired_leases(), 1) << "a released lease did not run out";
  EXPECT_TRUE(pool_.TakeLost().empty());
  pool_.Expire(At(60));
  EXPECT_EQ(pool_.TakeLost(), std::vector<std::string>({"w"}));
  EXPECT_TRUE(pool_.TakeLost().empty()) << "each is told once";
}

TEST_F(DevicePoolTest, VersionGrowsWithVisibleChangesOnly) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  const uint64_t before = pool_.version();
  ASSERT_TRUE(pool_.Synchronize(Report(), At(1)).ok());
  EXPECT_EQ(pool_.version(), before);
  ASSERT_TRUE(Acquire(Order("cpu0"), 1).ok());
  EXPECT_GT(pool_.version(), before);
}

TEST_F(DevicePoolTest, ChangesAreThoseSinceAVersion) {
  ASSERT_TRUE(pool_.Synchronize(Report("a"), At(0)).ok());
  WorkerReport elsewhere = Report("b");
  elsewhere.host = "elsewhere";
  ASSERT_TRUE(pool_.Synchronize(elsewhere, At(0)).ok());
  const PoolChanges first = pool_.ChangesSince(0, At(0));
  EXPECT_TRUE(first.whole);
  EXPECT_EQ(first.workers.size(), 2);
  ASSERT_TRUE(pool_.Synchronize(Report("a"), At(5)).ok());
  EXPECT_EQ(pool_.version(), first.version) << "a heartbeat changes nothing";
  ASSERT_TRUE(Acquire(Order("cpu0", 30, "a"), 5).ok());
  const PoolChanges leased = pool_.ChangesSince(first.version, At(5));
  EXPECT_FALSE(leased.whole);
  ASSERT_EQ(leased.workers.size(), 1);
  EXPECT_EQ(leased.workers[0].report.worker, "a");
  // Here `b` is silent for too long.
  const PoolChanges gone = pool_.ChangesSince(leased.version, At(11));
  EXPECT_TRUE(gone.workers.empty());
  EXPECT_EQ(gone.gone, std::vector<std::string>{"b"});
  ASSERT_TRUE(pool_.Synchronize(Report("a"), At(12)).ok());
  ASSERT_TRUE(pool_.Synchronize(elsewhere, At(12)).ok());
  const PoolChanges back = pool_.ChangesSince(leased.version, At(12));
  EXPECT_TRUE(back.gone.empty()) << "it is there again";
  EXPECT_EQ(back.workers.size(), 1);
}

TEST_F(DevicePoolTest, ALeaseChangesTheOtherWorkersOfItsHost) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  ASSERT_TRUE(pool_.Synchronize(Report("neighbour"), At(0)).ok());
  const uint64_t before = pool_.version();
  ASSERT_TRUE(Acquire(Order("cpu0"), 1).ok());
  EXPECT_EQ(pool_.ChangesSince(before, At(1)).workers.size(), 2);
}

TEST(DevicePoolChanges, NamesOfWorkersThatWentAreKeptUpToALimit) {
  DevicePool pool(PoolOptions{.max_workers = 2});
  const auto comes_and_goes = [&pool](const std::string& name, double at) {
    ASSERT_TRUE(pool.Synchronize(Report(name), At(at)).ok());
    pool.Expire(At(at + 10));
  };
  ASSERT_TRUE(pool.Synchronize(Report("w"), At(0)).ok());
  const uint64_t seen = pool.ChangesSince(0, At(0)).version;
  comes_and_goes("a", 10);
  comes_and_goes("b", 20);
  EXPECT_TRUE(pool.ChangesSince(seen, At(30)).whole) << "w, a and b have gone";
  comes_and_goes("c", 30);
  const PoolChanges changes = pool.ChangesSince(seen, At(40));
  EXPECT_TRUE(changes.whole);
  EXPECT_TRUE(changes.workers.empty());
}

TEST_F(DevicePoolTest, AWorkerThatLeavesSaysSoAndIsNotLost) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  ASSERT_TRUE(pool_.Synchronize(Report("x"), At(0)).ok());
  const uint64_t before = pool_.version();
  WorkerReport leaving = Report();
  leaving.draining = true;
  leaving.leaving = absl::Milliseconds(29'500);
  ASSERT_TRUE(pool_.Synchronize(leaving, At(1)).ok());
  EXPECT_GT(pool_.version(), before);
  EXPECT_EQ(View("cpu0", 1).state, SlotState::kDraining);
  EXPECT_EQ(View("cpu0", 1).reason, "the worker leaves within 30s");
  EXPECT_EQ(View("cpu0", 1).retires, "");
  const uint64_t announced = pool_.version();
  leaving.leaving = absl::Seconds(28);
  ASSERT_TRUE(pool_.Synchronize(leaving, At(2)).ok());
  EXPECT_EQ(pool_.version(), announced) << "only time has passed";
  pool_.Expire(At(20));
  EXPECT_EQ(pool_.TakeLost(), std::vector<std::string>{"x"});
}

// Whoever holds it should give it no more work than can end in time.
TEST_F(DevicePoolTest, AHeldSlotOfAWorkerThatLeavesRetires) {
  ASSERT_TRUE(pool_.Synchronize(Report(), At(0)).ok());
  ASSERT_TRUE(Acquire(Order("cpu0"), 0).ok());
  EXPECT_EQ(View("cpu0", 1).retires, "");
  const uint64_t before = pool_.version();
  WorkerReport report = Report();
  report.draining = true;
  report.leaving = absl::Seconds(30);
  ASSERT_TRUE(pool_.Synchronize(report, At(1)).ok());
  EXPECT_GT(pool_.version(), before) << "whoever watches is told";
  EXPECT_EQ(View("cpu0", 1).state, SlotState::kHeld);
  EXPECT_EQ(View("cpu0", 1).retires, "the worker leaves within 30s");
  report.draining = false;
  report.leaving = absl::ZeroDuration();
  report.troubles["cpu0"] = "noisy";
  ASSERT_TRUE(pool_.Synchronize(report, At(2)).ok());
  EXPECT_EQ(View("cpu0", 2).retires, "quarantined: noisy");
}

// ---- silence of workers, or lateness of the tracker ----

TEST(DevicePoolLateness, APauseOfTheTrackerIsNoSilence) {
  DevicePool pool({.longest_pause = absl::Seconds(1)});
  for (const char* worker : {"w", "x"}) ASSERT_TRUE(pool.Synchronize(Report(worker), At(0)).ok());
  const auto look_until = [&pool](double from, double to) {
    for (double at = from; at <= to; at += 0.5) pool.Expire(At(at));
  };
  // It does not run for half a minute, and the first that happens then is no heartbeat.
  look_until(0.5, 2);
  pool.Expire(At(32));
  ASSERT_TRUE(pool.Synchronize(Report("w"), At(32.5)).ok());
  EXPECT_EQ(pool.List(At(32.5)).size(), 2u);
  // Of the 32 seconds of x, 29 do not count.
  look_until(33, 38.5);
  EXPECT_EQ(pool.List(At(38.5)).size(), 2u);
  pool.Expire(At(39));
  EXPECT_EQ(pool.TakeLost(), std::vector<std::string>{"x"});
  EXPECT_EQ(pool.List(At(39)).size(), 1u);
}

// A thousand workers that report every second take half of a machine with two cores.
TEST(DevicePoolLateness, ManyWorkersReportLessOften) {
  PoolOptions options;
  options.reports_per_second = 40;
  DevicePool pool(options);
  int there = 0;
  const auto add_until = [&](int count) {
    for (; there < count; ++there)
      ASSERT_TRUE(pool.Synchronize(Report(absl::StrCat("w", there)), At(0)).ok());
  };
  EXPECT_EQ(pool.SyncInterval(), options.sync_interval);
  add_until(40);
  EXPECT_EQ(pool.SyncInterval(), options.sync_interval);
  add_until(80);
  EXPECT_EQ(pool.SyncInterval(), absl::Seconds(2));
  add_until(200);
  EXPECT_EQ(pool.SyncInterval(), options.worker_expiry / 4) << "three may be lost";
  // Who comes when it was told to is not late, so a silent worker is gone as soon as ever.
  for (int i = 1; i < there; ++i)
    ASSERT_TRUE(pool.Synchronize(Report(absl::StrCat("w", i)), At(2.5)).ok());
  pool.Expire(At(9.9));
  EXPECT_EQ(pool.List(At(9.9)).size(), 200u);
  pool.Expire(At(10));
  EXPECT_EQ(pool.TakeLost(), std::vector<std::string>{"w0"});
}

class ManyWorkers {
 public:
  // Reads a heartbeat of each worker of the first `count`.
  void Hear(double at, int count = kCount) {
    for (int i = 0; i < count; ++i) {
      const auto heard = pool.Synchronize(Report(absl::StrCat("w", i)), At(at));
      ASSERT_TRUE(heard.ok()) << heard.status();
    }
  }
  size_t Left(double at) { return pool.List(At(at)).size(); }

  static constexpr int kCount = static_cast<int>(Lateness::kLatest);
  DevicePool pool;
};

// Heartbeats come every second, and the tracker reads them later and later.
TEST(DevicePoolLateness, HeartbeatsThatWaitToBeReadAreNoSilence) {
  ManyWorkers many;
  ASSERT_TRUE(many.pool.Synchronize(Report("x"), At(0)).ok());
  many.Hear(0);
  many.Hear(5);
  ASSERT_TRUE(many.pool.Synchronize(Report("x"), At(5)).ok());
  many.Hear(14);
  // 12 s after the last one was read: with the first of these, all others would be gone.
  many.Hear(26);
  EXPECT_EQ(many.pool.TakeLost(), std::vector<std::string>{"x"})
      << "21 s, where 8 s are due to the tracker";
  ASSERT_TRUE(many.pool.Synchronize(Report("x"), At(26)).ok());
  EXPECT_EQ(many.Left(46.5), static_cast<size_t>(many.kCount) + 1) << "11 s late";
  many.Hear(46.5);
  EXPECT_EQ(many.Left(46.5), static_cast<size_t>(many.kCount) + 1);
  // Once it reads them in time again, who was silent is gone at once.
  many.Hear(47.5);
  EXPECT_EQ(many.pool.TakeLost(), std::vector<std::string>{"x"});
  EXPECT_EQ(many.Left(47.5), static_cast<size_t>(many.kCount));
}

TEST(DevicePoolLateness, NobodyStaysForEver) {
  ManyWorkers many;
  double at = 0;
  many.Hear(at);
  for (const double later : {9, 17, 25}) many.Hear(at += later);
  EXPECT_EQ(many.Left(at + 29.5), static_cast<size_t>(many.kCount));
  EXPECT_EQ(many.Left(at + 30), 0u) << "24 s late, of which 20 count";
}

TEST(DevicePoolLateness, AFewSlowWorkersExcuseNobody) {
  ManyWorkers many;
  const int few = many.kCount / 3;
  many.Hear(0);
  for (int second = 1; second <= 9; ++second) many.Hear(second, many.kCount - few);
  many.Hear(9.5);  // the others, who are 8 s late
  EXPECT_EQ(many.Left(19), static_cast<size_t>(many.kCount));
  EXPECT_EQ(many.Left(19.5), 0u);
}

TEST(DevicePoolLateness, ARestartOfAWorkerIsNoDelay) {
  ManyWorkers many;
  many.Hear(0);
  for (int i = 0; i < many.kCount; ++i)
    ASSERT_TRUE(many.pool.Synchronize(Report(absl::StrCat("w", i), "b2"), At(9)).ok());
  EXPECT_EQ(many.Left(18.5), static_cast<size_t>(many.kCount));
  EXPECT_EQ(many.Left(19), 0u);
}

}  // namespace
}  // namespace heddle::tracker
