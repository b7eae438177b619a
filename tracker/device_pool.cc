#include "tracker/device_pool.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/vocabulary/limits.h"
#include "proto/people_slots.h"

namespace heddle::tracker {
namespace {

// Replaced boot ids that are remembered per worker, to recognise an old process; a few cover a
// crash loop.
constexpr size_t kRetiredBoots = 8;
constexpr size_t kMaxNameBytes = 128;
constexpr int kMaxCore = 1 << 16;
// How late heartbeats are read counts up to so many times worker_expiry, so that a worker that is gone does
// not stay for ever however slow the tracker is.
constexpr int kMostLate = 2;

bool ShareCore(const SlotSpec& a, const SlotSpec& b) {
  return std::any_of(a.cores.begin(), a.cores.end(), [&](int core) {
    return std::find(b.cores.begin(), b.cores.end(), core) != b.cores.end();
  });
}

absl::Status CheckSlot(const SlotSpec& slot) {
  if (slot.name.empty() || slot.name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a slot's name has 1 to 128 characters");
  }
  if (slot.cores.empty() && slot.kind != SlotKind::kDevice) {  // a GPU slot needs none
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot.name, " has no cores"));
  }
  for (int core : slot.cores) {
    if (core < 0 || core >= kMaxCore) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", slot.name, ": core ", core, " is out of range"));
    }
  }
  if (slot.kind == SlotKind::kDevice && (slot.device_key.empty() || slot.target.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("device slot ", slot.name, " needs a device key and a target"));
  }
  if (slot.machine.size() > kMaxMachineBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", slot.name, ": its measured machine has ", slot.machine.size(),
                     " bytes; ", kMaxMachineBytes, " are allowed"));
  }
  return absl::OkStatus();
}

absl::Status CheckDuration(const PoolOptions& options, absl::Duration duration) {
  if (duration >= options.min_lease && duration <= options.max_lease) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a lease lasts ", absl::FormatDuration(options.min_lease), " to ",
      absl::FormatDuration(options.max_lease), ", not ", absl::FormatDuration(duration)));
}

// A lease's id is no secret: the list of slots shows it.
absl::Status CheckOwner(const Lease& lease, const std::string& owner) {
  if (lease.owner == owner) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("lease ", lease.id, " is held by ", lease.owner,
                                                  "; ", owner,
                                                  " can neither renew nor release it"));
}

std::string Describe(const Lease& lease) {
  std::string text = absl::StrCat("held by ", lease.holder);
  if (!lease.purpose.empty()) absl::StrAppend(&text, " (", lease.purpose, ")");
  return text;
}

}  // namespace

absl::Status DevicePool::CheckReport(const WorkerReport& report) const {
  if (report.worker.empty() || report.worker.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the worker at ", report.address, " has an id of ", report.worker.size(),
                     " characters; 1 to 128 are allowed (heddle-worker --id)"));
  }
  if (report.boot_id.empty() || report.boot_id.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("a worker's boot id has 1 to 128 characters");
  }
  if (report.host.empty() || report.address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", report.worker, " tells no host or address"));
  }
  if (report.slots.size() > options_.max_slots_per_worker) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", report.worker, " has ", report.slots.size(),
                     " slots, and the tracker takes ", options_.max_slots_per_worker,
                     "; join cores to larger ones (heddle-worker --cpu-slots, --device-slots)"));
  }
  std::set<std::string> names;
  for (const SlotSpec& slot : report.slots) {
    HEDDLE_RETURN_IF_ERROR(CheckSlot(slot));
    if (!names.insert(slot.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "worker ", report.worker, " has two slots named ", slot.name,
          "; name each slot's cores once (heddle-worker --cpu-slots, --device-slots)"));
    }
  }
  for (const auto& [slot, reason] : report.troubles) {
    if (names.count(slot) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("trouble of a slot that is not there: ", slot));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Lease>> DevicePool::Synchronize(const WorkerReport& report,
                                                           absl::Time now) {
  Expire(now);
  HEDDLE_RETURN_IF_ERROR(CheckReport(report));
  auto found = workers_.find(report.worker);
  if (found == workers_.end()) {
    if (workers_.size() >= options_.max_workers) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "worker ", report.worker, " is not registered: the tracker has ", workers_.size(),
          " workers, as many as it takes; end some, or run another tracker and scheduler for it"));
    }
    Worker& worker =
        workers_
            .emplace(report.worker,
                     Worker{.report = report, .last_sync = now, .heard = now, .retired_boots = {}})
            .first->second;
    worker.interval = SyncInterval();
    hosts_[report.host].workers.insert(report.worker);
    Forget(report.worker);
    Changed(&worker);
    next_expiry_ = std::min(next_expiry_, now + options_.worker_expiry);
    return std::vector<Lease>();
  }
  Worker& worker = found->second;
  const auto& retired = worker.retired_boots;
  if (std::find(retired.begin(), retired.end(), report.boot_id) != retired.end()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "worker id ", report.worker, " is used by a newer process at ", worker.report.address,
        "; give each worker an id of its own (heddle-worker --id)"));
  }
  const bool rebooted = worker.report.boot_id != report.boot_id;
  if (rebooted) {
    worker.retired_boots.push_back(worker.report.boot_id);
    if (worker.retired_boots.size() > kRetiredBoots) worker.retired_boots.pop_front();
  }
  const bool moved = worker.report.host != report.host || worker.report.slots != report.slots;
  const bool leaves = worker.report.leaving > absl::ZeroDuration();
  const bool changed = rebooted || moved || worker.report.draining != report.draining ||
                       leaves != (report.leaving > absl::ZeroDuration()) ||
                       worker.report.address != report.address ||
                       worker.report.troubles != report.troubles;
  // Slots that change while the process runs are new slots: leases on the old ones are void.
  if (rebooted || moved) DropLeasesOf(report.worker);
  if (worker.report.host != report.host) {
    LeaveHost(worker.report);
    hosts_[report.host].workers.insert(report.worker);
  }
  worker.report = report;
  Hear(&worker, rebooted, now);
  if (changed) Changed(&worker);
  std::vector<Lease> leases;
  for (const SlotSpec& slot : report.slots) {
    auto held = lease_of_slot_.find({report.worker, slot.name});
    if (held != lease_of_slot_.end()) leases.push_back(leases_.at(held->second));
  }
  return leases;
}

