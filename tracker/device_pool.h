// The tracker's decisions without its I/O: which workers exist, which slots are free, and who holds
// which lease.
//
// Pure: no clock, thread or network inside. Time is an argument of every call and must not run
// backwards (the caller's monotonic clock as absl::Time). Not thread-safe; the service holds a lock
// around it.
//
// Invariants, after every call:
//   - two live leases never share a core of one host, and a slot has at most one;
//   - the worker of a live lease is registered, with the boot id it had when the lease was granted;
//   - fencing tokens of granted leases grow strictly;
//   - no lease outlives its expiry;
//   - no worker stays registered after worker_expiry of silence. What the caller's process missed itself does not
//     count as silence: pauses in which it did not run (PoolOptions.longest_pause), and, up to twice worker_expiry,
//     how late it reads heartbeats now (lateness.h). Leases are given no such time: their holders count, too.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/pauses.h"
#include "tracker/lateness.h"

namespace heddle::tracker {

enum class SlotKind { kCpu, kDevice };

struct SlotSpec {
  std::string name;  // unique within the worker
  SlotKind kind = SlotKind::kCpu;
  std::vector<int> cores;           // of the host, 0-based
  std::string device_key;           // device slots only
  std::string target;               // device slots only: canonical text without -threads
  std::string note;                 // for people: what the slot cannot keep off its cores
  std::vector<std::string> builds;  // CPU slots: kinds of targets that it has compilers for
  std::string machine;              // device slots: what was measured of them (Slot.machine)
  bool operator==(const SlotSpec&) const = default;
};

// What a worker reports about itself.
struct WorkerReport {
  std::string worker;
  std::string boot_id;
  std::string address;
  std::string host;
  std::vector<SlotSpec> slots;
  bool draining = false;
  // While draining: the worker ends within this time, whatever its stages do. Zero: it waits for them.
  absl::Duration leaving{};
  double load_average = 0;
  std::string version;
  // Slots in quarantine by name, with the reason: the worker's guard distrusts measurements there.
  std::map<std::string, std::string> troubles;
};

struct Lease {
  std::string id;
  uint64_t fencing_token = 0;
  std::string worker;
  std::string slot;
  std::string holder;
  std::string owner;  // the identity of who acquired it
  std::string purpose;
  absl::Time expires;
};

struct AcquireOrder {
  std::string worker;
  std::string slot;
  std::string holder;   // the client that asks, as it names itself
  std::string owner;    // its identity; only this one renews and releases the lease
  std::string purpose;  // for people
  absl::Duration duration;
};

enum class SlotState { kFree, kHeld, kBlocked, kDraining, kQuarantined };

struct SlotView {
  SlotSpec spec;
  SlotState state = SlotState::kFree;
  std::string reason;    // one line; when free: the slot's note
  std::string lease_id;  // when held
  std::string holder;    // when held
  std::string retires;   // when held: why it is given to nobody afterwards
  absl::Duration lease_remaining;
};

struct WorkerView {
  WorkerReport report;  // its slots are in `slots`, with their state
  absl::Duration since_sync;
  std::vector<SlotView> slots;
};

// How the list differs from that of an earlier version.
struct PoolChanges {
  uint64_t version = 0;  // of the list that this leads to
  // Whether `workers` is the whole list. False: it has those that changed, and `gone` names those that
  // are no longer there. Both are in the order of the changes.
  bool whole = false;
  std::vector<WorkerView> workers;
  std::vector<std::string> gone;
};

struct PoolOptions {
  absl::Duration worker_expiry = absl::Seconds(10);  // silence after which a worker is gone
  // How soon workers are told to report again, if there are few. Short enough that the stage of a lost lease stops
  // soon.
  absl::Duration sync_interval = absl::Seconds(1);
  // Many workers report less often, so that all of them make about so many calls a second, each of which costs a quarter of
  // a millisecond at both ends. Up to a quarter of worker_expiry, so that three reports may be lost.
  double reports_per_second = 400;
  // At least so often there is a call while the caller's process gets processor time. What a pause between two
  // calls lasts beyond that is no silence of workers: their reports may wait to be read.
  absl::Duration longest_pause = absl::InfiniteDuration();
  absl::Duration min_lease = absl::Seconds(1);
  absl::Duration max_lease = absl::Hours(1);
  // A person who was refused a slot that is in use gets it next: for so long after the latest try,
  // nobody else gets it, nor one that shares a core with it. A scheduler with much to do would take it
  // again within milliseconds.
  absl::Duration person_waits = absl::Seconds(2);
  // Bounds on what a stranger can make the tracker remember; far above any real installation.
  size_t max_workers = 4096;
  size_t max_slots_per_worker = 1024;
};

class DevicePool {
 public:
  explicit DevicePool(const PoolOptions& options = {}) : options_(options) {}

  // Registers the worker or refreshes it, and returns the live leases of its slots. A new boot id
  // ends its leases. A slot in `troubles` gets no new lease until a report leaves it out; a lease
  // that is held stays valid. InvalidArgument: a malformed report. AlreadyExists: a newer boot id
  // has replaced this one, so two processes use one worker id. ResourceExhausted: too many workers
  // or slots.
  absl::StatusOr<std::vector<Lease>> Synchronize(const WorkerReport& report, absl::Time now);
  // How soon a worker that reports now is to report again.
  absl::Duration SyncInterval() const;

  // Grants the slot. `token` must be greater than every earlier token (otherwise Internal).
  // NotFound: no such worker or slot. FailedPrecondition: quarantined or draining.
  // ResourceExhausted: held, blocked by a slot that shares a core, or kept for a person who waits for
  // it; the message says by whom or for whom. A person is a holder that begins with kPersonHolder.
  // InvalidArgument: a duration out of bounds, or no holder.
  absl::StatusOr<Lease> Acquire(const AcquireOrder& order, uint64_t token, absl::Time now);
  // Extends the lease to now + duration; never shortens it. NotFound: expired or released.
  // PermissionDenied: `owner` is not the identity that acquired it.
  absl::StatusOr<Lease> Renew(const std::string& lease_id, const std::string& owner,
                              absl::Duration duration, absl::Time now);
  // Unknown ids are no error: the lease has expired or was released before. PermissionDenied as for
  // Renew.
  absl::Status Release(const std::string& lease_id, const std::string& owner, absl::Time now);

  // All leases are void: another tracker has served meanwhile.
  void EndLeases();

  // The live lease of that id, until the next call that changes something; null: there is none.
  const Lease* FindLease(const std::string& lease_id) const;

  // Drops expired leases and workers that are silent for too long. Every other call does this
  // first.
  void Expire(absl::Time now);

  // Sorted by worker id. Takes time in proportion to the number of slots.
  std::vector<WorkerView> List(absl::Time now);
  // What changed since the list of that version, 0 being the empty list of the beginning. Takes time in
  // proportion to the number of changes. Gives the whole list for version 0, and where more than
  // max_workers workers have gone since, so that some of their names are forgotten.
  PoolChanges ChangesSince(uint64_t version, absl::Time now);
  // The address at which the worker listens; empty if it is not registered.
  std::string AddressOf(const std::string& worker) const;
  // Grows with every change that List shows, except heartbeats and the passing of time.
  uint64_t version() const { return version_; }
  // Leases that ran out so far because nobody renewed them.
  int64_t expired_leases() const { return expired_leases_; }
  // The workers that were dropped for their silence since the last call, at most max_workers. Those that
  // were draining are not among them: they have left.
  std::vector<std::string> TakeLost() { return std::exchange(lost_, {}); }

 private:
  struct Worker {
    WorkerReport report;
    absl::Time last_sync;
    absl::Time heard;           // from when its silence counts: last_sync, and pauses since
    absl::Duration interval{};  // until its next report, as it was told at last_sync
    std::deque<std::string> retired_boots;  // only the newest few
    uint64_t changed = 0;                   // version of the latest change that List shows
  };
  struct Host {
    std::set<std::string> workers;
    std::set<std::string> leases;  // ids of live ones
  };
  using SlotKey = std::pair<std::string, std::string>;  // worker, slot
  struct Wish {
    std::string holder;
    absl::Time until;
  };

  absl::Status CheckReport(const WorkerReport& report) const;
  const SlotSpec* FindSlot(const std::string& worker, const std::string& slot) const;
  // The lease that keeps `slot` of `host` from being granted; null if there is none.
  const Lease* Conflict(const std::string& worker, const SlotSpec& slot) const;
  // Somebody else who waits for the slot, or for one that shares a core with it; empty: nobody.
  std::string WaitsFor(const AcquireOrder& order, const SlotSpec& slot) const;
  // Why the slot is not given out, and which state it therefore has when it is not held.
  static std::optional<std::pair<SlotState, std::string>> OutOfUse(const Worker& worker,
                                                                   const SlotSpec& slot);
  SlotView View(const Worker& worker, const SlotSpec& slot, absl::Time now) const;
  WorkerView View(const Worker& worker, absl::Time now) const;
  void DropLeasesOf(const std::string& worker);
  void EndLease(std::map<std::string, Lease>::iterator lease);
  void LeaveHost(const WorkerReport& report);
  void DropWorker(std::map<std::string, Worker>::iterator worker);
  // A pause that ends now is no silence of workers.
  void ExcusePause(absl::Time now);
  void Hear(Worker* worker, bool rebooted, absl::Time now);
  // Note a change of what List shows: of one worker, or of all on a host, since a lease blocks the
  // slots that share its cores.
  void Changed(Worker* worker);
  void ChangedOn(const std::string& host);
  void Forget(const std::string& worker);  // that it has gone

  const PoolOptions options_;
  std::map<std::string, Worker> workers_;
  std::map<std::string, Lease> leases_;           // by id
  std::map<SlotKey, std::string> lease_of_slot_;  // inverse of the above
  std::map<SlotKey, Wish> wishes_;                // of people who wait; of each slot the first
  std::map<std::string, Host> hosts_;             // those with workers
  // Nothing expires before this time, so that no call has to look.
  absl::Time next_expiry_ = absl::InfiniteFuture();
  Pauses pauses_{options_.longest_pause};  // between calls of Expire
  Lateness lateness_;
  absl::Duration late_;  // that heartbeats are read now
  uint64_t last_token_ = 0;
  uint64_t version_ = 0;
  std::map<uint64_t, std::string> changes_;  // registered workers by their latest change
  std::map<uint64_t, std::string> gone_;  // workers that are gone, by when; the newest max_workers
  std::map<std::string, uint64_t> when_gone_;  // inverse of the above
  uint64_t forgotten_ = 0;                     // the newest that gone_ no longer has
  int64_t expired_leases_ = 0;
  std::vector<std::string> lost_;
};

}  // namespace heddle::tracker