absl::StatusOr<Lease> DevicePool::Acquire(const AcquireOrder& order, uint64_t token,
                                          absl::Time now) {
  Expire(now);
  if (order.holder.empty()) return absl::InvalidArgumentError("an order names its holder");
  HEDDLE_RETURN_IF_ERROR(CheckDuration(options_, order.duration));
  const SlotSpec* slot = FindSlot(order.worker, order.slot);
  if (slot == nullptr) {
    return absl::NotFoundError(absl::StrCat("there is no slot ", order.slot, " of a worker ",
                                            order.worker, " (heddle devices lists all)"));
  }
  const SlotView view = View(workers_.at(order.worker), *slot, now);
  const std::string name =
      absl::StrCat("slot ", order.slot, " of ", order.worker, ": ", view.reason);
  const std::string waiting = WaitsFor(order, *slot);
  switch (view.state) {
    case SlotState::kFree:
      if (waiting.empty()) break;
      return absl::ResourceExhaustedError(absl::StrCat(
          "slot ", order.slot, " of ", order.worker, ": kept for ", waiting, ", who waits for it"));
    case SlotState::kHeld:
    case SlotState::kBlocked:
      if (waiting.empty() && order.holder.starts_with(kPersonHolder)) {
        wishes_[{order.worker, order.slot}] = {order.holder, now + options_.person_waits};
        next_expiry_ = std::min(next_expiry_, now + options_.person_waits);
      }
      return absl::ResourceExhaustedError(name);
    case SlotState::kDraining:
    case SlotState::kQuarantined:
      return absl::FailedPreconditionError(name);
  }
  if (token <= last_token_) {
    return absl::InternalError(
        absl::StrCat("fencing token ", token, " does not grow beyond ", last_token_));
  }
  last_token_ = token;
  Lease lease{.id = absl::StrCat("L", token),
              .fencing_token = token,
              .worker = order.worker,
              .slot = order.slot,
              .holder = order.holder,
              .owner = order.owner,
              .purpose = order.purpose,
              .expires = now + order.duration};
  leases_[lease.id] = lease;
  lease_of_slot_[{lease.worker, lease.slot}] = lease.id;
  wishes_.erase({lease.worker, lease.slot});
  const std::string& host = workers_.at(lease.worker).report.host;
  hosts_.at(host).leases.insert(lease.id);
  ChangedOn(host);
  next_expiry_ = std::min(next_expiry_, lease.expires);
  return lease;
}

absl::StatusOr<Lease> DevicePool::Renew(const std::string& lease_id, const std::string& owner,
                                        absl::Duration duration, absl::Time now) {
  Expire(now);
  HEDDLE_RETURN_IF_ERROR(CheckDuration(options_, duration));
  auto lease = leases_.find(lease_id);
  if (lease == leases_.end()) {
    return absl::NotFoundError(absl::StrCat("lease ", lease_id, " has expired or was released"));
  }
  HEDDLE_RETURN_IF_ERROR(CheckOwner(lease->second, owner));
  lease->second.expires = std::max(lease->second.expires, now + duration);
  return lease->second;
}

absl::Duration DevicePool::SyncInterval() const {
  const absl::Duration paced =
      absl::Seconds(static_cast<double>(workers_.size()) / options_.reports_per_second);
  return std::max(options_.sync_interval, std::min(options_.worker_expiry / 4, paced));
}

void DevicePool::EndLeases() {
  while (!leases_.empty()) EndLease(leases_.begin());
}

const Lease* DevicePool::FindLease(const std::string& lease_id) const {
  const auto lease = leases_.find(lease_id);
  return lease == leases_.end() ? nullptr : &lease->second;
}

absl::Status DevicePool::Release(const std::string& lease_id, const std::string& owner,
                                 absl::Time now) {
  Expire(now);
  auto lease = leases_.find(lease_id);
  if (lease == leases_.end()) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(CheckOwner(lease->second, owner));
  EndLease(lease);
  return absl::OkStatus();
}

void DevicePool::ExcusePause(absl::Time now) {
  const absl::Duration pause = pauses_.Look(now);
  if (pause == absl::ZeroDuration()) return;
  for (auto& [name, worker] : workers_) worker.heard += pause;
}

void DevicePool::Hear(Worker* worker, bool rebooted, absl::Time now) {
  // The time that a process took to come back is no delay of its message.
  if (!rebooted) lateness_.Add(now - worker->heard - worker->interval);
  worker->heard = worker->last_sync = now;
  worker->interval = SyncInterval();
  const absl::Duration before =
      std::exchange(late_, std::min(lateness_.Median(), kMostLate * options_.worker_expiry));
  if (late_ < before) next_expiry_ = absl::InfinitePast();  // the time of some may be over now
}

void DevicePool::Expire(absl::Time now) {
  ExcusePause(now);
  if (now < next_expiry_) return;
  next_expiry_ = absl::InfiniteFuture();
  // Whether it is over; if not, it may be by next_expiry_.
  const auto over = [this, now](absl::Time until) {
    if (until > now) next_expiry_ = std::min(next_expiry_, until);
    return until <= now;
  };
  std::erase_if(wishes_, [&over](const auto& wish) { return over(wish.second.until); });
  for (auto it = workers_.begin(); it != workers_.end();) {
    const auto worker = it++;
    if (!over(worker->second.heard + options_.worker_expiry + late_)) continue;
    if (!worker->second.report.draining && lost_.size() < options_.max_workers)
      lost_.push_back(worker->first);
    DropWorker(worker);
  }
  for (auto it = leases_.begin(); it != leases_.end();) {
    const auto lease = it++;
    if (!over(lease->second.expires)) continue;
    ++expired_leases_;
    EndLease(lease);
  }
}

std::vector<WorkerView> DevicePool::List(absl::Time now) {
  Expire(now);
  std::vector<WorkerView> views;
  for (const auto& [id, worker] : workers_) views.push_back(View(worker, now));
  return views;
}

PoolChanges DevicePool::ChangesSince(uint64_t version, absl::Time now) {
  Expire(now);
  PoolChanges changes;
  changes.version = version_;
  changes.whole = version == 0 || version < forgotten_;
  if (changes.whole) {
    changes.workers = List(now);
    return changes;
  }
  for (auto it = changes_.upper_bound(version); it != changes_.end(); ++it)
    changes.workers.push_back(View(workers_.at(it->second), now));
  for (auto it = gone_.upper_bound(version); it != gone_.end(); ++it)
    changes.gone.push_back(it->second);
  return changes;
}

std::string DevicePool::AddressOf(const std::string& worker) const {
  auto found = workers_.find(worker);
  return found == workers_.end() ? "" : found->second.report.address;
}

const SlotSpec* DevicePool::FindSlot(const std::string& worker, const std::string& slot) const {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return nullptr;
  for (const SlotSpec& spec : found->second.report.slots) {
    if (spec.name == slot) return &spec;
  }
  return nullptr;
}

const Lease* DevicePool::Conflict(const std::string& worker, const SlotSpec& slot) const {
  for (const std::string& id : hosts_.at(workers_.at(worker).report.host).leases) {
    const Lease& lease = leases_.at(id);
    if (lease.worker == worker && lease.slot == slot.name) continue;
    const SlotSpec* other = FindSlot(lease.worker, lease.slot);
    if (other != nullptr && ShareCore(*other, slot)) return &lease;
  }
  return nullptr;
}

std::string DevicePool::WaitsFor(const AcquireOrder& order, const SlotSpec& slot) const {
  const std::string& host = workers_.at(order.worker).report.host;
  for (const auto& [key, wish] : wishes_) {
    const auto worker = workers_.find(key.first);
    if (wish.holder == order.holder || worker == workers_.end() ||
        worker->second.report.host != host)
      continue;
    const SlotSpec* wanted = FindSlot(key.first, key.second);
    const bool same = key == SlotKey{order.worker, order.slot};
    if (wanted != nullptr && (same || ShareCore(*wanted, slot))) return wish.holder;
  }
  return "";
}

std::optional<std::pair<SlotState, std::string>> DevicePool::OutOfUse(const Worker& worker,
                                                                      const SlotSpec& slot) {
  const WorkerReport& report = worker.report;
  if (const auto trouble = report.troubles.find(slot.name); trouble != report.troubles.end())
    return std::pair(SlotState::kQuarantined, absl::StrCat("quarantined: ", trouble->second));
  if (!report.draining) return std::nullopt;
  if (report.leaving <= absl::ZeroDuration())
    return std::pair(SlotState::kDraining, std::string("the worker is draining"));
  return std::pair(
      SlotState::kDraining,
      absl::StrCat("the worker leaves within ",
                   absl::FormatDuration(absl::Ceil(report.leaving, absl::Seconds(1)))));
}

SlotView DevicePool::View(const Worker& worker, const SlotSpec& slot, absl::Time now) const {
  SlotView view{.spec = slot,
                .state = SlotState::kFree,
                .reason = slot.note,
                .lease_id = "",
                .holder = "",
                .retires = "",
                .lease_remaining = {}};
  const auto out_of_use = OutOfUse(worker, slot);
  const SlotKey key{worker.report.worker, slot.name};
  if (auto held = lease_of_slot_.find(key); held != lease_of_slot_.end()) {
    const Lease& lease = leases_.at(held->second);
    view.state = SlotState::kHeld;
    view.reason = Describe(lease);
    view.lease_id = lease.id;
    view.holder = lease.holder;
    if (out_of_use) view.retires = out_of_use->second;
    view.lease_remaining = lease.expires - now;
  } else if (out_of_use) {
    std::tie(view.state, view.reason) = *out_of_use;
  } else if (const Lease* lease = Conflict(worker.report.worker, slot); lease != nullptr) {
    view.state = SlotState::kBlocked;
    view.reason = absl::StrCat("shares a core with ", lease->slot, " of ", lease->worker, ", ",
                               Describe(*lease));
  }
  return view;
}

WorkerView DevicePool::View(const Worker& worker, absl::Time now) const {
  WorkerView view{.report = worker.report, .since_sync = now - worker.last_sync, .slots = {}};
  for (const SlotSpec& slot : worker.report.slots) view.slots.push_back(View(worker, slot, now));
  return view;
}

void DevicePool::DropLeasesOf(const std::string& worker) {
  auto held = lease_of_slot_.lower_bound({worker, ""});
  while (held != lease_of_slot_.end() && held->first.first == worker) {
    const auto lease = leases_.find(held->second);
    ++held;  // before its entry goes
    EndLease(lease);
  }
}

void DevicePool::EndLease(std::map<std::string, Lease>::iterator lease) {
  const std::string& host = workers_.at(lease->second.worker).report.host;
  hosts_.at(host).leases.erase(lease->first);
  lease_of_slot_.erase({lease->second.worker, lease->second.slot});
  leases_.erase(lease);
  ChangedOn(host);
}

void DevicePool::DropWorker(std::map<std::string, Worker>::iterator worker) {
  const std::string id = worker->first;
  DropLeasesOf(id);
  LeaveHost(worker->second.report);
  changes_.erase(worker->second.changed);
  workers_.erase(worker);
  when_gone_[id] = ++version_;
  gone_[version_] = id;
  if (gone_.size() > options_.max_workers) {
    forgotten_ = gone_.begin()->first;
    Forget(std::string(gone_.begin()->second));
  }
}

void DevicePool::LeaveHost(const WorkerReport& report) {
  const auto host = hosts_.find(report.host);
  host->second.workers.erase(report.worker);
  if (host->second.workers.empty()) hosts_.erase(host);
}

void DevicePool::Forget(const std::string& worker) {
  const auto found = when_gone_.find(worker);
  if (found == when_gone_.end()) return;
  gone_.erase(found->second);
  when_gone_.erase(found);
}

void DevicePool::Changed(Worker* worker) {
  changes_.erase(worker->changed);
  worker->changed = ++version_;
  changes_[version_] = worker->report.worker;
}

void DevicePool::ChangedOn(const std::string& host) {
  for (const std::string& worker : hosts_.at(host).workers) Changed(&workers_.at(worker));
}

}  // namespace heddle::tracker
